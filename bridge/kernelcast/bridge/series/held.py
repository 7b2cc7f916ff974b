"""Hides series of a grown topic that another replica may expose: those that came, and those that may have gone.

When partitions are added to a topic, a series may continue in another partition. The replica that owns the old
partition exposes the series' last value until it expires there: `PointRules.floor_ms` or `PointRules.missed_intervals`
of its intervals after its last point, by Kafka's append times. The first point in the new partition comes after that
last point. So the replica that owns the new partition waits equally long from that first point on, plus a margin, plus
the longest gap of the series: a replica that joins cannot know whether Kafka was away in that gap, and such time does
not count as silence. An outage counts for the series alone that were last seen before it. It is measured from its first
query without an answer where a series is withdrawn, and from Kafka's last answer where it is released. So no replica
withdraws a series later than another one releases it.

The old partition may also pass to another replica soon after the series has moved. If its former owner had read both
partitions, that owner has exposed newer values than the old partition has. So a series of a partition that is taken
over is held until a point comes that was written after the takeover, or the series has expired. Example: one replica
owns partitions 0 and 1 of a grown topic and exposes 58, the first value in partition 1. Then partition 0 passes to a
second replica and partition 1 to a third one. The second replica reads 57 in partition 0 and never exposes it. The
third one holds the series as usual.

The former owner removes a series after `PointRules.missed_intervals` of the longest gap that it remembers, but its new
owner does not know that gap. So the former owner withdraws the series earlier, after as many of its usual gaps: it
hides it until the next point comes here. Example: a series with a point every 10 s has missed two points, and moves a
minute later. Its former owner would remove it after 112 s, its new owner holds it for 87 s. The former owner withdraws
it after 60 s, which is the shortest time.
"""

from typing import NamedTuple

import numpy as np

from kernelcast.bridge.partitions.outages import Growth, away_ms
from kernelcast.bridge.tables.columns import (
    LIVE,
    UNCHANGED,
    WITHDRAWN,
    Int64Array,
    PointRules,
    SeriesColumns,
)


class Hold(NamedTuple):
    """Parameters of the hold time.

    Attributes:
        rules: Rules of expiry.
        ttl_ms: The time-to-live; no series is held longer than this plus the margin.
        margin_ms: Time that another replica may need to detect that a series has expired.
        taken_at: By partition, the offset of the first message that was written after the partition was taken over.
    """

    rules: PointRules
    ttl_ms: int
    margin_ms: int
    taken_at: Int64Array


def release(series: SeriesColumns, used: int, growth: Growth, heard_ms: Int64Array, hold: Hold) -> int:
    """End the hold of series that must have expired at any other replica, and in topics that are no longer growing.

    A series of one point has no interval yet, so it is held for one time-to-live. A series without a point since its
    partition was taken over stays held, and a withdrawn one as long as its topic grows.

    Args:
        series: The slots.
        used: How many slots have ever been used.
        growth: Growth of the topics.
        heard_ms: By partition, the append time up to which any point would have been read; 0 if it is not known.
        hold: Parameters of the hold time.

    Returns:
        The number of released series.
    """
    held = np.flatnonzero(series.held_ms[:used])
    gaps_ms, partitions = series.gap_ms[held].astype(np.int64), series.partition[held]
    patience_ms = np.maximum(hold.rules.floor_ms, hold.rules.missed_intervals * gaps_ms)
    # An outage of Kafka delays the expiry by its length. To a series, it is at most as long as its longest gap.
    patience_ms = np.minimum(np.where(gaps_ms > 0, patience_ms, hold.ttl_ms), hold.ttl_ms) + gaps_ms
    since_ms, outages = series.held_ms[held], growth.outages
    silence_ms = heard_ms[partitions] - since_ms
    silence_ms -= away_ms(outages, outages.began_ms, partitions, since_ms, heard_ms[partitions])
    ended = silence_ms > patience_ms + hold.margin_ms
    ended &= series.offset[held] >= hold.taken_at[partitions]
    ended &= series.held_ms[held] != WITHDRAWN
    released = held[ended | (growth.states[partitions] == UNCHANGED)]
    series.held_ms[released] = 0
    return len(released)


def withdraw(series: SeriesColumns, used: int, growth: Growth, heard_ms: Int64Array, rules: PointRules) -> int:
    """Hide series of grown topics that are overdue, because they may have moved to another replica.

    A series is overdue when it has had no point for `PointRules.missed_intervals` of its usual gaps, and for
    `PointRules.floor_ms`. Its next point here exposes it again.

    Args:
        series: The slots.
        used: How many slots have ever been used.
        growth: Growth of the topics.
        heard_ms: By partition, the append time up to which any point would have been read; 0 if it is not known.
        rules: Rules of expiry.

    Returns:
        The number of withdrawn series.
    """
    if not growth.states.any():
        return 0
    exposed = (series.state[:used] == LIVE) & (series.held_ms[:used] == 0) & (series.partition[:used] >= 0)
    slots = np.flatnonzero(exposed)
    slots = slots[growth.states[series.partition[slots]] != UNCHANGED]
    patience_ms = np.maximum(rules.floor_ms, rules.missed_intervals * series.usual_gap_ms[slots].astype(np.int64))
    partitions, since_ms = series.partition[slots], series.append_ms[slots]
    silence_ms = heard_ms[partitions] - since_ms
    silence_ms -= away_ms(growth.outages, growth.outages.noticed_ms, partitions, since_ms, heard_ms[partitions])
    overdue = slots[silence_ms > patience_ms]
    series.held_ms[overdue] = WITHDRAWN
    return len(overdue)
