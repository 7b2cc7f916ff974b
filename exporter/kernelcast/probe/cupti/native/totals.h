/* The totals of one interval: kernels by launch configuration, and devices. */
#ifndef KERNELCAST_TOTALS_H
#define KERNELCAST_TOTALS_H

#include "activity.h"

int totals_open(const struct kc_settings *settings);
void totals_decode(uint8_t *buffer, size_t valid_bytes, struct kc_counts *counts);
void totals_give(uint64_t now_ns, int final, struct kc_drain *drain);

#endif
