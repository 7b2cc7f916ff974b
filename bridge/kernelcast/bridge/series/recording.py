"""Compiled functions that record a judged point: the times of its series, writer and producer, and their changes."""

from typing import Final

import numpy as np

from kernelcast.bridge.series.arrival import Arrival, Tables, is_lag
from kernelcast.bridge.tables.columns import (
    BY_HOST,
    BY_KEY,
    BY_RESOURCE,
    BY_START_TIME,
    EMPTY,
    NO_KEY,
    OWN,
    SECOND_WRITER,
    UNCHANGED,
    WITHDRAWN,
    PointRules,
    ProducerColumns,
    SeriesColumns,
)
from kernelcast.bridge.tables.producers import UNLISTED_PRODUCER
from kernelcast.columnar.compiled import inlined

LONGEST_INTERVAL_MS: Final = 2**31 - 1
"""Largest value of the int32 columns, 25 days."""
MEMORY_SHIFT: Final = 3
"""The influence of a long gap between two points decreases over 2**3 = 8 times its length."""


@inlined
def note_producer(producers: ProducerColumns, producer: int, point: Arrival) -> None:
    """Record the newest times of a producer, and the partition of its last point."""
    producers.append_ms[producer] = max(point.append_ms, producers.append_ms[producer])
    producers.time_ns[producer] = max(point.shown_ns, producers.time_ns[producer])
    producers.partition[producer] = point.partition


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
def note_append(tables: Tables, writer: int, producer: int, point: Arrival) -> None:
    """Note the append and event time of a writer's point, learn its interval, and note its producer's host."""
    writers = tables.writers
    append_ms, known_ms = point.append_ms, writers.append_ms[writer]
    writers.time_ns[writer] = max(point.shown_ns, writers.time_ns[writer])
    writers.first_ms[writer] = min(append_ms, writers.first_ms[writer])
    if append_ms > known_ms:
        former = writers.partition[writer]
        writers.append_ms[writer], writers.partition[writer] = append_ms, point.partition
        if known_ms > 0 and not is_lag(tables, former, point.partition):
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
def record(tables: Tables, wire: int, point: Arrival, state: int, rules: PointRules) -> int:
    """Write everything of a point that is stored, except its value, to its series.

    The series moves to the partition of the point, even if that partition is still hidden: then the series is hidden
    as well until the partition has caught up. Example: another replica has exposed the value 470 from partition 7,
    which is read again here, while 179 from before the series moved is exposed from partition 3. Neither 179 nor the
    340 that comes first from partition 7 may be exposed any longer.

    A series that is new here, in a topic that has grown, is held; one that was withdrawn is exposed again; see `held`.

    Args:
        tables: The columns to change.
        wire: The point's series number.
        point: The point.
        state: LIVE or ABSENT.
        rules: Contain the interval that is assumed until the series' own is known.

    Returns:
        The number of changes to the set of exposed series.
    """
    series, wires = tables.series, tables.wires
    slot = wires.slot[wire]
    known, owner = series.state[slot], series.partition[slot]
    changes = 0
    exposed = tables.exposed
    if owner != point.partition:
        if known == EMPTY or exposed[owner] != exposed[point.partition]:
            changes += 1
        series.partition[slot] = point.partition
    series.offset[slot] = point.offset
    note_key(series, slot, tables.producers, wires.producer[wire], point.key_hash)
    series.key_hash[slot] = point.key_hash
    series.writer[slot] = wires.writer[wire]
    if known != state:
        series.state[slot] = state
        changes += 1
    if known != EMPTY:
        gap_ms = 0 if is_lag(tables, owner, point.partition) else point.append_ms - series.append_ms[slot]
        unlearned_ms = rules.unlearned_ms if exposed[point.partition] != 0 else 0
        series.interval_ms[slot] = learned(series.interval_ms[slot], gap_ms, unlearned_ms)
        series.gap_ms[slot] = learned(series.gap_ms[slot], gap_ms, gap_ms)
        note_gap(series, slot, gap_ms)
        if series.held_ms[slot] == WITHDRAWN:
            series.held_ms[slot] = 0
            changes += 1
    elif tables.growth[point.partition] != UNCHANGED:
        series.held_ms[slot] = max(point.append_ms, 1)
    series.append_ms[slot] = max(point.append_ms, series.append_ms[slot])
    series.start_ns[slot], series.time_ns[slot], series.flags[slot] = point.start_ns, point.time_ns, point.ahead
    return changes


@inlined
def note(tables: Tables, wire: int, point: Arrival, verdict: int) -> None:
    """Note that a point's producer and writer are alive, whose clock is ahead, and signs of a shared identity.

    A point that was refused as a second writer's, or whose series has no slot, shows no life of the series' writer.
    Further signs are counted in `note_key` and `note_host`.
    """
    producers, producer, writer = tables.producers, tables.wires.producer[wire], tables.wires.writer[wire]
    slot = tables.wires.slot[wire]
    if slot < 0:
        return
    if point.ahead:
        producers.ahead[producer] += 1
    if verdict == SECOND_WRITER:
        owner = tables.series.writer[slot]
        if owner != OWN:
            producers.conflicts[producer, BY_START_TIME if owner == writer else BY_RESOURCE] += 1
        return
    note_append(tables, writer, producer, point)
    note_producer(producers, producer, point)
