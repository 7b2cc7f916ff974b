/* Which times of records are believed: those that agree with CUPTI's own clock. */
#ifndef KERNELCAST_CLOCK_H
#define KERNELCAST_CLOCK_H

#include <stdint.h>

#define CLOCK_SLACK_NS (UINT64_C(60) * 1000000000) /* a record may be this far from the clock */

void clock_open(uint64_t now_ns);
void clock_set(uint64_t now_ns);
void clock_new_buffer(void);
int clock_agrees(uint64_t time_ns);
int clock_timed(uint64_t start_ns, uint64_t end_ns);

#endif
