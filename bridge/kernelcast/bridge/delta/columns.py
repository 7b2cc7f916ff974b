"""The arrays that hold the running totals, and the codes of what becomes of a delta point."""

from typing import Any, Final, NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import FloatArray, Int32Array, Int64Array, UInt8Array, grown

# What `DeltaColumns.of_wire` holds of a series number, beside its row.
UNSEEN: Final = -1
"""Not looked at yet."""
NOT_DELTA: Final = -2
REFUSED: Final = -3
"""A delta series for which there is no room."""

# What becomes of a point.
ADDED: Final = 0
FIRST: Final = 1
"""It began its series' total."""
GAP: Final = 2
"""Added; between it and the one before something is missing, or the producer was started again."""
FILLED: Final = 3
"""Added; it came late and fitted into a known gap."""
OVERLAP: Final = 4
"""Added; it begins before the last one ended and ends after it."""
CLOCK_SET: Final = 5
"""Added; the last one lay in the future by Kafka's clock, so the producer's clock has been put right."""
BOUNDS_CHANGED: Final = 6
"""The total began anew: a histogram has other bounds."""
OVERFLOW: Final = 7
"""The total began anew: it no longer fitted into 64 bits."""
REPLAYED: Final = 8
"""Not added: its message stands before the offset as of which the total is valid."""
DUPLICATE: Final = 9
"""Not added: start and time of the last one."""
OLDER: Final = 10
"""Not added: it ends before the last one and fits into no known gap."""
NO_VALUE: Final = 11
"""Nothing to add: OTLP's no-recorded-value."""
MALFORMED: Final = 12
SPREAD: Final = 13
"""Not added: its series comes from several partitions, which are read at different speeds."""
LIMIT: Final = 14
PASSED: Final = 15
"""No delta point, passed on as it is."""

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
"""Codes that say that a point's value is in no total and never will be."""

LAST_ADDED: Final = OVERFLOW
"""Codes up to this one say that the point's value is in the total."""

# Kinds of a row.
FREE: Final = 0
NUMBER: Final = 1
EXPLICIT: Final = 2
EXPONENTIAL: Final = 3

# Flags of a row.
MONOTONIC: Final = 1
INTEGER: Final = 2
"""The total is `integer`, exact."""
HAS_SUM: Final = 4
SCATTERED: Final = 8
"""It moves between partitions: nothing of it is exposed."""
PENDING: Final = 16
"""It may continue a total of another replica, which is looked for: nothing of it is exposed yet; see `adoption`."""
RESTING: Final = 32
"""Its series has ended; the total is kept for when the series returns."""

# Which partitions of a topic this replica reads, as far as one of them is concerned.
WHOLE_TOPIC: Final = 0
"""All of them: nothing of its series is anywhere else."""
PART_OF_TOPIC: Final = 1
"""Not all: its series may have gone on in a partition of another replica."""
GROWN_TOPIC: Final = 2
"""Not all, and partitions were added lately: series come from partitions of other replicas."""

NOTHING: Final = -1
"""`last_ns` of a row without a total; a block, a gap or a partition that is none."""

# Slots of `Gaps.control`.
FREE_GAP: Final = 0
USED_GAPS: Final = 1
FORGOTTEN_GAPS: Final = 2
GAP_CONTROLS: Final = 3


class DeltaColumns(NamedTuple):
    """One row per delta series.

    Attributes:
        kind: FREE, NUMBER, EXPLICIT or EXPONENTIAL.
        flags: MONOTONIC, INTEGER, HAS_SUM, SCATTERED, PENDING, RESTING.
        digest: Shape (rows, 16): its identity, see `identity.digest`.
        partition: Where it was read last.
        key_hash: Key of the message that it was read in last, as in `series.columns.MessageColumns`.
        moved_ms: Append time at which it last came from another partition, 0 for never; of a PENDING one, that of its
            first point here.
        append_ms: Newest append time of its messages.
        start_ns: When accumulation began.
        begin_ns: Start of the newest point.
        last_ns: Time of the newest point; NOTHING without a total.
        right_ns: Time of the newest point before the producer's clock ran ahead; 0 where none is known. What ends
            before it has been counted, so it does not show that the clock was put right.
        shown_ns: Time that its total was last shown with: that of the newest point, and a nanosecond more each time a
            late one has changed the total, so that the store takes the newer total for the newer one.
        total: float64, running total; of a histogram, its sum.
        integer: int64, running total where INTEGER; of a histogram, its count.
        gap: First of its gaps, the newest, or NOTHING.
        gaps: How many it has.
        block: Where its buckets start, or NOTHING.
        capacity: Words of its block.
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
    """Intervals of which nothing has come, linked per series from the newest to the oldest.

    Attributes:
        begin_ns, end_ns: What is missing.
        next: The series' next older gap, or NOTHING; of a free one, the next free one.
        control: First free one or NOTHING, how many were ever used, how many were forgotten for want of room.
    """

    begin_ns: Int64Array
    end_ns: Int64Array
    next: Int32Array
    control: Int64Array


def empty_columns(capacity: int) -> DeltaColumns:
    """Rows, all free."""
    kinds: dict[str, Any] = dict.fromkeys(DeltaColumns._fields, np.int64)
    kinds |= dict.fromkeys(("kind", "flags", "digest"), np.uint8)
    kinds |= dict.fromkeys(("partition", "gap", "gaps", "capacity"), np.int32)
    kinds["total"] = np.float64
    shapes = {"digest": (capacity, 16)}
    return DeltaColumns(**{name: np.zeros(shapes.get(name, capacity), kind) for name, kind in kinds.items()})


def longer_columns(columns: DeltaColumns, needed: int) -> DeltaColumns:
    """The same rows with free ones after them."""
    longer = empty_columns(grown(len(columns.kind), needed))
    for name in columns._fields:
        source = getattr(columns, name)
        getattr(longer, name)[: len(source)] = source
    return longer


def empty_gaps(capacity: int) -> Gaps:
    """Room for gaps."""
    control: Int64Array = np.zeros(GAP_CONTROLS, np.int64)
    control[FREE_GAP] = NOTHING
    return Gaps(np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(capacity, np.int32), control)


def longer_gaps(gaps: Gaps, needed: int) -> Gaps:
    """The same gaps with room after them."""
    longer = empty_gaps(needed)
    for name in ("begin_ns", "end_ns", "next"):
        source = getattr(gaps, name)
        getattr(longer, name)[: len(source)] = source
    return longer._replace(control=gaps.control)
