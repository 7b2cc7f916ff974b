"""Points that are read after newer ones of their series, because another partition was read first."""

from itertools import count, cycle
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.support.bridge.delta_streams import LATE_MS, ORDER, Delta, Meter, request, sums
from tests.support.bridge.list_kafka import ManualClock, StateLog

from kernelcast.bridge.delta.accumulate import Accumulator
from kernelcast.bridge.delta.beginning import AssignmentFacts
from kernelcast.bridge.delta.columns import GROWN_TOPIC, PENDING
from kernelcast.bridge.delta.deltas import Deltas
from kernelcast.bridge.delta.instruments import DeltaInstruments
from kernelcast.bridge.delta.joining import adopt, alone
from kernelcast.bridge.delta.persistence.state import StateTopic
from kernelcast.bridge.delta.settings import DeltaPolicy, DeltaSettings
from kernelcast.bridge.partitions.partition import Partition
from kernelcast.bridge.partitions.tombstones import Tombstone
from kernelcast.bridge.tables.columns import MessageColumns
from kernelcast.columnar import NO_RECORDED_VALUE, Decoder

AWAY_MS = 70_000
LEFT, JOINED = 0, 1
"""The partition that the series has left, and the one that it has moved to."""


def after_a_move() -> Meter:
    """Points until 30 in the left partition, and one from 80 to 90 in the joined one, which was read first."""
    meter = Meter(Accumulator(ORDER, max_series=10, away_ms=AWAY_MS))
    for partition in (LEFT, JOINED):
        meter.totals.set_scope(partition, GROWN_TOPIC)
    meter.sums(Delta(10, 20, 1), Delta(20, 30, 2), partition=LEFT)
    adopted(meter)  # it began as the first point in a grown topic
    meter.sums(Delta(80, 90, 4), partition=JOINED, append_ms=LATE_MS + AWAY_MS + 1)
    return meter


def reserved(meter: Meter) -> list[float]:
    return [int(one["integer"][0]) for one in meter.totals.rows.reserved.values()]


def adopted(meter: Meter) -> int:
    """The total of the series once its hold is over."""
    rows = meter.totals.rows
    for former in [rows.reserved.pop(digest) for digest in list(rows.reserved)]:
        assert adopt(rows, 0, alone(former, 0), reserved=True)
    rows.columns.flags[0] &= 255 - PENDING
    return int(rows.columns.integer[0])


def test_points_that_are_read_late_from_the_partition_that_a_series_has_left_are_in_its_total() -> None:
    meter = after_a_move()
    shown = meter.take(*map(sums, [[Delta(30, 40, 8)], [Delta(40, 50, 16)]]), partition=LEFT, append_ms=LATE_MS + 2)
    assert (shown.numbers.flags & NO_RECORDED_VALUE).all()
    assert reserved(meter) == [27]
    meter.sums(Delta(50, 60, 32), partition=LEFT, append_ms=LATE_MS + 3)
    meter.sums(Delta(90, 100, 64), partition=JOINED, append_ms=LATE_MS + AWAY_MS + 2)
    assert adopted(meter) == 127
    assert meter.sums(Delta(60, 80, 128), partition=LEFT, append_ms=LATE_MS + 4)[0][::2] == (10, 255)
    assert meter.counted == {"first": 2, "added": 5, "filled": 1}


def test_a_late_point_that_was_sent_again_is_added_once() -> None:
    meter = after_a_move()
    for _ in range(2):
        meter.sums(Delta(30, 40, 8), partition=LEFT, append_ms=LATE_MS + 2)
    meter.sums(Delta(30, 40, 8), partition=JOINED, append_ms=LATE_MS + AWAY_MS + 2)
    assert adopted(meter) == 15
    meter.sums(Delta(30, 40, 8), partition=LEFT, append_ms=LATE_MS + 3)
    assert meter.totals.rows.columns.integer[0] == 15
    assert meter.counted == {"first": 2, "added": 2, "duplicate": 2, "older": 1}


@pytest.mark.parametrize(("silence_ms", "total"), [(AWAY_MS, 11), (AWAY_MS + 1, 3)])
def test_a_reserved_total_is_not_continued_after_a_silence_in_which_another_replica_may_have(
    silence_ms: int, total: int
) -> None:
    meter = after_a_move()
    meter.sums(Delta(40, 50, 8), partition=LEFT, append_ms=LATE_MS + silence_ms)
    assert reserved(meter) == [total]


def test_a_late_point_is_not_lost_in_a_batch_in_which_its_total_is_followed_by_a_third_one() -> None:
    meter = after_a_move()
    bodies = [sums([Delta(30, 40, 8)]), sums([Delta(200, 210, 16)])]
    append_ms = [LATE_MS + 2, LATE_MS + 2 * AWAY_MS + 5]
    meter.take(*bodies, partition=[LEFT, JOINED], append_ms=append_ms)
    assert reserved(meter) == [15]
    assert adopted(meter) == 31
    assert meter.sums(Delta(40, 50, 32), partition=LEFT, append_ms=LATE_MS + 3 * AWAY_MS)[0][::2] == (10, 63)


