#include "durations.h"

#include <string.h>

static int64_t last_ns[KC_BOUNDS];
static uint16_t first_position[64]; /* by the number of leading zeros: where the search for a duration begins */

/* The bounds come from Python, so that there is one ladder; a duration above bounds_ns[i] lies in bucket i or higher. */
void durations_bounds(const int64_t *bounds_ns)
{
    memcpy(last_ns, bounds_ns, sizeof last_ns);
    for (int zeros = 0; zeros < 64; zeros++) {
        uint64_t smallest = UINT64_C(1) << (63 - zeros);
        int position = 0;
        while (position < KC_BUCKETS - 1 && (uint64_t)last_ns[position + 1] < smallest)
            position++;
        first_position[zeros] = (uint16_t)position;
    }
}

/* The bucket's position, 0 to KC_BUCKETS - 1, of a duration above 0; at most eight steps, as a doubling has eight. */
int durations_position(uint64_t duration_ns)
{
    int position = first_position[__builtin_clzll(duration_ns)];
    while (position < KC_BUCKETS - 1 && (uint64_t)last_ns[position + 1] < duration_ns)
        position++;
    return position;
}

void durations_clear(struct durations *totals)
{
    totals->count = totals->zero = totals->sum_ns = 0;
    totals->squares = 0;
    if (totals->first <= totals->last)
        memset(totals->buckets + totals->first, 0, (totals->last - totals->first + 1) * sizeof totals->buckets[0]);
    totals->first = KC_BUCKETS;
    totals->last = 0;
}

void durations_add(struct durations *totals, uint64_t duration_ns)
{
    totals->count++;
    totals->sum_ns += duration_ns;
    totals->squares += (unsigned __int128)duration_ns * duration_ns;
    if (duration_ns == 0) {
        totals->zero++;
        return;
    }
    uint32_t position = (uint32_t)durations_position(duration_ns);
    totals->buckets[position]++;
    if (position < totals->first)
        totals->first = position;
    if (position > totals->last)
        totals->last = position;
}

/* Writes the totals, and their buckets that are not empty behind the `used` ones; returns how many are used then. The
 * durations in buckets that find no room are added to `left_out`. */
uint32_t durations_give(const struct durations *totals, struct kc_durations *given, struct kc_bucket *buckets,
                        uint32_t used, uint32_t most, uint64_t *left_out)
{
    given->count = totals->count;
    given->zero = totals->zero;
    given->sum_ns = totals->sum_ns;
    given->squares_low = (uint64_t)totals->squares;
    given->squares_high = (uint64_t)(totals->squares >> 64);
    given->first_bucket = used;
    for (uint32_t position = totals->first; position <= totals->last; position++)
        if (totals->buckets[position] && used < most)
            buckets[used++] = (struct kc_bucket){KC_LOWEST + (int32_t)position, totals->buckets[position]};
        else
            *left_out += totals->buckets[position];
    given->buckets = used - given->first_bucket;
    return used;
}
