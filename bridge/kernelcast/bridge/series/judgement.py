"""Compiled functions that decide whether a point is stored, and update its series, writer and producer."""

from typing import Final, NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import (
    BY_HOST,
    BY_KEY,
    BY_RESOURCE,
    BY_START_TIME,
    EMPTY,
    NO_KEY,
    OLDER,
    OTHER_REPLICA,
    OWN,
    SECOND_WRITER,
    STORED,
    UNCHANGED,
    MessageColumns,
    ProducerColumns,
    Rules,
    SeriesColumns,
    UInt8Array,
    WireColumns,
    WriterColumns,
)
from kernelcast.bridge.tables.producers import UNLISTED_PRODUCER
from kernelcast.columnar.compiled import inlined

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
LONGEST_INTERVAL_MS: Final = 2**31 - 1
MEMORY_SHIFT: Final = 3
"""The influence of a long gap between two points decreases over 2**3 = 8 times its length."""
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
def arrival(wires: WireColumns, wire: int, messages: MessageColumns, message: int) -> PointOrigin:
    """Return the origin of a point, and record it as the last one of its series number."""
    origin = PointOrigin(
        messages.partition[message], messages.offset[message], messages.append_ms[message], messages.key_hash[message]
    )
    wires.partition[wire] = origin.partition
    wires.key_hash[wire] = origin.key_hash
    wires.append_ms[wire] = max(origin.append_ms, wires.append_ms[wire])
    return origin


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
        tolerance_ns: See `Rules`.
    """
    series = tables.series
    start_ns, time_ns = said
    since_ns = clamp(start_ns, origin.append_ms, tolerance_ns)
    same = series.state[slot] != EMPTY and series.writer[slot] == tables.wires.writer[wire]
    if since_ns != start_ns and same and series.start_ns[slot] != 0:
        since_ns = series.start_ns[slot]
    return since_ns, time_ns if time_ns >= 0 else origin.append_ms * NANOSECONDS_PER_MILLISECOND


@inlined
def is_later(series: SeriesColumns, slot: int, time_ns: int, append_ms: int, tolerance_ns: int) -> bool:
    """Whether a point of a series' own writer is later than the stored one.

    Event times are compared unchanged, in the future or not. But a clock that was ahead may be corrected: a point is
    then newer although its time is earlier, if its time is between the append times of both.
    """
    known_ns, known_append_ms = series.time_ns[slot], series.append_ms[slot]
    if time_ns > known_ns:
        return True
    right = time_ns <= append_ms * NANOSECONDS_PER_MILLISECOND + tolerance_ns // 2
    was_ahead = is_ahead(known_ns, known_append_ms, tolerance_ns)
    return was_ahead and right and time_ns > known_append_ms * NANOSECONDS_PER_MILLISECOND


@inlined
def has_fallen_silent(tables: Tables, slot: int, origin: PointOrigin, rules: Rules) -> bool:
    """Whether a series' writer has stopped, so that another writer may take the series over.

    The labels of a series contain job and instance, so both writers have the same. The writer has stopped when no
    series of it has had a point for `SILENT_INTERVALS` of its intervals. Append times of different partitions are
    compared only once both have caught up: before that, a gap between them is lag. In any case a series without a
    point for `Rules.takeover_ms` is free.
    """
    series, writers = tables.series, tables.writers
    if origin.append_ms - series.append_ms[slot] > rules.takeover_ms:
        return True
    writer, partition = series.writer[slot], series.partition[slot]
    if writer == OWN or writers.interval_ms[writer] == 0:
        return False
    exposed = tables.exposed
    if partition != origin.partition and (exposed[partition] == 0 or exposed[origin.partition] == 0):
        return False
    longest_ms = max(SILENT_INTERVALS * writers.interval_ms[writer], SHORTEST_SILENCE_MS)
    return bool(origin.append_ms - writers.append_ms[writer] > longest_ms)


@inlined
def with_older_start(tables: Tables, slot: int, origin: PointOrigin, when: tuple[int, int], rules: Rules) -> int:
    """Return the outcome of a point whose start is before that of its series.

    A process that was replaced by another one sends no points that are newer than the other's. If its points are
    newer, both run: the one that started later keeps the series as long as it lives.
    """
    start_ns, time_ns = when
    known_start, known_time = tables.series.start_ns[slot], tables.series.time_ns[slot]
    if known_start - start_ns <= SAME_START_NS or time_ns <= known_time:
        return OLDER
    return STORED if has_fallen_silent(tables, slot, origin, rules) else SECOND_WRITER


@inlined
def judge(tables: Tables, wire: int, slot: int, origin: PointOrigin, when: tuple[int, int], rules: Rules) -> int:
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
        last_ns = clamp(series.time_ns[slot], series.append_ms[slot], rules.tolerance_ns)
        free = start_ns > last_ns or has_fallen_silent(tables, slot, origin, rules)
        return STORED if free else SECOND_WRITER
    known_start, known_time = series.start_ns[slot], series.time_ns[slot]
    if start_ns != known_start and start_ns != 0 and known_start != 0:  # noqa: PLR1714  numba: no sets
        return STORED if start_ns > known_start else with_older_start(tables, slot, origin, when, rules)
    if time_ns != known_time:
        later = is_later(series, slot, time_ns, origin.append_ms, rules.tolerance_ns)
        return STORED if later else OLDER
    return STORED if origin.partition == series.partition[slot] and origin.offset >= series.offset[slot] else OLDER


@inlined
def note_producer(producers: ProducerColumns, producer: int, origin: PointOrigin, time_ns: int) -> None:
    """Record the newest times of a producer, and the partition of its last point."""
    producers.append_ms[producer] = max(origin.append_ms, producers.append_ms[producer])
    producers.time_ns[producer] = max(time_ns, producers.time_ns[producer])
    producers.partition[producer] = origin.partition


@inlined
def refused(tables: Tables, wire: int, origin: PointOrigin, time_ns: int, tolerance_ns: int) -> int:
    """Return the reason why a point's series has no slot; if another replica has it, its producer is alive still."""
    outcome: int = -tables.wires.slot[wire]
    if outcome == OTHER_REPLICA:
        note_producer(
            tables.producers, tables.wires.producer[wire], origin, clamp(time_ns, origin.append_ms, tolerance_ns)
        )
    return outcome


