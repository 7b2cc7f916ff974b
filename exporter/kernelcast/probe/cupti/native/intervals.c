#include "intervals.h"

#include <stdlib.h>
#include <string.h>

int occupation_open(struct occupation *occupation)
{
    occupation->intervals = malloc(2 * KC_INTERVALS * sizeof(struct interval));
    if (!occupation->intervals)
        return -1;
    occupation->spare = occupation->intervals + KC_INTERVALS;
    occupation->gaps.first = KC_BUCKETS;
    return 0;
}

static uint64_t smaller(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static enum kc_state state_at(const struct occupation *occupation, uint64_t now_ns)
{
    int compute = occupation->until_ns[KC_COMPUTE] > now_ns;
    int collective = occupation->until_ns[KC_COLLECTIVE] > now_ns;
    int copy = occupation->until_ns[KC_COPY] > now_ns;
    if (compute)
        return collective || copy ? KC_IS_OVERLAP : KC_IS_COMPUTE;
    if (collective)
        return KC_IS_COLLECTIVE;
    if (copy)
        return KC_IS_COPY;
    /* A kernel that runs has no record before it ends: after the latest one nobody knows. */
    return now_ns < occupation->latest_ns ? KC_IS_IDLE : KC_IS_UNKNOWN;
}

/* Lets time pass up to a moment before which nothing else begins. */
static void pass(struct occupation *occupation, uint64_t until_ns)
{
    while (occupation->now_ns < until_ns) {
        uint64_t next_ns = until_ns;
        for (int kind = 0; kind < 3; kind++)
            if (occupation->until_ns[kind] > occupation->now_ns)
                next_ns = smaller(next_ns, occupation->until_ns[kind]);
        occupation->state_ns[state_at(occupation, occupation->now_ns)] += next_ns - occupation->now_ns;
        occupation->now_ns = next_ns;
    }
}

static uint64_t busy_until(const struct occupation *occupation)
{
    uint64_t until_ns = occupation->until_ns[0];
    for (int kind = 1; kind < 3; kind++)
        if (occupation->until_ns[kind] > until_ns)
            until_ns = occupation->until_ns[kind];
    return until_ns;
}

static void begin(struct occupation *occupation, const struct interval *interval)
{
    if (interval->start_ns < occupation->now_ns) {
        occupation->late++;
    } else {
        pass(occupation, interval->start_ns);
        uint64_t idle_since_ns = busy_until(occupation);
        if (idle_since_ns < interval->start_ns)
            durations_add(&occupation->gaps, interval->start_ns - idle_since_ns);
    }
    if (interval->end_ns > occupation->until_ns[interval->kind])
        occupation->until_ns[interval->kind] = interval->end_ns;
}

static uint32_t run_end(const struct interval *from, uint32_t begin_at, uint32_t count)
{
    uint32_t end = begin_at + 1;
    while (end < count && from[end - 1].start_ns <= from[end].start_ns)
        end++;
    return end;
}

static void merge(struct interval *to, const struct interval *from, uint32_t begin_at, uint32_t middle, uint32_t end)
{
    uint32_t left = begin_at, right = middle;
    for (uint32_t at = begin_at; at < end; at++) {
        int take_left = left < middle && (right >= end || from[left].start_ns <= from[right].start_ns);
        to[at] = take_left ? from[left++] : from[right++];
    }
}

/* Natural merge sort by start: what comes is a few ordered runs, one for each buffer that a thread filled. */
static void sort(struct occupation *occupation)
{
    uint32_t count = occupation->waiting;
    while (count && run_end(occupation->intervals, 0, count) < count) {
        uint32_t at = 0;
        while (at < count) {
            uint32_t middle = run_end(occupation->intervals, at, count);
            uint32_t end = middle < count ? run_end(occupation->intervals, middle, count) : middle;
            merge(occupation->spare, occupation->intervals, at, middle, end);
            at = end;
        }
        struct interval *sorted = occupation->spare;
        occupation->spare = occupation->intervals;
        occupation->intervals = sorted;
    }
}

/* Takes up what began before a moment; time starts with the first activity of all. */
static void sweep(struct occupation *occupation, uint64_t until_ns)
{
    uint32_t done = 0;
    sort(occupation);
    if (!occupation->begun && occupation->waiting && occupation->intervals[0].start_ns < until_ns) {
        occupation->begun = 1;
        occupation->now_ns = occupation->intervals[0].start_ns;
        for (int kind = 0; kind < 3; kind++)
            occupation->until_ns[kind] = occupation->now_ns;
    }
    while (done < occupation->waiting && occupation->intervals[done].start_ns < until_ns)
        begin(occupation, &occupation->intervals[done++]);
    occupation->waiting -= done;
    memmove(occupation->intervals, occupation->intervals + done, occupation->waiting * sizeof(struct interval));
}

/* Sums up everything before a moment; what comes later and began earlier is late. */
void occupation_advance(struct occupation *occupation, uint64_t until_ns)
{
    sweep(occupation, until_ns);
    if (occupation->begun)
        pass(occupation, until_ns);
}

/* Sums up all intervals; the next activity starts a new timeline, as the time between is unknown. */
void occupation_finish(struct occupation *occupation)
{
    sweep(occupation, UINT64_MAX);
    if (occupation->begun)
        pass(occupation, busy_until(occupation));
    occupation->begun = 0;
    occupation->latest_ns = 0;
}

void occupation_add(struct occupation *occupation, uint64_t start_ns, uint64_t end_ns, enum kc_class kind)
{
    if (occupation->waiting == KC_INTERVALS) {
        sort(occupation);
        occupation_advance(occupation, occupation->intervals[KC_INTERVALS / 2].start_ns + 1);
    }
    occupation->intervals[occupation->waiting++] = (struct interval){start_ns, end_ns, kind};
    if (end_ns > occupation->latest_ns)
        occupation->latest_ns = end_ns;
}
