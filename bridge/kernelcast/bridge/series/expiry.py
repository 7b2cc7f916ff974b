"""Which series have outlived their last point: by append time, by each series' own interval, never by a clock alone."""

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.machine import kernel
from kernelcast.bridge.series.columns import EMPTY, FREE, Int64Array, Rules, SeriesColumns


@kernel
def outlived(
    series: SeriesColumns, used: int, oldest_ms: Int64Array, heard_ms: Int64Array, rules: Rules
) -> NDArray[np.bool_]:
    """Which series have expired.

    Args:
        series: The slots.
        used: How many slots have ever been used.
        oldest_ms: By partition, the append time before which every series is too old; one more for those without.
        heard_ms: By partition, up to which append time it has been heard; 0 where a silence means nothing.
        rules: How many of its intervals a series may miss, and how long it stays at least.

    Returns:
        Shape (used,).
    """
    # Locals, because each use of a tuple's field costs two atomic operations on its reference count.
    states, partitions = series.state, series.partition
    appends, intervals = series.append_ms, series.interval_ms
    missed_intervals, floor_ms = rules.missed_intervals, rules.floor_ms
    gone = np.zeros(used, np.bool_)
    for slot in range(used):
        if states[slot] == FREE:
            continue
        append_ms, partition = appends[slot], partitions[slot]
        gone[slot] = states[slot] == EMPTY or append_ms < oldest_ms[partition]
        if intervals[slot] > 0 and not gone[slot]:
            patience_ms = max(floor_ms, missed_intervals * intervals[slot])
            gone[slot] = append_ms < heard_ms[partition] - patience_ms
    return gone
