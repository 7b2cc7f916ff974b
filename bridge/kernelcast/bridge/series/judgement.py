"""Compiled functions that decide whether a point is stored, by its times and its writer; see `judge`."""

from typing import Final, NamedTuple

from kernelcast.bridge.tables.columns import (
    AHEAD,
    EMPTY,
    OLDER,
    OWN,
    SECOND_WRITER,
    STORED,
    PointRules,
    ProducerColumns,
    SeriesColumns,
    UInt8Array,
    WireColumns,
    WriterColumns,
)
from kernelcast.columnar.compiled import inlined

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
SILENT_INTERVALS: Final = 1.5
"""A writer has missed a point once it is half an interval late."""
SAME_START_NS: Final = 2_000_000_000
"""Start times closer than this may be the same: some producers compute theirs for each point, in whole seconds."""
SHORTEST_SILENCE_MS: Final = 1_000
"""Shorter gaps do not show that a writer has stopped: batching and pauses of the process delay messages by as much."""


class Tables(NamedTuple):
    """All columns that storing a point changes.

    Attributes:
        series: The slots.
        wires: The slot of each series number of the input.
        producers: Time of each producer's last point.
        writers: Time of each writer's last point, and its interval.
        exposed: Per partition number, whether it has passed its gate.
        growth: Per partition number, UNCHANGED, GROWN or ADDED.
    """

    series: SeriesColumns
    wires: WireColumns
    producers: ProducerColumns
    writers: WriterColumns
    exposed: UInt8Array
    growth: UInt8Array


class PointOrigin(NamedTuple):
    """Origin of a point: partition, offset, append time and key of its message."""

    partition: int
    offset: int
    append_ms: int
    key_hash: int


class PointTimes(NamedTuple):
    """Times of a point.

    Attributes:
        start_ns: Start of its series; 0 for gauges, and where it is not known.
        time_ns: Event time, by which the points of one clock are ordered.
        shown_ns: The same, or the append time of a point of a clock that is ahead.
        ahead: AHEAD for such a point, else 0.
    """

    start_ns: int
    time_ns: int
    shown_ns: int
    ahead: int


@inlined
def times_of(start_ns: int, time_ns: int, flags: int, append_ms: int) -> PointTimes:
    """Return the times of a point."""
    ahead = flags & AHEAD
    return PointTimes(start_ns, time_ns, append_ms * NANOSECONDS_PER_MILLISECOND if ahead else time_ns, ahead)


@inlined
def shown_ns(series: SeriesColumns, slot: int) -> int:
    """Return the time at which the point of a slot is shown."""
    if series.flags[slot] & AHEAD:
        return int(series.append_ms[slot] * NANOSECONDS_PER_MILLISECOND)
    return int(series.time_ns[slot])


@inlined
def is_later(tables: Tables, slot: int, origin: PointOrigin, when: PointTimes, rules: PointRules) -> bool:
    """Whether a point of a series' own writer is later than the stored one.

    Points of a clock that is ahead are compared with each other by that clock, and with those of a right clock by the
    times at which they are shown. The result does not depend on which of the two is read first, because partitions are
    read in any order.

    A point of a clock that is ahead, in another partition than that of a stored point of a right clock, is not later
    for `PointRules.takeover_ms`. Example: a partition has no leader, its series moves, and then its clock is corrected.
    The messages that the producer still holds for the old partition are appended last.
    """
    series = tables.series
    if series.flags[slot] & AHEAD == when.ahead:
        return bool(when.time_ns > series.time_ns[slot])
    late_ms = origin.append_ms - series.append_ms[slot]
    if when.ahead and origin.partition != series.partition[slot] and late_ms <= rules.takeover_ms:
        return False
    return bool(when.shown_ns > shown_ns(series, slot))


@inlined
def is_lag(tables: Tables, partition: int, other: int) -> bool:
    """Whether a gap between append times of two partitions may be lag, because one of them has not caught up."""
    return partition != other and (tables.exposed[partition] == 0 or tables.exposed[other] == 0)


