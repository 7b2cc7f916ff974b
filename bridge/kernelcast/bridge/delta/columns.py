"""Arrays of the running totals, and the outcome codes of delta points."""

from typing import Any, Final, NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import FloatArray, Int32Array, Int64Array, UInt8Array, grown

# `Accumulator._of_wire` maps a series number to its row, or to one of these codes.
UNSEEN: Final = -1
"""Not classified yet."""
NOT_DELTA: Final = -2
"""A cumulative series or a gauge; its points pass unchanged."""
REFUSED: Final = -3
"""A delta series beyond `max_series`."""

# Outcomes of a point. The order counts: codes up to LAST_ADDED mean that the value is in the total.
ADDED: Final = 0
FIRST: Final = 1
"""Added as the first point of its series' total."""
GAP: Final = 2
"""Added; points before it are missing, or the producer was restarted."""
FILLED: Final = 3
"""Added; it came late and lies within a known gap."""
OVERLAP: Final = 4
"""Added; it begins before the last one ended and ends after it."""
CLOCK_SET: Final = 5
"""Added; the last one lay in the future by Kafka's clock, so the producer's clock has been put right."""
BOUNDS_CHANGED: Final = 6
"""Added to a total that restarted at 0, because the histogram has other bounds."""
OVERFLOW: Final = 7
"""Added to a total that restarted at 0, because the sum would exceed 64 bits."""
REPLAYED: Final = 8
"""Not added: its message's offset is below the one up to which the total is valid, so it is in the total already."""
DUPLICATE: Final = 9
"""Not added: it has start and time of the last point."""
OLDER: Final = 10
"""Not added: it ends before the last point and lies in no known gap."""
NO_VALUE: Final = 11
"""Nothing to add: OTLP's no-recorded-value."""
MALFORMED: Final = 12
"""Not added: its times or its buckets contradict each other, or a monotonic sum is negative."""
SPREAD: Final = 13
"""Not added: its series comes from several partitions, which are read at different speeds."""
LIMIT: Final = 14
"""Not added: its series has no row, because the table is full."""
PASSED: Final = 15
"""Not a delta point; passed on unchanged."""

OUTCOMES: Final = {
    ADDED: "added",
    FIRST: "first",
    GAP: "gap",
    FILLED: "filled",
    OVERLAP: "overlap",
    CLOCK_SET: "clock_set",
    BOUNDS_CHANGED: "bounds_changed",
    OVERFLOW: "overflow",
    REPLAYED: "replayed",
    DUPLICATE: "duplicate",
    OLDER: "older",
    NO_VALUE: "no_value",
    MALFORMED: "malformed",
    SPREAD: "spread",
    LIMIT: "limit",
}
"""Values of the label `outcome` of the counter of delta points."""

LOST: Final = (OLDER, MALFORMED, SPREAD, LIMIT)
"""Codes of points whose value is in no total and never will be."""

LAST_ADDED: Final = OVERFLOW
"""Codes up to this one mean that the point's value is in the total."""

# Kinds of a row.
FREE: Final = 0
NUMBER: Final = 1
EXPLICIT: Final = 2
EXPONENTIAL: Final = 3
"""Free, or a row of a sum, of an explicit histogram, of an exponential histogram."""

# Flags of a row.
MONOTONIC: Final = 1
"""The series is a sum that never falls: negative deltas are MALFORMED."""
INTEGER: Final = 2
"""The total is `integer`, exact."""
HAS_SUM: Final = 4
"""Every point of the histogram has had a sum."""
SCATTERED: Final = 8
"""The series moves between partitions, so it is not exposed."""
PENDING: Final = 16
"""It may continue a total of another replica; it is not exposed while that total is looked for, see `adoption`."""
RESTING: Final = 32
"""Its series has ended; the total is kept for when the series returns."""

# Scope of a partition: how many partitions of its topic this replica reads.
WHOLE_TOPIC: Final = 0
"""All of them: no other replica has points of its series."""
PART_OF_TOPIC: Final = 1
"""Not all: its series may continue in a partition of another replica."""
GROWN_TOPIC: Final = 2
"""Not all, and partitions were added recently: series arrive from partitions of other replicas."""

NOTHING: Final = -1
"""Null value: `last_ns` of a row without a total, and the index of an absent block, gap or partition."""

