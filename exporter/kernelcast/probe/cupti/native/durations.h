/* Durations as kernelcast.wire.histogram.DurationTotals counts them, in fixed memory. */
#ifndef KERNELCAST_DURATIONS_H
#define KERNELCAST_DURATIONS_H

#include "activity.h"

struct durations {
    uint64_t count, zero, sum_ns;
    unsigned __int128 squares;
    uint32_t first, last; /* positions of the buckets in use; first > last where none is */
    uint32_t buckets[KC_BUCKETS];
};

void durations_bounds(const int64_t *bounds_ns);
int durations_position(uint64_t duration_ns);
void durations_clear(struct durations *totals);
void durations_add(struct durations *totals, uint64_t duration_ns);
uint32_t durations_give(const struct durations *totals, struct kc_durations *given, struct kc_bucket *buckets,
                        uint32_t used, uint32_t most, uint64_t *left_out);

#endif
