"""Arrays of the store, one row per series, label set, producer and so on; and the codes in them."""

from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
UInt8Array = NDArray[np.uint8]
FloatArray = NDArray[np.float64]

FREE: Final = 0
"""State of a slot that holds no series."""
EMPTY: Final = 1
"""Admitted, without a value yet."""
LIVE: Final = 2
"""Has a value."""
ABSENT: Final = 3
"""Its producer has marked it as having no value (OTLP's no-recorded-value); older points do not restore it."""

INTEGER: Final = 1
"""Flag of a slot: its value is `integer`, exact; otherwise `value`."""
HAS_SUM: Final = 4
"""Flag of a histogram's slot: `value` is the sum of its observations."""

AHEAD: Final = 16
"""Flag of a point, and of the slot that holds it: its producer's clock is ahead, and it is shown at its append time."""

OWN: Final = -1
"""Writer of a slot that the bridge itself writes."""

WITHDRAWN: Final = -1
"""`held_ms` of a series that is overdue in a topic that has grown: it may continue on another replica."""

NO_KEY: Final = 0
"""Key hash of messages without a key, until it is known that they are kept; and of a series without a point."""

NOT_A_HISTOGRAM: Final = -1
"""Schema of series with one value."""
EXPONENTIAL: Final = 0
"""Schema of exponential histograms, stored as blocks (see `exponential`); text shows the bounds of `wire.histogram`."""
NO_BOUNDS: Final = 1
"""Schema of histograms with count and sum only."""

# Outcomes of a point. `WireColumns.slot` has the negative of a code if the series is refused.
STORED: Final = 0
UNKNOWN: Final = 1
"""Of a series number that the store has not seen: it is admitted with its first point."""
WIRE_ONLY: Final = 2
"""The catalogue marks the metric for the wire only."""
TEMPORALITY: Final = 3
"""A sum or histogram without temporality."""
TYPE_CONFLICT: Final = 4
"""A metric of another kind has its name."""
SERIES_LIMIT: Final = 5
"""With it, the lines of all series would exceed their limit."""
METRIC_LIMIT: Final = 6
"""With it, the lines of its metric would exceed their limit."""
UNNAMED: Final = 7
"""Its name has no legal character."""
LABELS_TOO_LONG: Final = 8
"""Its rendered labels are longer than `attributes.LONGEST_LABELS_BYTES`."""
OLDER: Final = 9
"""The stored point is newer, see `judgement.judge`."""
SECOND_WRITER: Final = 10
"""Another live writer owns the series."""
MALFORMED_HISTOGRAM: Final = 11
"""Its buckets do not add up to its count, or its bounds do not rise."""
PRODUCER_LIMIT: Final = 12
"""With it, the lines of its producer would exceed their limit."""
NAME_CONFLICT: Final = 13
"""Another metric, with another name on the wire, has its name and labels; see `metric_names`."""
DELTA: Final = 14
"""A sum or histogram of differences; its message goes to the dead letters."""
OUTCOMES: Final = 15
"""Number of outcomes; the codes from here on count in addition to one."""
MEMBERSHIP: Final = 15
"""Greater than 0 if the set of exposed series has changed."""
COUNTS: Final = 16
"""Length of arrays of counts."""

# Growth state of a partition.
UNCHANGED: Final = 0
"""No partitions were added to the topic recently, or all of its partitions are read here."""
GROWN: Final = 1
"""The partition existed before others were added: its series may move to another replica."""
ADDED: Final = 2
"""The partition was added: series may come to it from another replica's partition."""

# Signs that two live producers share one identity, a job and an instance: columns of `ProducerColumns.conflicts`.
BY_RESOURCE: Final = 0
"""A point was refused because another resource (or format) writes its series."""
BY_START_TIME: Final = 1
"""A point was refused because its series began later, yet the point is newer: two start times are in use."""
BY_KEY: Final = 2
"""A series returned to the message key, or the partition, that it came under before the last one."""
BY_HOST: Final = 3
"""A producer returned to the host that it came from before the last one."""
SIGNS: Final = ("resource", "start_time", "key", "host")
"""Values of the label `sign`, indexed by the numbers above."""

