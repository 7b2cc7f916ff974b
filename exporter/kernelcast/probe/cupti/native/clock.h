/* Which times of records are believed: those that agree with CUPTI's own clock. */
#ifndef KERNELCAST_CLOCK_H
#define KERNELCAST_CLOCK_H

#include <stdint.h>

#include "records.h"

#define CLOCK_SLACK_NS (UINT64_C(60) * 1000000000) /* a record may be this far from the clock */

extern uint64_t clock_earliest_ns, clock_latest_ns; /* limits for the buffer that is read */

void clock_open(uint64_t now_ns);
void clock_set(uint64_t now_ns);
void clock_new_buffer(void);

static inline int clock_agrees(uint64_t time_ns)
{
    return time_ns >= clock_earliest_ns && time_ns <= clock_latest_ns;
}

/* Whether a record's times can be used: there are two, in order, not 39 hours apart, and the clock agrees with both. */
static inline int clock_timed(uint64_t start_ns, uint64_t end_ns)
{
    return start_ns && end_ns >= start_ns && end_ns - start_ns < LONGEST_NS && start_ns >= clock_earliest_ns &&
           end_ns <= clock_latest_ns;
}

#endif
