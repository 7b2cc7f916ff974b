"""The arrays that hold the series, and the codes that stand in them."""

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
"""Its producer said that it has no value now (OTLP's no-recorded-value); older points do not bring it back."""

INTEGER: Final = 1
"""Flag of a slot: its value is `integer`, exact; otherwise `value`."""
HAS_SUM: Final = 4
"""Flag of a histogram's slot: `value` is the sum of its observations."""

OWN: Final = -1
"""Writer of a slot that the bridge itself writes."""

NO_KEY: Final = 0
"""Key hash of what came without a key."""

NOT_A_HISTOGRAM: Final = -1
EXPONENTIAL: Final = 0
"""Schema of exponential histograms, kept as they came (see `exponential`); in text, the ladder of `wire.histogram`."""
NO_BOUNDS: Final = 1
"""Schema of histograms that bring count and sum alone."""

# What becomes of a point; the negative of a refusal stands in `WireColumns.slot` for a series that is not stored.
STORED: Final = 0
UNKNOWN: Final = 1
WIRE_ONLY: Final = 2
TEMPORALITY: Final = 3
TYPE_CONFLICT: Final = 4
SERIES_LIMIT: Final = 5
METRIC_LIMIT: Final = 6
UNNAMED: Final = 7
LABELS_TOO_LONG: Final = 8
OLDER: Final = 9
SECOND_WRITER: Final = 10
MALFORMED_HISTOGRAM: Final = 11
OTHER_REPLICA: Final = 12
"""Not an error: another replica keeps this series."""
PRODUCER_LIMIT: Final = 13
OUTCOMES: Final = 14
CLAMPED: Final = 14
"""Counted beside the outcome: the point's time was too far in the future and was set to its append time."""
MEMBERSHIP: Final = 15
"""Above 0: which series are exposed has changed."""
COUNTS: Final = 16

# What is known of a partition since its topic has got more partitions.
UNCHANGED: Final = 0
"""The topic has had these partitions all the time, or all of them are read here."""
GROWN: Final = 1
"""The partition was there before others were added: its series may move to another replica."""
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
"""Values of the label `sign`, by these numbers; `delta` adds `overlap`."""

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
}
"""Values of the label `cause` of the counter of discarded points."""


class SeriesColumns(NamedTuple):
    """One row per slot; a slot is one series, or one histogram with all its buckets.

    Attributes:
        value: float64; of a histogram, its sum.
        integer: int64, exact value where INTEGER; of a histogram, its count.
        start_ns: Start of the cumulative series, 0 for gauges.
        time_ns: Event time of the value as its producer says, which may lie in the future.
        offset: Offset of the message that brought it.
        append_ms: Broker's append time of that message.
        hashed: Hash of the family's name and the labels, the same in every process.
        key_hash: Key of the message that brought it, as in `MessageColumns`.
        former_key: Low half of the key hash before the last change of `key_hash`; 0 before the first change.
        block: Where its bucket counts start, -1 without; exponential ones as `exponential` lays them out.
        writer: Number of the resource and scope that write it; OWN.
        producer: Number of the job and instance that it was admitted for.
        label_set: Number of its labels.
        interval_ms: How far apart its points are at most, by append time, as `judgement` learns it; 0 before two.
        gap_ms: The same without `Rules.unlearned_ms`: nothing but the gaps that were seen.
        held_ms: Append time of its first point here, while it is held: it may still be exposed by the replica that has
            its former partition; 0 where it is not held.
        partition: Number of the partition that owns it, -1 for none.
        family: Number of its family.
        schema: Number of its bounds, NOT_A_HISTOGRAM without.
        state: FREE, EMPTY, LIVE or ABSENT.
        flags: INTEGER, HAS_SUM.
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
    held_ms: Int64Array
    partition: Int32Array
    family: Int32Array
    schema: Int32Array
    state: UInt8Array
    flags: UInt8Array


class LabelSetColumns(NamedTuple):
    """One row per set of labels.

    Attributes:
        offset: Where its bytes start in the arena.
        length: How many they are.
        refs: Series that have it; 0 where the row is free.
        hashed: 31 bits of this process's hash of its bytes.
    """

    offset: Int64Array
    length: Int32Array
    refs: Int32Array
    hashed: Int32Array


class WireColumns(NamedTuple):
    """One row per series number of an input.

    Attributes:
        slot: The slot it maps to, or the negative of the reason why it has none.
        partition: Where it was last seen.
        append_ms: When it was last seen.
        key_hash: Key of the message that it was last seen in, as in `MessageColumns`.
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
    """One row per producer: a job and an instance.

    Attributes:
        append_ms: Newest append time of its points, stored or older than what is stored; 0 before the first.
        time_ns: Newest event time of them.
        partition: Where the last of them came from, -1 before the first.
        host: Hash of the host that the last of them came from; 0 where none is known.
        former_host: The one before it.
        conflicts: Shape (producers, len(SIGNS)): signs of a shared identity, since they were last collected.
    """

    append_ms: Int64Array
    time_ns: Int64Array
    partition: Int32Array
    host: Int32Array
    former_host: Int32Array
    conflicts: Int64Array


