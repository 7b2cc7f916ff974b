"""Series that may still be exposed by another replica: held until that replica has withdrawn them.

When a topic gets more partitions, a series goes on in another partition. The replica that has the old one exposes the
series' last value until it expires there: `Rules.floor_ms` or `Rules.missed_intervals` of its intervals after its last
point, by Kafka's append times. The first point in the new partition comes after that last point. From there on, the
replica that has the new partition waits for as long, and a little longer.
"""

from typing import NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import UNCHANGED, Int64Array, Rules, SeriesColumns, UInt8Array


class Hold(NamedTuple):
    """How long series are held.

    Attributes:
        rules: By which series expire.
        ttl_ms: The time-to-live; no series is held for longer, but for the margin.
        margin_ms: What another replica may need to find that a series has expired.
    """

    rules: Rules
    ttl_ms: int
    margin_ms: int


def release(series: SeriesColumns, used: int, growth: UInt8Array, heard_ms: Int64Array, hold: Hold) -> int:
    """End the hold of series that have expired at any other replica, and in topics of which the growth is past.

    A series of one point has no interval yet, so it is held for one time-to-live.

    Args:
        series: The slots.
        used: How many slots have ever been used.
        growth: By partition, UNCHANGED, GROWN or ADDED.
        heard_ms: By partition, up to which append time it has been heard; 0 where that is not known.
        hold: How long series are held.

    Returns:
        How many series were released.
    """
    held = np.flatnonzero(series.held_ms[:used])
    gaps_ms, partitions = series.gap_ms[held].astype(np.int64), series.partition[held]
    patience_ms = np.maximum(hold.rules.floor_ms, hold.rules.missed_intervals * gaps_ms)
    patience_ms = np.minimum(np.where(gaps_ms > 0, patience_ms, hold.ttl_ms), hold.ttl_ms)
    ended = heard_ms[partitions] > series.held_ms[held] + patience_ms + hold.margin_ms
    released = held[ended | (growth[partitions] == UNCHANGED)]
    series.held_ms[released] = 0
    return len(released)