DISCARD_CAUSES: Final = {
    WIRE_ONLY: "wire_only",
    TEMPORALITY: "temporality",
    TYPE_CONFLICT: "type_conflict",
    SERIES_LIMIT: "series_limit",
    METRIC_LIMIT: "metric_limit",
    UNNAMED: "unnamed",
    LABELS_TOO_LONG: "labels_too_long",
    OLDER: "older",
    SECOND_WRITER: "second_writer",
    MALFORMED_HISTOGRAM: "malformed_histogram",
    PRODUCER_LIMIT: "producer_limit",
    NAME_CONFLICT: "name_conflict",
    DELTA: "delta",
}
"""Values of the label `cause` of the counter of discarded points."""


class SeriesColumns(NamedTuple):
    """Slots, one row per series; a histogram with all its buckets is one series.

    Attributes:
        value: float64; of a histogram, its sum.
        integer: int64, exact value where INTEGER; of a histogram, its count.
        start_ns: Start of the cumulative series, 0 for gauges.
        time_ns: Event time of the value by its producer's clock, which may be ahead.
        offset: Offset of its message.
        append_ms: Broker's append time of that message.
        hashed: Hash of the family's name and the labels, the same in every process.
        key_hash: Hash of the key of that message, as in `MessageColumns`.
        former_key: Low half of the key hash before the last change of `key_hash`; 0 before the first change.
        block: Index of its first bucket count, -1 if it has none; `exponential` describes exponential blocks.
        writer: Number of the resource and scope that write it; OWN if the bridge writes it.
        producer: Number of the job and instance that it was admitted for.
        label_set: Number of its labels.
        interval_ms: Longest interval between its points, by append time, as `judgement` learns it; 0 before two points.
        gap_ms: The same without `PointRules.unlearned_ms`: only the gaps that were seen.
        last_gap_ms: The last gap between its points, by append time; 0 before two points.
        usual_gap_ms: The shorter one of its last two gaps, so that one missed point does not count.
        held_ms: Append time of its first point here while it is held, because the replica with its former partition may
            still expose it; WITHDRAWN while it is hidden because it may have moved to another replica; else 0.
        partition: Number of the partition that owns it, -1 for none.
        family: Number of its family.
        schema: Number of its bounds; NOT_A_HISTOGRAM for other kinds.
        state: FREE, EMPTY, LIVE or ABSENT.
        flags: INTEGER, HAS_SUM, AHEAD.
    """

    value: FloatArray
    integer: Int64Array
    start_ns: Int64Array
    time_ns: Int64Array
    offset: Int64Array
    append_ms: Int64Array
    hashed: Int64Array
    key_hash: Int64Array
    former_key: Int32Array
    block: Int64Array
    writer: Int32Array
    producer: Int32Array
    label_set: Int32Array
    interval_ms: Int32Array
    gap_ms: Int32Array
    last_gap_ms: Int32Array
    usual_gap_ms: Int32Array
    held_ms: Int64Array
    partition: Int32Array
    family: Int32Array
    schema: Int32Array
    state: UInt8Array
    flags: UInt8Array


class LabelSetColumns(NamedTuple):
    """Label sets, one row per set.

    Attributes:
        offset: Index of its first byte in the arena.
        length: Number of bytes.
        refs: Number of series that have it; 0 if the row is free.
        hashed: 31 bits of this process's hash of its bytes.
    """

    offset: Int64Array
    length: Int32Array
    refs: Int32Array
    hashed: Int32Array


class WireColumns(NamedTuple):
    """Series numbers of one input, one row per number.

    Attributes:
        slot: The slot it maps to, or the negative of the code of the reason why it has none.
        partition: Partition of its newest message.
        append_ms: Append time of its newest message.
        key_hash: Hash of the key of its newest message, as in `MessageColumns`.
        writer: Number of its resource and scope.
        producer: Number of its job and instance.
        cumulative: Whether its start time counts.
    """

    slot: Int32Array
    partition: Int32Array
    append_ms: Int64Array
    key_hash: Int64Array
    writer: Int32Array
    producer: Int32Array
    cumulative: UInt8Array


class ProducerColumns(NamedTuple):
    """Producers, one row per job and instance.

    Attributes:
        append_ms: Newest append time of its points, whether stored or refused as older; 0 before the first.
        time_ns: Newest event time of its points.
        partition: Partition of its last point, -1 before the first.
        host: Hash of the host of its last point; 0 if it is not known.
        former_host: Hash of the host before that.
        conflicts: Shape (producers, len(SIGNS)): signs of a shared identity, since they were last collected.
        ahead: Number of its points with the flag AHEAD, since they were last collected.
    """

    append_ms: Int64Array
    time_ns: Int64Array
    partition: Int32Array
    host: Int32Array
    former_host: Int32Array
    conflicts: Int64Array
    ahead: Int64Array


