"""Compiled functions that decide whether a point is stored, by its times and its writer; see `judge`."""

from typing import Final, NamedTuple

from kernelcast.bridge.tables.columns import (
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


@inlined
def clamp(time_ns: int, append_ms: int, tolerance_ns: int) -> int:
    """Limit a time to the present; times beyond int64 appear as negative numbers."""
    append_ns = append_ms * NANOSECONDS_PER_MILLISECOND
    if time_ns < 0 or time_ns > append_ns + tolerance_ns:
        return append_ns
    return time_ns


@inlined
def is_ahead(time_ns: int, append_ms: int, tolerance_ns: int) -> bool:
    """Whether a time is in the future."""
    return clamp(time_ns, append_ms, tolerance_ns) != time_ns


@inlined
def clamped_times(
    tables: Tables, wire: int, slot: int, origin: PointOrigin, said: tuple[int, int], tolerance_ns: int
) -> tuple[int, int]:
    """Return a point's start and event time as they are compared and stored.

    A start in the future is invalid and is replaced by the known start. An event time in the future is kept, so that
    the points of a clock that is ahead keep their order, even if they are sent repeatedly.

    Args:
        tables: The columns.
        wire: The point's series number.
        slot: Slot of its series.
        origin: Origin of the point.
        said: Start and event time from the producer.
        tolerance_ns: See `PointRules`.
    """
    series = tables.series
    start_ns, time_ns = said
    since_ns = clamp(start_ns, origin.append_ms, tolerance_ns)
    same = series.state[slot] != EMPTY and series.writer[slot] == tables.wires.writer[wire]
    if since_ns != start_ns and same and series.start_ns[slot] != 0:
        since_ns = series.start_ns[slot]
    return since_ns, time_ns if time_ns >= 0 else origin.append_ms * NANOSECONDS_PER_MILLISECOND


@inlined
def is_corrected(before: tuple[int, int], after: tuple[int, int], tolerance_ns: int) -> bool:
    """Whether a writer's clock was ahead at one point, and was corrected before another point.

    The other point is newer although its time is earlier. Its time is between the append times of both.

    Args:
        before: Event time in nanoseconds and append time in milliseconds of the point of the clock that was ahead.
        after: The same of the other point.
        tolerance_ns: See `PointRules`.
    """
    time_ns, append_ms = after
    right = time_ns <= append_ms * NANOSECONDS_PER_MILLISECOND + tolerance_ns // 2
    return right and time_ns > before[1] * NANOSECONDS_PER_MILLISECOND and is_ahead(before[0], before[1], tolerance_ns)


@inlined
def is_later(tables: Tables, slot: int, time_ns: int, origin: PointOrigin, rules: PointRules) -> bool:
    """Whether a point of a series' own writer is later than the stored one.

    Event times are compared unchanged, in the future or not, unless the clock was corrected between the two points.
    The result does not depend on which of the two is read first, because partitions are read in any order.

    A time in the future in another partition than that of a stored point of a right clock is not later for
    `PointRules.takeover_ms`. Example: a partition has no leader, its series moves, and then its clock is corrected. The
    messages that the producer still holds for the old partition are appended last.
    """
    series, tolerance_ns = tables.series, rules.tolerance_ns
    stored, read = (series.time_ns[slot], series.append_ms[slot]), (time_ns, origin.append_ms)
    if time_ns <= stored[0]:
        return is_corrected(stored, read, tolerance_ns)
    if read[1] < stored[1]:
        return not is_corrected(read, stored, tolerance_ns)
    if origin.partition == series.partition[slot] or read[1] - stored[1] > rules.takeover_ms:
        return True
    return not is_ahead(read[0], read[1], tolerance_ns) or is_ahead(stored[0], stored[1], tolerance_ns)


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
def was_restarted(
    tables: Tables, wire: int, slot: int, origin: PointOrigin, when: tuple[int, int], rules: PointRules
) -> bool:
    """Whether a point of another writer shows that its process began after the last point of the series' writer.

    If the writer had points before the series' writer had any, its start time does not show it where the point may be
    repeated: one of the two clocks may be wrong. Example: a clock is set back by an hour, and another process replaces
    the first. Messages that the former process repeats have a start that is later than all times of the new one. Nor
    does a point show it that was appended before any point of the series' writer: partitions are read in any order.

    A point that is newer than all others of its writer is not repeated. Example: a bridge has read the points of a
    new process only. After an outage, repeated messages of the former process come first, and take the series over.
    """
    series, writers = tables.series, tables.writers
    start_ns, time_ns = when
    if start_ns <= clamp(series.time_ns[slot], series.append_ms[slot], rules.tolerance_ns):
        return False
    owner, other = series.writer[slot], tables.wires.writer[wire]
    if owner != OWN and origin.append_ms < writers.first_ms[owner]:
        return False
    if owner == OWN or writers.first_ms[other] >= writers.first_ms[owner]:
        return True
    same_message = origin.append_ms == writers.append_ms[other] and time_ns == writers.time_ns[other]
    return bool(same_message or clamp(time_ns, origin.append_ms, rules.tolerance_ns) > writers.time_ns[other])


@inlined
def with_older_start(tables: Tables, slot: int, origin: PointOrigin, when: tuple[int, int], rules: PointRules) -> int:
    """Return the outcome of a point whose start is before that of its series.

    A process that was replaced by another one sends no points that are newer than the other's. If its points are
    newer, both run: the one that started later keeps the series as long as it lives.
    """
    start_ns, time_ns = when
    known_start, known_time = tables.series.start_ns[slot], tables.series.time_ns[slot]
    if known_start - start_ns <= SAME_START_NS or time_ns <= known_time:
        return OLDER
    if not is_later(tables, slot, time_ns, origin, rules):
        return OLDER
    return STORED if has_fallen_silent(tables, slot, origin, rules) else SECOND_WRITER


@inlined
def judge(tables: Tables, wire: int, slot: int, origin: PointOrigin, when: tuple[int, int], rules: PointRules) -> int:
    """Decide whether a point is stored: its writer must own the series, and it must be newer than the stored point.

    Points are ordered by start, then event time, then offset. Example with a stored point (start 100, time 160):

        (100, 170)  later: STORED                   (200, 210)  the process was restarted: STORED
        (100, 150)  read again, or late: OLDER      ( 50, 155)  an old point of a former process: OLDER

    Args:
        tables: The columns.
        wire: The point's series number.
        slot: Slot of its series.
        origin: Origin of the point.
        when: Its start and event time, as from `clamped_times`.
        rules: Tolerances.

    Returns:
        STORED, OLDER or SECOND_WRITER.
    """
    series = tables.series
    start_ns, time_ns = when
    if series.state[slot] == EMPTY:
        return STORED
    if series.writer[slot] != tables.wires.writer[wire]:
        free = was_restarted(tables, wire, slot, origin, when, rules) or has_fallen_silent(tables, slot, origin, rules)
        return STORED if free else SECOND_WRITER
    known_start, known_time = series.start_ns[slot], series.time_ns[slot]
    if start_ns != known_start and start_ns != 0 and known_start != 0:  # noqa: PLR1714  numba: no sets
        return STORED if start_ns > known_start else with_older_start(tables, slot, origin, when, rules)
    if time_ns != known_time:
        later = is_later(tables, slot, time_ns, origin, rules)
        return STORED if later else OLDER
    return STORED if origin.partition == series.partition[slot] and origin.offset >= series.offset[slot] else OLDER