class WriterColumns(NamedTuple):
    """One row per writer: a resource with a scope, or a format with a job and an instance.

    Attributes:
        append_ms: Newest append time of its points that were not refused as a second writer's; 0 before the first.
        interval_ms: Longest gap between such append times, which decreases as time passes; 0 before two.
        host: Hash of the host that its resource names; 0 where it names none.
    """

    append_ms: Int64Array
    interval_ms: Int32Array
    host: Int32Array


class MessageColumns(NamedTuple):
    """One row per message of a batch.

    Attributes:
        partition: Number of its partition.
        offset: Its offset.
        append_ms: Its append time.
        key_hash: Of its topic, partition and key, as `partitions.tombstones` makes it; NO_KEY without a key.
    """

    partition: Int32Array
    offset: Int64Array
    append_ms: Int64Array
    key_hash: Int64Array


class Rules(NamedTuple):
    """What points and silence are judged by, beside a series' own columns.

    Attributes:
        tolerance_ns: How far ahead of its append time an event time may lie.
        takeover_ms: Another writer takes a series over at the latest when it has had no point for this long; see
            `judgement.has_fallen_silent`.
        unlearned_ms: The interval that a series is taken to have before its own is known.
        missed_intervals: A series that misses so many of its own intervals has ended.
        floor_ms: But none ends earlier than so long after its last point.
    """

    tolerance_ns: int
    takeover_ms: int
    unlearned_ms: int = 60_000
    missed_intervals: int = 5
    floor_ms: int = 60_000


C = TypeVar("C", SeriesColumns, WireColumns, ProducerColumns, WriterColumns, LabelSetColumns)


def empty_series(capacity: int) -> SeriesColumns:
    """Slots, all free."""
    kinds: dict[str, type] = {"value": np.float64, "state": np.uint8, "flags": np.uint8}
    kinds |= dict.fromkeys(
        ("former_key", "writer", "producer", "label_set", "interval_ms", "gap_ms", "partition", "family", "schema"),
        np.int32,
    )
    arrays: dict[str, Any] = {name: np.zeros(capacity, kinds.get(name, np.int64)) for name in SeriesColumns._fields}
    return SeriesColumns(**arrays)


def empty_wires(capacity: int) -> WireColumns:
    """Series numbers, all unknown."""
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
    """Rows for sets of labels, all free."""
    return LabelSetColumns(np.zeros(capacity, np.int64), *(np.zeros(capacity, np.int32) for _ in range(3)))


def empty_producers(capacity: int) -> ProducerColumns:
    """Producers of which nothing has come."""
    return ProducerColumns(
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.full(capacity, -1, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros((capacity, len(SIGNS)), np.int64),
    )


def empty_writers(capacity: int) -> WriterColumns:
    """Writers of which no point has come."""
    return WriterColumns(np.zeros(capacity, np.int64), np.zeros(capacity, np.int32), np.zeros(capacity, np.int32))


def copy_into(larger: C, smaller: C) -> C:
    """The larger columns with the smaller ones' rows at their start."""
    for name in larger._fields:
        source = getattr(smaller, name)
        getattr(larger, name)[: len(source)] = source
    return larger


def grown(capacity: int, needed: int) -> int:
    """The next capacity: half as much again, so that a million series do not cost two."""
    return max(needed, capacity + capacity // 2 + 1024)
