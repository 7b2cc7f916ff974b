"""Compiled functions that decide whether a point is stored, by its times and its writer; see `judge`."""

from typing import Final

from kernelcast.bridge.series.arrival import NANOSECONDS_PER_MILLISECOND, Arrival, Tables, is_lag
from kernelcast.bridge.tables.columns import (
    AHEAD,
    EMPTY,
    OLDER,
    OWN,
    SECOND_WRITER,
    STORED,
    PointRules,
    SeriesColumns,
)
from kernelcast.columnar.compiled import inlined

SILENT_INTERVALS: Final = 1.5
"""A writer has missed a point once it is half an interval late."""
SAME_START_NS: Final = 2_000_000_000
"""Start times closer than this count as the same: producers compute theirs for each point from a clock that is
adjusted, in whole seconds. A process that was restarted so soon is known by its times, which are later, too."""
SHORTEST_SILENCE_MS: Final = 1_000
"""Shorter gaps do not show that a writer has stopped: batching and pauses of the process delay messages by as much."""


@inlined
def shown_ns(series: SeriesColumns, slot: int) -> int:
    """Return the time at which the point of a slot is shown."""
    if series.flags[slot] & AHEAD:
        return int(series.append_ms[slot] * NANOSECONDS_PER_MILLISECOND)
    return int(series.time_ns[slot])


@inlined
def is_later(tables: Tables, slot: int, point: Arrival, rules: PointRules) -> bool:
    """Whether a point of a series' own writer is later than the stored one.

    Points of a clock that is ahead are compared with each other by that clock, and with those of a right clock by the
    times at which they are shown. The result does not depend on which of the two is read first, because partitions are
    read in any order.

    A point of a clock that is ahead, in another partition than that of a stored point of a right clock, is not later
    for `PointRules.takeover_ms`. Example: a partition has no leader, its series moves, and then its clock is corrected.
    The messages that the producer still holds for the old partition are appended last.
    """
    series = tables.series
    if series.flags[slot] & AHEAD == point.ahead:
        return bool(point.time_ns > series.time_ns[slot])
    late_ms = point.append_ms - series.append_ms[slot]
    if point.ahead and point.partition != series.partition[slot] and late_ms <= rules.takeover_ms:
        return False
    return bool(point.shown_ns > shown_ns(series, slot))


@inlined
def has_fallen_silent(tables: Tables, slot: int, point: Arrival, rules: PointRules) -> bool:
    """Whether a series' writer has stopped, so that another writer may take the series over.

    The labels of a series contain job and instance, so both writers have the same. The writer has stopped when no
    series of it has had a point for `SILENT_INTERVALS` of its intervals, where the gap is no lag, see `is_lag`. In any
    case a series without a point for `PointRules.takeover_ms` is free.
    """
    series, writers = tables.series, tables.writers
    if point.append_ms - series.append_ms[slot] > rules.takeover_ms:
        return True
    writer, partition = series.writer[slot], series.partition[slot]
    if writer == OWN or writers.interval_ms[writer] == 0:
        return False
    if is_lag(tables, partition, point.partition):
        return False
    longest_ms = max(SILENT_INTERVALS * writers.interval_ms[writer], SHORTEST_SILENCE_MS)
    return bool(point.append_ms - writers.append_ms[writer] > longest_ms)


@inlined
def was_restarted(tables: Tables, wire: int, slot: int, point: Arrival) -> bool:
    """Whether a point of another writer shows that its process began after the last point of the series' writer.

    If the writer had points before the series' writer had any, its start time does not show it where the point may be
    repeated: one of the two clocks may be wrong. Example: a clock is set back by an hour, and another process replaces
    the first. Messages that the former process repeats have a start that is later than all times of the new one. Nor
    does a point show it that was appended before any point of the series' writer: partitions are read in any order.

    A point that is newer than all others of its writer is not repeated. Example: a bridge has read the points of a
    new process only. After an outage, repeated messages of the former process come first, and take the series over.
    """
    series, writers = tables.series, tables.writers
    if point.start_ns <= shown_ns(series, slot):
        return False
    owner, other = series.writer[slot], tables.wires.writer[wire]
    if owner != OWN and point.append_ms < writers.first_ms[owner]:
        return False
    if owner == OWN or writers.first_ms[other] >= writers.first_ms[owner]:
        return True
    same_message = point.append_ms == writers.append_ms[other] and point.shown_ns == writers.time_ns[other]
    return bool(same_message or point.shown_ns > writers.time_ns[other])


@inlined
def with_older_start(tables: Tables, slot: int, point: Arrival, rules: PointRules) -> int:
    """Return the outcome of a point whose start is before that of its series.

    A process that was replaced by another one sends no points that are newer than the other's. If its points are
    newer, two processes run under one identity: the one that started later keeps the series as long as it lives.
    """
    if not is_later(tables, slot, point, rules):
        return OLDER
    return STORED if has_fallen_silent(tables, slot, point, rules) else SECOND_WRITER


@inlined
def judge(tables: Tables, wire: int, point: Arrival, rules: PointRules) -> int:
    """Decide whether a point is stored: its writer must own the series, and it must be newer than the stored point.

    Points are ordered by start, then event time, then offset, where starts within `SAME_START_NS` are one. Example
    in seconds, with a stored point (start 100, time 160):

        (100, 170)  later: STORED                   (200, 210)  the process was restarted: STORED
        (100, 150)  read again, or late: OLDER      ( 50, 155)  an old point of a former process: OLDER

    Args:
        tables: The columns.
        wire: The point's series number.
        point: The point.
        rules: When a series may go to another writer.

    Returns:
        STORED, OLDER, SECOND_WRITER, or the reason why its series has no slot.
    """
    series, slot = tables.series, tables.wires.slot[wire]
    if slot < 0:
        return -int(slot)
    if series.state[slot] == EMPTY:
        return STORED
    if series.writer[slot] != tables.wires.writer[wire]:
        free = was_restarted(tables, wire, slot, point) or has_fallen_silent(tables, slot, point, rules)
        return STORED if free else SECOND_WRITER
    start_ns, known_start = point.start_ns, series.start_ns[slot]
    if start_ns != 0 and known_start != 0 and abs(start_ns - known_start) > SAME_START_NS:
        return STORED if start_ns > known_start else with_older_start(tables, slot, point, rules)
    if point.time_ns == series.time_ns[slot]:
        return STORED if point.partition == series.partition[slot] and point.offset >= series.offset[slot] else OLDER
    return STORED if is_later(tables, slot, point, rules) else OLDER