@inlined
def learned(interval_ms: int, gap_ms: int, unlearned_ms: int) -> int:
    """Return a series' interval after another gap between append times: the longest gap, decreasing with time.

    A new series starts with `unlearned_ms`, so that its first points, which may come in a burst, do not shorten its
    life. It is 0 while a partition is read again: one time-to-live of points shows each gap that a series survives, and
    an ended series must not live longer here than at its former replica. Points of one message, or older than the known
    ones, change nothing.
    """
    if gap_ms <= 0:
        return interval_ms
    if interval_ms == 0:
        interval_ms = unlearned_ms
    return min(max(gap_ms, interval_ms - (gap_ms >> MEMORY_SHIFT), 1), LONGEST_INTERVAL_MS)


@inlined
def note_append(tables: Tables, writer: int, producer: int, append_ms: int) -> None:
    """Note the append time of a writer's point, learn its interval, and note its producer's host.

    Only the first point of a message has anything to note.
    """
    writers = tables.writers
    known_ms = writers.append_ms[writer]
    if append_ms > known_ms:
        writers.append_ms[writer] = append_ms
        if known_ms > 0:
            gap_ms = append_ms - known_ms
            writers.interval_ms[writer] = learned(writers.interval_ms[writer], gap_ms, gap_ms)
        note_host(tables.producers, producer, writers.host[writer])


@inlined
def note_host(producers: ProducerColumns, producer: int, host: int) -> None:
    """Note the host of a producer's points. A change is a move; a return to the former host means two producers."""
    known = producers.host[producer]
    if host == 0 or host == known or producer == UNLISTED_PRODUCER:  # noqa: PLR1714  numba: no sets
        return
    if host == producers.former_host[producer]:
        producers.conflicts[producer, BY_HOST] += 1
    producers.former_host[producer] = known
    producers.host[producer] = host