# Slots of `Gaps.control`.
FREE_GAP: Final = 0
USED_GAPS: Final = 1
FORGOTTEN_GAPS: Final = 2
GAP_CONTROLS: Final = 3
"""Length of `Gaps.control`."""


class DeltaColumns(NamedTuple):
    """Totals of delta series, one row per series.

    Attributes:
        kind: FREE, NUMBER, EXPLICIT or EXPONENTIAL.
        flags: MONOTONIC, INTEGER, HAS_SUM, SCATTERED, PENDING, RESTING.
        digest: Shape (rows, 16): hash of its identity, see `identity.digest`.
        partition: Number of the partition that its newest message came from.
        key_hash: Hash of the key of its newest message, as in `tables.columns.MessageColumns`.
        moved_ms: Append time at which it last moved from another partition, 0 for never; of a PENDING row, the append
            time of its first point here.
        append_ms: Newest append time of its messages.
        start_ns: When accumulation began.
        begin_ns: Start of the newest point.
        last_ns: Time of the newest point; NOTHING without a total.
        right_ns: Time of the newest point before the producer's clock ran ahead, read or not; 0 if none is known. A
            point that ends before it has been counted or lies in a gap: it does not mean that the clock was corrected.
        shown_ns: Time with which its total was last passed on: the time of the newest point, plus one nanosecond for
            each late point that changed the total. The store orders points by time, so the newer total must have the
            later time.
        total: float64, running total; of a histogram, its sum.
        integer: int64, running total where INTEGER; of a histogram, its count.
        gap: Index of its newest gap, the head of a linked list, or NOTHING.
        gaps: Number of its gaps.
        block: Index of the first word of its buckets, or NOTHING.
        capacity: Number of words in its block.
    """

    kind: UInt8Array
    flags: UInt8Array
    digest: UInt8Array
    partition: Int32Array
    key_hash: Int64Array
    moved_ms: Int64Array
    append_ms: Int64Array
    start_ns: Int64Array
    begin_ns: Int64Array
    last_ns: Int64Array
    right_ns: Int64Array
    shown_ns: Int64Array
    total: FloatArray
    integer: Int64Array
    gap: Int32Array
    gaps: Int32Array
    block: Int64Array
    capacity: Int32Array


class Gaps(NamedTuple):
    """Intervals without points: one linked list per series, newest first, and a list of free entries.

    Attributes:
        begin_ns, end_ns: The missing interval.
        next: Index of the series' next older gap, or NOTHING; of a free entry, the next free entry.
        control: FREE_GAP: first free entry or NOTHING; USED_GAPS: entries ever used; FORGOTTEN_GAPS: gaps dropped
            because the table was full.
    """

    begin_ns: Int64Array
    end_ns: Int64Array
    next: Int32Array
    control: Int64Array


def empty_columns(capacity: int) -> DeltaColumns:
    """Make rows that are all free."""
    kinds: dict[str, Any] = dict.fromkeys(DeltaColumns._fields, np.int64)
    kinds |= dict.fromkeys(("kind", "flags", "digest"), np.uint8)
    kinds |= dict.fromkeys(("partition", "gap", "gaps", "capacity"), np.int32)
    kinds["total"] = np.float64
    shapes = {"digest": (capacity, 16)}
    return DeltaColumns(**{name: np.zeros(shapes.get(name, capacity), kind) for name, kind in kinds.items()})


def longer_columns(columns: DeltaColumns, needed: int) -> DeltaColumns:
    """Copy rows into larger arrays, with free rows after them."""
    longer = empty_columns(grown(len(columns.kind), needed))
    for name in columns._fields:
        source = getattr(columns, name)
        getattr(longer, name)[: len(source)] = source
    return longer


def empty_gaps(capacity: int) -> Gaps:
    """Make a gap table without gaps."""
    control: Int64Array = np.zeros(GAP_CONTROLS, np.int64)
    control[FREE_GAP] = NOTHING
    return Gaps(np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(capacity, np.int32), control)


def longer_gaps(gaps: Gaps, needed: int) -> Gaps:
    """Copy gaps into larger arrays."""
    longer = empty_gaps(needed)
    for name in ("begin_ns", "end_ns", "next"):
        source = getattr(gaps, name)
        getattr(longer, name)[: len(source)] = source
    return longer._replace(control=gaps.control)
