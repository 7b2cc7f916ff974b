"""Compiled functions that record a point: the times of its series, writer and producer, and their changes.

`store_numbers` and `store_histograms` call, for each point: `arrival`, then `refused`, or `tried` and, if the point is
stored, `change`.
"""

from typing import Final

import numpy as np

from kernelcast.bridge.series.judgement import PointOrigin, PointTimes, Tables, is_lag, judge
from kernelcast.bridge.tables.columns import (
    BY_HOST,
    BY_KEY,
    BY_RESOURCE,
    BY_START_TIME,
    EMPTY,
    NO_KEY,
    OTHER_REPLICA,
    OWN,
    SECOND_WRITER,
    UNCHANGED,
    WITHDRAWN,
    MessageColumns,
    PointRules,
    ProducerColumns,
    SeriesColumns,
    WireColumns,
)
from kernelcast.bridge.tables.producers import UNLISTED_PRODUCER
from kernelcast.columnar.compiled import inlined

LONGEST_INTERVAL_MS: Final = 2**31 - 1
"""Largest value of the int32 columns, 25 days."""
MEMORY_SHIFT: Final = 3
"""The influence of a long gap between two points decreases over 2**3 = 8 times its length."""


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
def note_producer(producers: ProducerColumns, producer: int, origin: PointOrigin, when: PointTimes) -> None:
    """Record the newest times of a producer, and the partition of its last point."""
    producers.append_ms[producer] = max(origin.append_ms, producers.append_ms[producer])
    producers.time_ns[producer] = max(when.shown_ns, producers.time_ns[producer])
    producers.partition[producer] = origin.partition


@inlined
def refused(tables: Tables, wire: int, origin: PointOrigin, when: PointTimes) -> int:
    """Return the reason why a point's series has no slot; if another replica has it, its producer is alive still."""
    outcome: int = -tables.wires.slot[wire]
    if outcome == OTHER_REPLICA:
        note_producer(tables.producers, tables.wires.producer[wire], origin, when)
    return outcome


@inlined
def learned(interval_ms: int, gap_ms: int, unlearned_ms: int) -> int:
    """Return a series' interval after another gap between append times: the longest gap, decreasing with time.

    A new series starts with `unlearned_ms`, so that its first points, which may come in a burst, do not shorten its
    life. It is 0 while a partition is read again: one time-to-live of points shows each gap that a series survives, and
    an ended series must not live longer here than at its former replica. Points of one message, or older than the known
    ones, change nothing, nor does a gap that may be lag (`is_lag`).
    """
    # Example: interval 80 s, then a gap of 10 s: 80 - 10 / 8 = 78.75 s; after six more such gaps it is 71.25 s.
    if gap_ms <= 0:
        return interval_ms
    if interval_ms == 0:
        interval_ms = unlearned_ms
    return min(max(gap_ms, interval_ms - (gap_ms >> MEMORY_SHIFT), 1), LONGEST_INTERVAL_MS)


@inlined
def note_gap(series: SeriesColumns, slot: int, gap_ms: int) -> None:
    """Note a gap between append times of a series, and the shorter one of its last two gaps."""
    if gap_ms <= 0:
        return
    gap_ms = min(gap_ms, LONGEST_INTERVAL_MS)
    last_ms = series.last_gap_ms[slot]
    series.usual_gap_ms[slot] = gap_ms if last_ms == 0 else min(gap_ms, last_ms)
    series.last_gap_ms[slot] = gap_ms


@inlined
def note_append(tables: Tables, writer: int, producer: int, origin: PointOrigin, time_ns: int) -> None:
    """Note the append and event time of a writer's point, learn its interval, and note its producer's host."""
    writers = tables.writers
    append_ms, known_ms = origin.append_ms, writers.append_ms[writer]
    writers.time_ns[writer] = max(time_ns, writers.time_ns[writer])
    writers.first_ms[writer] = min(append_ms, writers.first_ms[writer])
    if append_ms > known_ms:
        former = writers.partition[writer]
        writers.append_ms[writer], writers.partition[writer] = append_ms, origin.partition
        if known_ms > 0 and not is_lag(tables, former, origin.partition):
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
    """Note the key of a stored point. A change is a move; a return to the former key means two producers.

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
    tables: Tables, wire: int, slot: int, origin: PointOrigin, when: PointTimes, state: int, rules: PointRules
) -> int:
    """Write everything of a point that is stored, except its value.

    The series moves to the partition of the point, even if that partition is still hidden: then the series is hidden
    as well until the partition has caught up. Example: another replica has exposed the value 470 from partition 7,
    which is read again here, while 179 from before the series moved is exposed from partition 3. Neither 179 nor the
    340 that comes first from partition 7 may be exposed any longer.

    A series that is new here, in a topic that has grown, is held; one that was withdrawn is exposed again; see `held`.

    Args:
        tables: The columns to change.
        wire: The point's series number.
        slot: Slot of its series.
        origin: Origin of the point.
        when: Its times.
        state: LIVE or ABSENT.
        rules: Contain the interval that is assumed until the series' own is known.

    Returns:
        The number of changes to the set of exposed series.
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
    note_key(series, slot, tables.producers, wires.producer[wire], origin.key_hash)
    series.key_hash[slot] = origin.key_hash
    series.writer[slot] = wires.writer[wire]
    if known != state:
        series.state[slot] = state
        changes += 1
    if known != EMPTY:
        gap_ms = 0 if is_lag(tables, owner, origin.partition) else origin.append_ms - series.append_ms[slot]
        unlearned_ms = rules.unlearned_ms if exposed[origin.partition] != 0 else 0
        series.interval_ms[slot] = learned(series.interval_ms[slot], gap_ms, unlearned_ms)
        series.gap_ms[slot] = learned(series.gap_ms[slot], gap_ms, gap_ms)
        note_gap(series, slot, gap_ms)
        if series.held_ms[slot] == WITHDRAWN:
            series.held_ms[slot] = 0
            changes += 1
    elif tables.growth[origin.partition] != UNCHANGED:
        series.held_ms[slot] = max(origin.append_ms, 1)
    series.append_ms[slot] = max(origin.append_ms, series.append_ms[slot])
    series.start_ns[slot], series.time_ns[slot], series.flags[slot] = when.start_ns, when.time_ns, when.ahead
    return changes


@inlined
def tried(tables: Tables, wire: int, slot: int, origin: PointOrigin, when: PointTimes, rules: PointRules) -> int:
    """Call `judge`, and record that producer and writer are alive unless the point was refused as a second writer's.

    Signs that two producers share an identity are counted here and in `note_key`.
    """
    verdict = judge(tables, wire, slot, origin, when, rules)
    producers, producer, writer = tables.producers, tables.wires.producer[wire], tables.wires.writer[wire]
    if verdict == SECOND_WRITER:
        owner = tables.series.writer[slot]
        if owner != OWN:
            producers.conflicts[producer, BY_START_TIME if owner == writer else BY_RESOURCE] += 1
        return verdict
    note_append(tables, writer, producer, origin, when.shown_ns)
    note_producer(producers, producer, origin, when)
    return verdict
