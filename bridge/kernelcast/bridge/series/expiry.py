"""Finds expired series, by append times and each series' own interval, never by a clock alone."""

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import EMPTY, FREE, UNCHANGED, Int64Array, Rules, SeriesColumns, UInt8Array
from kernelcast.columnar.compiled import allocating_kernel


@allocating_kernel
def outlived(
    series: SeriesColumns,
    used: int,
    oldest_ms: Int64Array,
    heard_ms: Int64Array,
    growth: UInt8Array,
    rules: Rules,
) -> NDArray[np.bool_]:
    """Return a mask of the expired series.

    After a topic has grown, only the gaps that were seen count, not the interval that a new series starts with: the
    replica that a series has moved to knows the same gaps, and holds it equally long.

    Args:
        series: The slots.
        used: How many slots have ever been used.
        oldest_ms: By partition, the append time before which every series is too old; one more for those without.
        heard_ms: By partition, the append time up to which any point would have been read; 0 if silence means nothing.
        growth: By partition, UNCHANGED, GROWN or ADDED.
        rules: The number of its intervals that a series may miss, and the shortest time that it stays.

    Returns:
        Shape (used,).
    """
    # Locals, because each use of a tuple's field costs two atomic operations on its reference count.
    states, partitions = series.state, series.partition
    appends, intervals, gaps = series.append_ms, series.interval_ms, series.gap_ms
    missed_intervals, floor_ms = rules.missed_intervals, rules.floor_ms
    gone = np.zeros(used, np.bool_)
    for slot in range(used):
        if states[slot] == FREE:
            continue
        append_ms, partition = appends[slot], partitions[slot]
        gone[slot] = states[slot] == EMPTY or append_ms < oldest_ms[partition]
        if intervals[slot] > 0 and not gone[slot]:
            interval_ms = intervals[slot] if growth[partition] == UNCHANGED else gaps[slot]
            patience_ms = max(floor_ms, missed_intervals * interval_ms)
            gone[slot] = append_ms < heard_ms[partition] - patience_ms
    return gone