@inlined
def has_fallen_silent(tables: Tables, slot: int, origin: PointOrigin, rules: PointRules) -> bool:
    """Whether a series' writer has stopped, so that another writer may take the series over.

    The labels of a series contain job and instance, so both writers have the same. The writer has stopped when no
    series of it has had a point for `SILENT_INTERVALS` of its intervals, where the gap is no lag, see `is_lag`. In any
    case a series without a point for `PointRules.takeover_ms` is free.
    """
    series, writers = tables.series, tables.writers
    if origin.append_ms - series.append_ms[slot] > rules.takeover_ms:
        return True
    writer, partition = series.writer[slot], series.partition[slot]
    if writer == OWN or writers.interval_ms[writer] == 0:
        return False
    if is_lag(tables, partition, origin.partition):
        return False
    longest_ms = max(SILENT_INTERVALS * writers.interval_ms[writer], SHORTEST_SILENCE_MS)
    return bool(origin.append_ms - writers.append_ms[writer] > longest_ms)


@inlined
def was_restarted(tables: Tables, wire: int, slot: int, origin: PointOrigin, when: PointTimes) -> bool:
    """Whether a point of another writer shows that its process began after the last point of the series' writer.

    If the writer had points before the series' writer had any, its start time does not show it where the point may be
    repeated: one of the two clocks may be wrong. Example: a clock is set back by an hour, and another process replaces
    the first. Messages that the former process repeats have a start that is later than all times of the new one. Nor
    does a point show it that was appended before any point of the series' writer: partitions are read in any order.

    A point that is newer than all others of its writer is not repeated. Example: a bridge has read the points of a
    new process only. After an outage, repeated messages of the former process come first, and take the series over.
    """
    series, writers = tables.series, tables.writers
    if when.start_ns <= shown_ns(series, slot):
        return False
    owner, other = series.writer[slot], tables.wires.writer[wire]
    if owner != OWN and origin.append_ms < writers.first_ms[owner]:
        return False
    if owner == OWN or writers.first_ms[other] >= writers.first_ms[owner]:
        return True
    same_message = origin.append_ms == writers.append_ms[other] and when.shown_ns == writers.time_ns[other]
    return bool(same_message or when.shown_ns > writers.time_ns[other])


@inlined
def with_older_start(tables: Tables, slot: int, origin: PointOrigin, when: PointTimes, rules: PointRules) -> int:
    """Return the outcome of a point whose start is before that of its series.

    A process that was replaced by another one sends no points that are newer than the other's. If its points are
    newer, both run: the one that started later keeps the series as long as it lives.
    """
    if tables.series.start_ns[slot] - when.start_ns <= SAME_START_NS or not is_later(tables, slot, origin, when, rules):
        return OLDER
    return STORED if has_fallen_silent(tables, slot, origin, rules) else SECOND_WRITER


@inlined
def judge(tables: Tables, wire: int, slot: int, origin: PointOrigin, when: PointTimes, rules: PointRules) -> int:
    """Decide whether a point is stored: its writer must own the series, and it must be newer than the stored point.

    Points are ordered by start, then event time, then offset. Example with a stored point (start 100, time 160):

        (100, 170)  later: STORED                   (200, 210)  the process was restarted: STORED
        (100, 150)  read again, or late: OLDER      ( 50, 155)  an old point of a former process: OLDER

    Args:
        tables: The columns.
        wire: The point's series number.
        slot: Slot of its series.
        origin: Origin of the point.
        when: Its times.
        rules: When a series may go to another writer.

    Returns:
        STORED, OLDER or SECOND_WRITER.
    """
    series = tables.series
    if series.state[slot] == EMPTY:
        return STORED
    if series.writer[slot] != tables.wires.writer[wire]:
        free = was_restarted(tables, wire, slot, origin, when) or has_fallen_silent(tables, slot, origin, rules)
        return STORED if free else SECOND_WRITER
    start_ns, known_start = when.start_ns, series.start_ns[slot]
    if start_ns != known_start and start_ns != 0 and known_start != 0:  # noqa: PLR1714  numba: no sets
        return STORED if start_ns > known_start else with_older_start(tables, slot, origin, when, rules)
    if when.time_ns == series.time_ns[slot]:
        return STORED if origin.partition == series.partition[slot] and origin.offset >= series.offset[slot] else OLDER
    return STORED if is_later(tables, slot, origin, when, rules) else OLDER