@inlined
def note_key(series: SeriesColumns, slot: int, producers: ProducerColumns, producer: int, key_hash: int) -> None:
    """Note the key of a point to be stored. A change is a move; a return to the former key means two producers.

    A producer that uses a new key for each message, to spread its messages, never returns to one.
    """
    known = series.key_hash[slot]
    if key_hash == known or key_hash == NO_KEY or known == NO_KEY:  # noqa: PLR1714, SIM109  numba: no sets
        return
    if np.int32(key_hash) == series.former_key[slot]:
        producers.conflicts[producer, BY_KEY] += 1
    series.former_key[slot] = np.int32(known)


@inlined
def change(  # noqa: PLR0913, PLR0917  compiled into its caller
    tables: Tables, wire: int, slot: int, origin: PointOrigin, when: tuple[int, int], state: int, rules: Rules
) -> int:
    """Write everything of a point that is stored, except its value.

    The series moves to the partition of the point, even if that partition is still hidden: then the series is hidden
    as well until the partition has caught up. Example: another replica has exposed the value 470 from partition 7,
    which is read again here, while 179 from before the series moved is exposed from partition 3. Neither 179 nor the
    340 that comes first from partition 7 may be exposed any longer.

    A point of another partition that was appended before the series' newest point changes the value alone: the series
    has left that partition. Example: a series moved from partition 3 to partition 7 while no bridge ran, and the bridge
    reads partition 7 first. Delta points in partition 3 then still raise the total.

    A series that is new here, in a topic that has grown, is held; see `held`.

    Args:
        tables: The columns to change.
        wire: The point's series number.
        slot: Slot of its series.
        origin: Origin of the point.
        when: Its start and event time.
        state: LIVE or ABSENT.
        rules: Contain the interval that is assumed until the series' own is known.

    Returns:
        The number of changes to the set of exposed series.
    """
    series, wires = tables.series, tables.wires
    known, owner = series.state[slot], series.partition[slot]
    changes = 0
    exposed = tables.exposed
    has_left = known != EMPTY and owner != origin.partition
    has_left = has_left and origin.append_ms < series.append_ms[slot] and when[0] == series.start_ns[slot]
    if not has_left:
        if owner != origin.partition:
            if known == EMPTY or exposed[owner] != exposed[origin.partition]:
                changes += 1
            series.partition[slot] = origin.partition
        series.offset[slot] = origin.offset
    if known != state:
        series.state[slot] = state
        changes += 1
    if known != EMPTY:
        gap_ms = origin.append_ms - series.append_ms[slot]
        unlearned_ms = rules.unlearned_ms if exposed[origin.partition] != 0 else 0
        series.interval_ms[slot] = learned(series.interval_ms[slot], gap_ms, unlearned_ms)
        series.gap_ms[slot] = learned(series.gap_ms[slot], gap_ms, gap_ms)
    elif tables.growth[origin.partition] != UNCHANGED:
        series.held_ms[slot] = max(origin.append_ms, 1)
    series.append_ms[slot] = max(origin.append_ms, series.append_ms[slot])
    series.key_hash[slot] = origin.key_hash
    series.writer[slot] = wires.writer[wire]
    series.start_ns[slot], series.time_ns[slot] = when
    return changes


@inlined
def tried(tables: Tables, wire: int, slot: int, origin: PointOrigin, when: tuple[int, int], rules: Rules) -> int:
    """Call `judge`, and record that producer and writer are alive unless the point was refused as a second writer's.

    Signs that two producers share an identity are counted.
    """
    verdict = judge(tables, wire, slot, origin, when, rules)
    producers, producer, writer = tables.producers, tables.wires.producer[wire], tables.wires.writer[wire]
    if verdict == SECOND_WRITER:
        owner = tables.series.writer[slot]
        if owner != OWN:
            producers.conflicts[producer, BY_START_TIME if owner == writer else BY_RESOURCE] += 1
        return verdict
    note_append(tables, writer, producer, origin.append_ms)
    note_producer(producers, producer, origin, clamp(when[1], origin.append_ms, rules.tolerance_ns))
    if verdict == STORED:
        note_key(tables.series, slot, producers, producer, origin.key_hash)
    return verdict
