"""Totals of one series that meet in one replica: which are added, and which are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.delta_streams import LATE_MS, Delta, Meter, request, sums

from kernelcast.bridge.delta.addition.merging import NO_BUCKETS
from kernelcast.bridge.delta.columns import GROWN_TOPIC, INTEGER, NUMBER, PENDING
from kernelcast.bridge.delta.joining import adopt, alone, restore
from kernelcast.bridge.delta.persistence.freeze import Columns, freeze, one_by_one, reserved_totals
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.wire.errors import WireError

LEFT, JOINED = 0, 1
"""The partition that the series has left, and the one that it has moved to."""


def observation(start_ns: int, time_ns: int, *counts: int, name: str = "latency") -> bytes:
    """A message with a delta histogram of the bound 1, or of none with one count."""
    made, metrics = request()
    metric = metrics.add(name=name)
    metric.histogram.aggregation_temporality = 1
    metric.histogram.data_points.add(
        start_time_unix_nano=start_ns,
        time_unix_nano=time_ns,
        explicit_bounds=[1.0] if len(counts) > 1 else [],
        bucket_counts=counts,
        count=sum(counts),
        sum=1.0,
    )
    return bytes(made.SerializeToString())


def snapshot(meter: Meter, partition: int) -> Columns:
    rows = meter.totals.rows
    return freeze(rows, rows.of_partition(partition), {partition: partition})


def moved(*bodies: bytes) -> Columns:
    """The snapshot of the partition that a series has moved to, with a PENDING total."""
    there = Meter()
    there.totals.set_scope(JOINED, GROWN_TOPIC)
    there.take(*bodies, partition=JOINED)
    return snapshot(there, JOINED)


def exposed(meter: Meter) -> None:
    """Expose the total of the only series, with the one that this replica has reserved for it."""
    rows = meter.totals.rows
    row = int(rows.in_use()[0])
    for former in [rows.reserved.pop(digest) for digest in list(rows.reserved)]:
        assert adopt(rows, row, alone(former, 0), reserved=True)
    rows.columns.flags[row] &= 255 - PENDING


def test_a_series_whose_points_are_all_read_again_adds_nothing_of_another_series_to_a_total() -> None:
    here = Meter()
    here.sums(Delta(10, 20, 1e6, "b"), partition=LEFT)
    here.totals.free(here.totals.rows.in_use())
    here.totals.at(LEFT, 1000)
    here.sums(Delta(30, 40, 5), partition=LEFT)
    assert here.counted == {"first": 1, "replayed": 1}
    assert restore(here.totals.rows, moved(sums([Delta(80, 86, 7)])), {JOINED: JOINED}) == 1
    exposed(here)
    assert here.sums(Delta(86, 90, 1), partition=JOINED, append_ms=LATE_MS + 1) == [(80, 90, 8.0)]
    columns = here.totals.rows.columns
    assert columns.gaps[here.totals.rows.in_use()].tolist() == [0]
    assert columns.flags[here.totals.rows.in_use()] & INTEGER


def test_a_histogram_whose_points_are_all_read_again_has_no_buckets_that_a_total_could_get() -> None:
    here = Meter()
    here.totals.at(LEFT, 1000)
    here.take(observation(30, 40, 1, 0), partition=LEFT, offset=0)
    here.totals.rows.blocks.counts[-1] = 3  # the word that index -1 reads
    assert restore(here.totals.rows, moved(observation(80, 86, 2, 1)), {JOINED: JOINED}) == 1
    assert here.totals.rows.reserved == {}
    exposed(here)
    shown = here.take(observation(86, 90, 4, 2), partition=JOINED, append_ms=LATE_MS + 1).histograms
    assert (shown.count.tolist(), shown.buckets.tolist(), shown.start_ns.tolist()) == ([9], [6, 3], [80])


def test_a_new_row_has_nothing_of_the_series_that_had_it_before() -> None:
    used, fresh = TotalRows(10), TotalRows(10)
    row = used.new(b"x" * 16, NUMBER, monotonic=True)
    for column in used.columns:
        column[row] = 1
    used.columns.digest[row] = np.frombuffer(b"x" * 16, np.uint8)
    used.columns.gap[row] = used.columns.block[row] = -1
    used.free(np.array([row]))
    for table in (used, fresh):
        table.new(b"y" * 16, NUMBER, monotonic=False)
    assert [column[row].tolist() for column in used.columns] == [column[row].tolist() for column in fresh.columns]


def of_value(value: float, *, pending: bool = False) -> TotalRows:
    """A table with one series, which may fall, from 10 to 20; a PENDING one is later, from 80 to 90."""
    meter = Meter()
    meter.totals.set_scope(LEFT, GROWN_TOPIC)
    begin_ns = 80 if pending else 10
    meter.take(sums([Delta(begin_ns, begin_ns + 10, value)], monotonic=False))
    return meter.totals.rows


def test_integer_totals_are_not_joined_beyond_64_bits_on_either_side() -> None:
    for value in (2**62 + 5, -(2**62) - 5):
        rows = of_value(value, pending=True)
        assert not adopt(rows, 0, of_value(value))
        assert rows.columns.integer[0] == value
    rows = of_value(-(2**62), pending=True)
    assert adopt(rows, 0, of_value(-(2**62)))
    assert rows.columns.integer[0] == -(2**63)


def test_totals_that_have_become_floats_are_joined_however_large_their_integers_were() -> None:
    tables = of_value(2**62 + 2**61, pending=True), of_value(2**62 + 2**61)
    for rows in tables:
        rows.columns.total[0], rows.columns.flags[0] = 2.5, rows.columns.flags[0] & (255 - INTEGER)
    assert adopt(tables[0], 0, tables[1])
    assert tables[0].columns.total[0] == 5.0


def test_the_reserved_total_of_a_dropped_series_is_in_no_snapshot() -> None:
    here = Meter()
    here.sums(Delta(10, 20, 5), partition=JOINED)
    restore(here.totals.rows, moved(sums([Delta(80, 86, 7)])), {JOINED: LEFT})
    rows = here.totals.rows
    assert [int(one["integer"][0]) for one in reserved_totals(rows, {JOINED: 0})] == [5]
    here.totals.free(rows.in_use())
    rows.columns.partition[-1] = LEFT
    assert reserved_totals(rows, {JOINED: 0}) == []


@pytest.mark.parametrize(
    "damaged",
    [
        {"blocks": [-5]},
        {"blocks": [-2]},
        {"gaps": [-1]},
        {"gaps": [1]},
        {"words": [2]},
        {"kind": [4]},
    ],
)
def test_content_that_no_bridge_writes_is_refused(damaged: dict[str, list[int]]) -> None:
    there = Meter()
    there.totals.set_scope(JOINED, GROWN_TOPIC)
    there.take(observation(80, 86, 3), partition=JOINED)
    columns = dict(snapshot(there, JOINED))
    assert columns["blocks"].tolist() == [NO_BUCKETS]
    columns |= {name: np.array(items, columns[name].dtype) for name, items in damaged.items()}
    for read in (lambda: restore(TotalRows(10), columns, {JOINED: JOINED}), lambda: alone(columns, 0)):
        with pytest.raises(WireError, match="malformed totals"):
            read()


Counted = tuple[list[tuple[int, int]], bool]
"""Silence before and length of each point of a series, and whether its total is PENDING."""


def counted(series: list[Counted], partition: int) -> Meter:
    """A replica that has counted some series: sums with even numbers, histograms with odd ones."""
    meter = Meter()
    meter.totals.set_scope(partition, GROWN_TOPIC)
    exposed_rows = []
    for number, (steps, is_pending) in enumerate(series):
        end_ns = 10
        for silence_ns, length_ns in steps:
            begin_ns, end_ns = end_ns + silence_ns, end_ns + silence_ns + length_ns
            if number % 2:
                body = observation(begin_ns, end_ns, end_ns, 1, name=str(number))
            else:
                body = sums([Delta(begin_ns, end_ns, end_ns)], name=str(number))
            meter.take(body, partition=partition)
        if steps and not is_pending:
            exposed_rows.append(len(meter.totals.rows) - 1)
    meter.totals.rows.columns.flags[exposed_rows] &= np.uint8(255 - PENDING)
    return meter


def everything(rows: TotalRows) -> dict[bytes, list[dict[str, object]]]:
    """All rows and reserved totals, by identity."""
    known = one_by_one(freeze(rows, rows.in_use(), {LEFT: LEFT, JOINED: JOINED}))
    found: dict[bytes, list[dict[str, object]]] = {}
    for one in [*known, *rows.reserved.values()]:
        plain = {name: column.tolist() for name, column in one.items()}
        found.setdefault(one["digest"].tobytes(), []).append(plain)
    return found


steps = st.lists(st.tuples(st.sampled_from([0, 10, 40]), st.sampled_from([10, 30])), max_size=3)
series = st.lists(st.tuples(steps, st.booleans()), min_size=1, max_size=6)


@given(series, series)
def test_totals_that_are_restored_together_are_joined_as_each_alone(left: list[Counted], joined: list[Counted]) -> None:
    columns = snapshot(counted(joined, JOINED), JOINED)
    together, each = counted(left, LEFT).totals.rows, counted(left, LEFT).totals.rows
    restored = restore(together, columns, {JOINED: JOINED})
    assert restored == sum(restore(each, one, {JOINED: JOINED}) for one in one_by_one(columns))
    assert everything(together) == everything(each)
