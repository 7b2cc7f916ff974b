"""A compiled function of `SeriesStore.expire`: finds expired series, by append times and their own intervals."""

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.partitions.outages import Growth
from kernelcast.bridge.tables.columns import EMPTY, FREE, UNCHANGED, Int64Array, PointRules, SeriesColumns
from kernelcast.columnar.compiled import allocating_kernel


@allocating_kernel
def outlived(
    series: SeriesColumns,
    used: int,
    oldest_ms: Int64Array,
    heard_ms: Int64Array,
    growth: Growth,
    rules: PointRules,
) -> NDArray[np.bool_]:
    """Return a mask of the expired series.

    After a topic has grown, only the gaps that were seen count, not the interval that a new series starts with: the
    replica that a series has moved to knows the same gaps, and holds it equally long. The time that a series shares
    with an outage does not count. Of partitions that are UNCHANGED, `heard_ms` has been reduced by it already.

    Args:
        series: The slots.
        used: How many slots have ever been used.
        oldest_ms: By partition, the append time before which every series is too old; one more for those without.
        heard_ms: By partition, the append time up to which any point would have been read; 0 if silence means nothing.
        growth: Growth of the topics.
        rules: The number of its intervals that a series may miss, and the shortest time that it stays.

    Returns:
        Shape (used,).
    """
    # Locals, because each use of a tuple's field costs two atomic operations on its reference count.
    states, partitions = series.state, series.partition
    appends, intervals, gaps = series.append_ms, series.interval_ms, series.gap_ms
    missed_intervals, floor_ms = rules.missed_intervals, rules.floor_ms
    growths, outages = growth.states, growth.outages
    away, began, ended = outages.partition, outages.began_ms, outages.ended_ms
    gone = np.zeros(used, np.bool_)
    # Example: a series with a point every 10 s, and missed_intervals 5, floor_ms 60,000: it has expired once its
    # partition has been read 60 s beyond its last point. `partition` -1 reads the last item, for series without one.
    for slot in range(used):
        if states[slot] == FREE:
            continue
        append_ms, partition = appends[slot], partitions[slot]
        gone[slot] = states[slot] == EMPTY or append_ms < oldest_ms[partition]
        if intervals[slot] > 0 and not gone[slot]:
            interval_ms = intervals[slot] if growths[partition] == UNCHANGED else gaps[slot]
            patience_ms = max(floor_ms, missed_intervals * interval_ms)
            silence_ms = heard_ms[partition] - append_ms
            for row in range(len(away)):
                if away[row] == partition:
                    silence_ms -= max(0, min(ended[row], heard_ms[partition]) - max(append_ms, began[row]))
            gone[slot] = silence_ms > patience_ms
    return gone
