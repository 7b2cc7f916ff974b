/* State of a device at each moment: the union of its activities, swept in order of their starts.
 *
 * Activities come in the order in which buffers fill, which is not that of their starts, so they wait for `window` behind
 * the latest end before they are summed up. The oracle is exporter/replay/occupation.py.
 */
#ifndef KERNELCAST_INTERVALS_H
#define KERNELCAST_INTERVALS_H

#include "activity.h"
#include "durations.h"

struct interval {
    uint64_t start_ns, end_ns;
    uint64_t kind; /* enum kc_class */
};

struct occupation {
    uint64_t begun;       /* whether there was any activity */
    uint64_t now_ns;      /* up to here everything is summed up */
    uint64_t latest_ns;   /* the latest end seen */
    uint64_t until_ns[3]; /* by class: where its union ends so far */
    uint64_t state_ns[KC_STATES];
    uint64_t late;
    struct durations gaps;
    uint32_t waiting;
    struct interval *intervals, *spare; /* KC_INTERVALS each */
};

int occupation_open(struct occupation *occupation);
void occupation_add(struct occupation *occupation, uint64_t start_ns, uint64_t end_ns, enum kc_class kind);
void occupation_advance(struct occupation *occupation, uint64_t until_ns);
void occupation_finish(struct occupation *occupation);

#endif
