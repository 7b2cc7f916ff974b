"""What becomes of a point: whose it is, whether it is its series' newest, and what it changes beside the value."""

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
from kernelcast.bridge.tables.producers import NOBODY
from kernelcast.columnar.compiled import inlined

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
LONGEST_INTERVAL_MS: Final = 2**31 - 1
MEMORY_SHIFT: Final = 3
"""A long gap between two points is forgotten over 2**3 = 8 times its length."""
SILENT_INTERVALS: Final = 1.5
"""A writer has missed a point that is half an interval late."""
SAME_START_NS: Final = 2_000_000_000
"""Start times this near to each other may be one: some producers compute theirs for each point, in whole seconds."""
SHORTEST_SILENCE_MS: Final = 1_000
"""No shorter gap shows that a writer has stopped: batching and pauses of the process delay messages by as much."""


class Tables(NamedTuple):
    """All that points change.

    Attributes:
        series: The slots.
        wires: Where each of the input's series goes.
        producers: When something last came from each producer.
        writers: When something last came from each writer, and how often it comes.
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
    """Where a point came from."""

    partition: int
    offset: int
    append_ms: int
    key_hash: int


@inlined
def arrival(wires: WireColumns, wire: int, messages: MessageColumns, message: int) -> PointOrigin:
    """Where a point came from, noted as where, when and under which key its wire identity was last seen."""
    origin = PointOrigin(
        messages.partition[message], messages.offset[message], messages.append_ms[message], messages.key_hash[message]
    )
    wires.partition[wire] = origin.partition
    wires.key_hash[wire] = origin.key_hash
    wires.append_ms[wire] = max(origin.append_ms, wires.append_ms[wire])
    return origin


@inlined
def clamp(time_ns: int, append_ms: int, tolerance_ns: int) -> int:
    """A time that is not in the future; times beyond int64 arrive as negative ones."""
    append_ns = append_ms * NANOSECONDS_PER_MILLISECOND
    if time_ns < 0 or time_ns > append_ns + tolerance_ns:
        return append_ns
    return time_ns


@inlined
def is_ahead(time_ns: int, append_ms: int, tolerance_ns: int) -> bool:
    """Whether a time lies in the future."""
    return clamp(time_ns, append_ms, tolerance_ns) != time_ns


@inlined
def clamped_times(
    tables: Tables, wire: int, slot: int, origin: PointOrigin, said: tuple[int, int], tolerance_ns: int
) -> tuple[int, int]:
    """A point's start and event time, as they are compared and kept.

    A start in the future says nothing, so it is taken for the known one. An event time in the future is kept, so that
    the points of a clock that is ahead keep their order among themselves, however often they are sent.

    Args:
        tables: What is known.
        wire: The point's series number.
        slot: Its series.
        origin: Where it came from.
        said: Its start and event time as its producer says.
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
    """Whether a point of a series' own writer lies after its known one.

    Event times are compared as they are, in the future or not. But a clock that was ahead may be put right: then points
    are new although they seem older, if they lie between the append times of both.
    """
    known_ns, known_append_ms = series.time_ns[slot], series.append_ms[slot]
    if time_ns > known_ns:
        return True
    right = time_ns <= append_ms * NANOSECONDS_PER_MILLISECOND + tolerance_ns // 2
    was_ahead = is_ahead(known_ns, known_append_ms, tolerance_ns)
    return was_ahead and right and time_ns > known_append_ms * NANOSECONDS_PER_MILLISECOND


@inlined
def has_fallen_silent(tables: Tables, slot: int, origin: PointOrigin, rules: Rules) -> bool:
    """Whether a series' writer has stopped, so that the point of another one may take the series over.

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
    """What becomes of a point that began before its series.

    A process that has been replaced by another one sends no points that are newer than the other's. Where they are
    newer, both run: the one that began later keeps the series as long as it lives.
    """
    start_ns, time_ns = when
    known_start, known_time = tables.series.start_ns[slot], tables.series.time_ns[slot]
    if known_start - start_ns <= SAME_START_NS or time_ns <= known_time:
        return OLDER
    return STORED if has_fallen_silent(tables, slot, origin, rules) else SECOND_WRITER


@inlined
def judge(tables: Tables, wire: int, slot: int, origin: PointOrigin, when: tuple[int, int], rules: Rules) -> int:
    """Whether a point is its series' newest: by start, event time, then offset; and whether its writer may write it.

    Args:
        tables: What is known.
        wire: The point's series number.
        slot: Its series.
        origin: Where it came from.
        when: Its start and event time, as from `clamped_times`.
        rules: What is tolerated.

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
    """Note a sign of life of a producer."""
    producers.append_ms[producer] = max(origin.append_ms, producers.append_ms[producer])
    producers.time_ns[producer] = max(time_ns, producers.time_ns[producer])
    producers.partition[producer] = origin.partition


@inlined
def refused(tables: Tables, wire: int, origin: PointOrigin, time_ns: int, tolerance_ns: int) -> int:
    """Why a point's series has no slot; one that another replica keeps is a sign of life all the same."""
    outcome: int = -tables.wires.slot[wire]
    if outcome == OTHER_REPLICA:
        note_producer(
            tables.producers, tables.wires.producer[wire], origin, clamp(time_ns, origin.append_ms, tolerance_ns)
        )
    return outcome


@inlined
def learned(interval_ms: int, gap_ms: int, unlearned_ms: int) -> int:
    """A series' interval after another gap between append times: the longest one, ever less of it as time passes.

    A new series begins with `unlearned_ms`, so that the first points, which may come in a burst, do not shorten its
    life. It is 0 while a partition is read again: one time-to-live of points shows each gap that a series survives, and
    a series that has ended must not live longer here than where it was read before. Points of one message, or from
    before what is known, teach nothing.
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
    """Note where a producer's points come from: once from another host is a move, back again is a second producer."""
    known = producers.host[producer]
    if host == 0 or host == known or producer == NOBODY:  # noqa: PLR1714  numba: no sets
        return
    if host == producers.former_host[producer]:
        producers.conflicts[producer, BY_HOST] += 1
    producers.former_host[producer] = known
    producers.host[producer] = host


@inlined
def note_key(series: SeriesColumns, slot: int, producers: ProducerColumns, producer: int, key_hash: int) -> None:
    """Before a point is stored, compare its key with its series': another one is a move, back again a second producer.

    A producer that writes under ever other keys, to spread its messages, returns to none.
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
    """Write all of a point that is to be stored but its value.

    The series goes over to the partition that brought the point, even if that is still hidden: then the series is
    hidden, too, until the partition has caught up. Example: another replica has exposed 470 of partition 7, which is
    read again here, while 179 from before the series moved is exposed of partition 3. Neither 179 nor the 340 that
    partition 7 brings first may be exposed any longer.

    A series that is new here and comes in a topic that has grown is held; see `held`.

    Args:
        tables: What changes.
        wire: The point's series number.
        slot: Its series.
        origin: Where it came from.
        when: Its start and event time.
        state: LIVE or ABSENT.
        rules: What is to be taken for its interval until that is known.

    Returns:
        How often it changed which series are exposed.
    """
    series, wires = tables.series, tables.wires
    known, owner = series.state[slot], series.partition[slot]
    changes = 0
    exposed = tables.exposed
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
    """`judge`, and a sign of life of the producer and the writer unless it is not the series' writer.

    Signs that the producer's identity is shared are counted.
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