@pytest.mark.parametrize(("key", "total"), [(LEFT, 20), (7, 31)])
def test_a_tombstone_in_the_partition_that_a_series_has_left_ends_what_was_counted_there(key: int, total: int) -> None:
    clock = ManualClock()
    log = StateLog(clock)
    state = StateTopic("group", log, log.open, now_ns=clock.now_ns)
    deltas = Deltas(DeltaPolicy(DeltaSettings()), state, DeltaInstruments(CollectorRegistry()), clock)
    kept, decoder, offsets = [LEFT, JOINED], Decoder(), count()
    deltas.assigned([Partition(("kernels", number), number, 0, 0) for number in kept], AssignmentFacts())

    def add(point: Delta, partition: int, append_ms: int) -> float:
        columns = np.array([[partition], [next(offsets)], [append_ms], [partition + 1]], np.int64)
        messages = MessageColumns(columns[0].astype(np.int32), *columns[1:])
        return float(deltas.accumulate(decoder.decode([sums([point])]), messages, decoder).numbers.value[0])

    deltas.note_sharing([("kernels", 2)], [])
    add(Delta(20, 30, 3), LEFT, LATE_MS)
    deltas.note_sharing([("kernels", 2)], kept)
    add(Delta(80, 90, 4), JOINED, LATE_MS + AWAY_MS + 1)
    add(Delta(30, 40, 8), LEFT, LATE_MS + 2)
    deltas.end([Tombstone(0, LEFT, next(offsets), key + 1)])
    deltas.note_sharing([], [])
    assert add(Delta(90, 100, 16), JOINED, LATE_MS + AWAY_MS + 2) == total


def test_late_points_of_a_full_table_are_counted_as_older() -> None:
    meter = after_a_move()
    meter.totals.rows.most = 1
    meter.sums(Delta(30, 40, 8), partition=LEFT, append_ms=LATE_MS + 2)
    assert (reserved(meter), meter.counted["older"]) == ([3], 1)


def test_late_histograms_are_in_their_total() -> None:
    meter = Meter(Accumulator(ORDER, max_series=10, away_ms=AWAY_MS))
    for partition in (LEFT, JOINED):
        meter.totals.set_scope(partition, GROWN_TOPIC)

    def observe(step: int, *counts: int, partition: int, append_ms: int = LATE_MS) -> None:
        made, metrics = request()
        metric = metrics.add(name="latency")
        metric.histogram.aggregation_temporality = 1
        metric.histogram.data_points.add(
            start_time_unix_nano=10 * step,
            time_unix_nano=10 * step + 10,
            explicit_bounds=[1.0],
            bucket_counts=counts,
            count=sum(counts),
            sum=1.0,
        )
        meter.take(bytes(made.SerializeToString()), partition=partition, append_ms=append_ms)

    observe(1, 1, 0, partition=LEFT)
    adopted(meter)
    observe(8, 2, 1, partition=JOINED, append_ms=LATE_MS + AWAY_MS + 1)
    observe(2, 4, 2, partition=LEFT, append_ms=LATE_MS + 1)
    assert adopted(meter) == 10
    rows = meter.totals.rows
    block = int(rows.columns.block[0])
    assert rows.words[block : block + 4].tolist()[-2:] == [7, 3]


@st.composite
def readings(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """The number of points in a snapshot; then the points read after it: partition, number, interval."""
    left, joined = draw(st.integers(2, 9)), draw(st.integers(1, 4))
    restored = draw(st.integers(1, left - 1))
    logs = {LEFT: list(range(restored, left)), JOINED: list(range(left, left + joined))}
    for again in draw(st.lists(st.integers(restored, left - 1), max_size=3)):
        partition = draw(st.sampled_from([LEFT, JOINED]))
        begin = again - restored + 1 if partition == LEFT else 0
        logs[partition].insert(draw(st.integers(begin, len(logs[partition]))), again)
    read = []
    newest = {LEFT: 0, JOINED: left}
    while any(logs.values()):
        partition = draw(st.sampled_from([partition for partition, log in logs.items() if log]))
        number = logs[partition].pop(0)
        newest[partition] = max(newest[partition], number)
        read.append((partition, number, newest[partition] - restored + 1))
    return restored, read


@given(readings(), st.lists(st.integers(1, 6), min_size=1))
def test_every_point_counts_once_in_whatever_order_and_batches_two_partitions_are_read(
    reading: tuple[int, list[tuple[int, int, int]]], sizes: list[int]
) -> None:
    restored, read = reading
    meter = Meter(Accumulator(ORDER, max_series=10, away_ms=AWAY_MS))
    for partition in (LEFT, JOINED):
        meter.totals.set_scope(partition, GROWN_TOPIC)
    meter.sums(*(Delta(10 * i + 10, 10 * i + 20, 2**i) for i in range(restored)), partition=LEFT)
    adopted(meter)
    unread, batches = list(read), cycle(sizes)
    while unread:
        size = next(batches)
        batch, unread = sorted(unread[:size], key=itemgetter(2)), unread[size:]  # as `MessageBatch.of` sorts it
        meter.take(
            *(sums([Delta(10 * i + 10, 10 * i + 20, 2**i)]) for _, i, _ in batch),
            partition=[partition for partition, _, _ in batch],
            append_ms=[LATE_MS + AWAY_MS // 2 * intervals for _, _, intervals in batch],
        )
    numbers = {*range(restored), *(number for _, number, _ in read)}
    assert adopted(meter) == sum(2**i for i in numbers)
