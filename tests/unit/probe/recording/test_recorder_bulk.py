"""Bulk input of decoders: the same sums as single calls, bounded, and always encodable."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.programs.limits import check_counters, check_names, check_rows, check_variants
from kernelcast.probe.recording.recorder import LONGEST_NS, MAX_KINDS, Recorder
from kernelcast.probe.recording.totals import MAX_DEVICE_VARIANTS
from kernelcast.wire.frames import (
    MAX_VARIANTS,
    Counters,
    Frame,
    KernelName,
    KernelRow,
    KernelRows,
    Names,
    Status,
    VariantRow,
    VariantRows,
    decode,
    encode,
)
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import OTHER


def summed(durations_ns: list[int]) -> DurationTotals:
    totals = DurationTotals()
    for duration_ns in durations_ns:
        totals.observe(duration_ns)
    return totals


def row(recorder: Recorder, signature: str = "k", device: int = 0) -> KernelRow:
    (cell,) = [cell for cell in recorder.cells(device) if cell.signature == signature]
    return recorder.take(cell)


def counters(recorder: Recorder, device: int = 0) -> Counters:
    return recorder.counters(device, dropped_frames=0)


batches = st.lists(st.lists(st.integers(0, 10**12), max_size=20), max_size=10)


@given(batches)
def test_batches_add_up_to_what_single_launches_would(durations_ns: list[list[int]]) -> None:
    bulk, single = Recorder(), Recorder()
    for batch in durations_ns:
        variant = f"v{len(batch)}"
        bulk.absorb("k", launches=len(batch), durations=summed(batch), variant=variant)
        bulk.gaps(summed(batch))
        for duration_ns in batch:
            single.observe("k", duration_ns, variant=variant)
            single.gap(duration_ns)
    if any(durations_ns):
        assert row(bulk) == row(single)
        assert counters(bulk).launch_gaps == counters(single).launch_gaps
        reported = [one for one in bulk.take_variants(bulk.cells(0)) if one.launches]
        assert reported == list(single.take_variants(single.cells(0)))
    assert bulk.refused == single.refused == 0


def test_queue_delays_graph_launches_and_the_configuration_come_with_a_batch() -> None:
    recorder = Recorder()
    name = KernelName(0, "", "8x1x1", "128x1x1", 40, 1024, 96, 0.75)
    recorder.absorb("k", launches=3, durations=summed([5]), queue_delays=2, queue_delay_ns=70, name=name)
    recorder.absorb("k", launches=2, durations=summed([5]), graph_launches=2)
    assert row(recorder) == KernelRow(row(recorder).kernel, 5, summed([5, 5]), 2, 70, 2)
    reported = recorder.cells(0)[0].name()
    assert (reported.signature, reported.grid, reported.block, reported.local_memory_bytes) == (
        "k",
        "8x1x1",
        "128x1x1",
        96,
    )
    assert (reported.registers, reported.shared_memory_bytes, reported.occupancy) == (40, 1024, 0.75)


NONSENSE: list[dict[str, Any]] = [
    {"launches": 0, "durations": summed([1])},
    {"launches": -1, "durations": DurationTotals()},
    {"launches": 2**63, "durations": DurationTotals()},
    {"launches": 2, "durations": DurationTotals(count=2)},
    {"launches": 2, "durations": DurationTotals(1, -1, 1, 0, {3: 1})},
    {"launches": 2, "durations": DurationTotals(1, 1, 5, 0, {3: 1})},
    {"launches": 2, "durations": DurationTotals(1, 1, 1, 0, {2**20: 1})},
    {"launches": 2, "durations": DurationTotals(1, 1, 1, 0, {3: True})},
    {"launches": 2, "durations": DurationTotals(), "queue_delays": 3},
    {"launches": 2, "durations": DurationTotals(), "queue_delay_ns": -3},
    {"launches": 2, "durations": DurationTotals(), "graph_launches": 3},
    {"launches": "two", "durations": DurationTotals()},
    {"launches": 2, "durations": None},
    {"launches": 2, "durations": DurationTotals(), "device": -1},
]


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_a_batch_that_the_exporter_would_refuse_is_refused_here_and_changes_nothing(nonsense: dict[str, Any]) -> None:
    recorder = Recorder()
    recorder.absorb("k", launches=1, durations=summed([9]))
    recorder.absorb("k", **nonsense)
    assert recorder.refused == 1
    assert row(recorder) == KernelRow(row(recorder).kernel, 1, summed([9]))


def test_no_call_raises_for_any_arguments() -> None:
    recorder = Recorder()
    calls: list[tuple[Any, ...]] = [
        (recorder.copies, "h2d", -1, 1, 1),
        (recorder.copies, None, 1, 1, 1),
        (recorder.syncs, "stream", 1, LONGEST_NS),
        (recorder.gap, -1),
        (recorder.gaps, DurationTotals(count=3)),
        (recorder.gaps, "long"),
        (recorder.device_time, "idle", -1),
        (recorder.pool, "device", "used", -1),
        (recorder.pool, "device", "used", 1, 64),
        (recorder.region, 7, 1, 1, 1),
        (recorder.region, "r", 1, -1, 1),
        (recorder.unseen, "graph", "many"),
        (recorder.lost_records, -1),
        (recorder.untimed_records, -1),
        (recorder.status, "event", "active", "", 1.5),
        (recorder.status, "event", "active", "", float("nan")),
        (recorder.status, 1, "active"),
    ]
    for call, *arguments in calls:
        call(*arguments)
    assert recorder.refused == len(calls)
    assert not any(counters(recorder, device).sync for device in recorder.devices())


def filled() -> Recorder:
    recorder = Recorder()
    for number in range(100):
        text = f"\ud800\0 {number} " + "x" * 300
        recorder.copies(text, 1, 2, 3, pinned=text)
        recorder.syncs(text, 4, 5)
        recorder.device_time(text, 6)
        recorder.pool(text, text, 7)
        recorder.region(text, 8, 9, 10)
        recorder.unseen(text, 11)
        recorder.absorb("k", launches=1, durations=summed([number]), variant=text)
    recorder.gaps(summed([10**number for number in range(13)] * 10))
    recorder.lost_records(12)
    recorder.untimed_records(13)
    recorder.status("event", "off", "reason " * 100, 0.5)
    return recorder


def test_any_report_can_be_sent_and_is_accepted_by_the_exporter() -> None:
    recorder = filled()
    (cell,) = recorder.cells(0)
    assert recorder.current
    sent: list[Frame] = [
        Names((cell.name(),)),
        KernelRows(0, (recorder.take(cell),)),
        counters(recorder),
        recorder.current,
    ]
    names, rows, reported, status = [decode(packet) for frame in sent for packet in encode(frame)]
    assert [names, rows, reported, status] == sent
    assert isinstance(names, Names)
    assert isinstance(rows, KernelRows)
    assert isinstance(reported, Counters)
    check_names(names)
    check_rows(rows, 1, {cell.kernel})
    check_counters(reported, 1)
    for packet in encode(VariantRows(0, recorder.take_variants([cell]))):
        variants = decode(packet)
        assert isinstance(variants, VariantRows)
        check_variants(variants, 1, {cell.kernel})


def test_kinds_beyond_the_bound_are_summed_and_nothing_is_lost() -> None:
    reported = counters(filled())
    assert [len(rows) for rows in (reported.memcpy, reported.sync, reported.device_time, reported.unseen)] == [
        MAX_KINDS + 1
    ] * 4
    assert sum(operations for _, _, _, operations, _ in reported.memcpy) == 200
    assert sum(waited_ns for _, _, waited_ns in reported.sync) == 500
    assert sum(duration_ns for _, duration_ns in reported.device_time) == 600
    assert sum(launches for _, launches in reported.unseen) == 1100
    assert sum(launches for _, launches, _, _ in reported.regions) == 800
    assert [row for row in reported.regions if row[0] == OTHER] == [(OTHER, 68 * 8, 68 * 9, 68 * 10)]
    assert len(reported.pools) == MAX_KINDS
    assert reported.dropped_records == 12 + 68, "sizes of further pools are refused"
    assert reported.untimed_records == 13


def test_variants_beyond_the_bound_are_one_and_add_up_to_their_kernel() -> None:
    recorder = Recorder()
    for number in range(200):
        recorder.observe("k", 10 + number, variant=f"{number}")
    rows = recorder.take_variants(recorder.cells(0))
    assert len(rows) == MAX_VARIANTS
    assert sum(one.launches for one in rows) == row(recorder).durations.count
    assert sum(one.sum_ns for one in rows) == row(recorder).durations.sum_ns
    assert sum(one.sum_squares_ns2 for one in rows) == row(recorder).durations.sum_squares_ns2
    assert {one.variant: one.launches for one in rows}[OTHER] == 200 - MAX_VARIANTS + 1


def test_all_kernels_together_have_a_bounded_number_of_variants() -> None:
    recorder = Recorder()
    for number in range(2000):
        for variant in range(4):
            recorder.observe(f"kernel_{number}x", 1, variant=f"{variant}")
    rows = recorder.take_variants(recorder.cells(0))
    assert sum(one.variant != OTHER for one in rows) <= MAX_DEVICE_VARIANTS
    assert sum(one.launches for one in rows) == 8000


def test_only_variants_that_changed_are_taken_and_all_of_them_for_somebody_new() -> None:
    recorder = Recorder()
    recorder.observe("k", 1, variant="a")
    recorder.observe("k", 1, variant="b")
    cells = recorder.cells(0)
    recorder.take_variants(cells)
    recorder.observe("k", 2, variant="b")
    assert recorder.take_variants(cells) == (VariantRow(cells[0].kernel, "b", 2, 3, 5),)
    assert recorder.take_variants(cells) == ()
    recorder.mark_unsent(cells)
    assert [one.variant for one in recorder.take_variants(cells)] == ["a", "b"]


def test_a_pool_has_its_last_reported_size() -> None:
    recorder = Recorder()
    recorder.pool("device", "used", 100)
    recorder.pool("device", "used", 70)
    assert counters(recorder).pools == (("device", "used", 70),)


def test_a_status_alone_does_not_make_a_dormant_program_speak() -> None:
    recorder = Recorder()
    recorder.status("count", "dormant")
    assert not recorder.touched
    assert recorder.current == Status("count", "dormant")


def test_unreported_gaps_are_absent_not_zero() -> None:
    recorder = Recorder()
    recorder.device_time("idle", 5)
    assert counters(recorder).launch_gaps is None


def test_threads_lose_nothing_when_they_add_in_bulk() -> None:
    recorder = Recorder()
    batch = summed([3, 3, 3])

    def work() -> None:
        for _ in range(1000):
            recorder.absorb("k", launches=3, durations=batch, variant="v")
            recorder.gaps(batch)
            recorder.region("r", 3, 9, 10)
            recorder.syncs("stream", 2, 5)
            recorder.lost_records(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reported = counters(recorder)
    assert row(recorder).launches == row(recorder).durations.count == 12_000
    assert reported.launch_gaps == summed([3] * 12_000)
    assert reported.regions == (("r", 12_000, 36_000, 40_000),)
    assert reported.sync == (("stream", 8000, 20_000),)
    assert reported.dropped_records == 4000
    assert [one.launches for one in recorder.take_variants(recorder.cells(0))] == [12_000]