NEVER: Final = np.iinfo(np.int64).max
"""Later than every append time."""


class WriterColumns(NamedTuple):
    """Writers, one row per resource and scope, or per format, job and instance.

    Attributes:
        append_ms: Newest append time of its points that were not refused as a second writer's; 0 before the first.
        first_ms: Oldest such append time; NEVER before the first point.
        time_ns: Newest time at which one of these points is shown, see `arrival.Arrival`.
        interval_ms: Longest gap between such append times, decreasing with time; 0 before two points.
        host: Hash of the host that its resource names; 0 if it names none.
        partition: Number of the partition of the point with the newest append time.
    """

    append_ms: Int64Array
    first_ms: Int64Array
    time_ns: Int64Array
    interval_ms: Int32Array
    host: Int32Array
    partition: Int32Array


class MessageColumns(NamedTuple):
    """Messages of a batch, one row per message.

    Attributes:
        partition: Number of its partition.
        offset: Its offset.
        append_ms: Its append time.
        key_hash: Hash of its topic, partition and key, see `partitions.tombstones`; without a key, of its topic.
    """

    partition: Int32Array
    offset: Int64Array
    append_ms: Int64Array
    key_hash: Int64Array


class PointRules(NamedTuple):
    """Rules for accepting points and for expiring series.

    Attributes:
        takeover_ms: Longest time without a point after which another writer takes a series over; see
            `judgement.has_fallen_silent`.
        unlearned_ms: Interval that is assumed before a series' own is known.
        missed_intervals: Number of its own intervals without a point after which a series has ended.
        floor_ms: Shortest time after its last point at which a series ends.
    """

    takeover_ms: int
    unlearned_ms: int = 60_000
    missed_intervals: int = 5
    floor_ms: int = 60_000


C = TypeVar("C", SeriesColumns, WireColumns, ProducerColumns, WriterColumns, LabelSetColumns)


def empty_series(capacity: int) -> SeriesColumns:
    """Make slots that are all free."""
    kinds: dict[str, type] = {"value": np.float64, "state": np.uint8, "flags": np.uint8}
    kinds |= dict.fromkeys(("former_key", "writer", "producer", "label_set", "partition", "family", "schema"), np.int32)
    kinds |= dict.fromkeys(("interval_ms", "gap_ms", "last_gap_ms", "usual_gap_ms"), np.int32)
    arrays: dict[str, Any] = {name: np.zeros(capacity, kinds.get(name, np.int64)) for name in SeriesColumns._fields}
    return SeriesColumns(**arrays)


def empty_wires(capacity: int) -> WireColumns:
    """Make rows of series numbers that are all unknown."""
    return WireColumns(
        np.full(capacity, -UNKNOWN, np.int32),
        np.full(capacity, -1, np.int32),
        np.zeros(capacity, np.int64),
        np.full(capacity, NO_KEY, np.int64),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.uint8),
    )


def empty_label_sets(capacity: int) -> LabelSetColumns:
    """Make rows of label sets that are all free."""
    return LabelSetColumns(np.zeros(capacity, np.int64), *(np.zeros(capacity, np.int32) for _ in range(3)))


def empty_producers(capacity: int) -> ProducerColumns:
    """Make rows of producers without points."""
    return ProducerColumns(
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.full(capacity, -1, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros((capacity, len(SIGNS)), np.int64),
        np.zeros(capacity, np.int64),
    )


def empty_writers(capacity: int) -> WriterColumns:
    """Make rows of writers without points."""
    times, small = np.zeros((3, capacity), np.int64), np.zeros((3, capacity), np.int32)
    return WriterColumns(*times, *small)._replace(first_ms=np.full(capacity, NEVER, np.int64))


def copy_into(larger: C, smaller: C) -> C:
    """Copy the rows of the smaller columns to the start of the larger ones, and return those."""
    for name in larger._fields:
        source = getattr(smaller, name)
        getattr(larger, name)[: len(source)] = source
    return larger


def grown(capacity: int, needed: int) -> int:
    """Return the next capacity: 1.5 times the present one, so that a million series do not take room for two."""
    return max(needed, capacity + capacity // 2 + 1024)
