import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.programs.limits import check_counters, check_names
from kernelcast.probe.recording.recorder import LONGEST_NS, MAX_KINDS, Recorder, Spent, printable
from kernelcast.wire.frames import Counters, KernelRows, Names, decode, encode
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import OTHER, normalise


def row(recorder: Recorder, signature: str, device: int = 0) -> tuple[int, DurationTotals]:
    (cell,) = [cell for cell in recorder.cells(device) if cell.signature == signature]
    taken = recorder.take(cell)
    return taken.launches, taken.durations


@given(st.lists(st.integers(0, 10**12), max_size=200))
def test_totals_are_those_of_the_raw_durations(durations_ns: list[int]) -> None:
    recorder = Recorder()
    truth = DurationTotals()
    for duration_ns in durations_ns:
        recorder.observe("k", duration_ns)
        truth.observe(duration_ns)
    if durations_ns:
        assert row(recorder, "k") == (len(durations_ns), truth)


def test_untimed_launches_count_as_launches_only() -> None:
    recorder = Recorder()
    recorder.observe("k", 5)
    recorder.count("k", 7)
    launches, durations = row(recorder, "k")
    assert (launches, durations.count) == (8, 1)


def test_threads_lose_no_launch() -> None:
    recorder = Recorder()

    def work() -> None:
        for _ in range(5000):
            recorder.observe("k", 3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert row(recorder, "k") == (20_000, DurationTotals(20_000, 60_000, 180_000, 0, row(recorder, "k")[1].buckets))


def test_kernels_beyond_the_limit_add_to_other() -> None:
    recorder = Recorder(max_kernels=3)
    for number in range(50):
        recorder.observe(f"kernel_{number}x", 10)
    assert {cell.signature for cell in recorder.cells(0)} == {"kernel_0x", "kernel_1x", "kernel_2x", OTHER}
    assert row(recorder, OTHER)[0] == 47


def test_a_known_kernel_keeps_its_row_when_the_limit_is_reached() -> None:
    recorder = Recorder(max_kernels=1)
    for _ in range(3):
        for number in range(10):
            recorder.observe(f"kernel_{number}x", 10)
    assert row(recorder, "kernel_0x")[0] == 3


def test_generated_numbers_of_one_kernel_are_one_kernel() -> None:
    recorder = Recorder()
    recorder.observe("triton_poi_fused_add_3", 1)
    recorder.observe("triton_poi_fused_add_4", 1)
    assert row(recorder, normalise("triton_poi_fused_add_3"))[0] == 2


def test_nothing_a_program_passes_in_makes_it_fail() -> None:
    recorder = Recorder()
    recorder.observe("k", -1)
    recorder.observe("k", LONGEST_NS)
    recorder.observe("k", "soon")  # type: ignore[arg-type]
    recorder.observe("k", 1, device=-1)
    recorder.observe("k", 1, device=10**6)
    recorder.observe(None, 1, device=10**6)  # type: ignore[arg-type]
    recorder.observe([], 1)  # type: ignore[arg-type]
    recorder.count("k", -3)
    recorder.copy("h2d", -1, 5)
    recorder.copy(7, 1, 5)  # type: ignore[arg-type]
    recorder.sync("stream", -5)
    recorder.sync(None, 5)  # type: ignore[arg-type]
    assert recorder.refused == 12
    assert recorder.cells(0) == []


def test_names_that_cannot_travel_are_made_to() -> None:
    recorder = Recorder()
    recorder.observe("\ud800" + "x" * 100_000, 1)
    recorder.observe("y" * 100_000 + "1", 1)
    recorder.observe("y" * 100_000 + "2", 1)
    names = Names(tuple(cell.name() for cell in recorder.cells(0)))
    assert len(names.names) == 3
    assert all(len(name.signature) < 5000 for name in names.names)
    assert list(encode(names))
    assert printable("") == OTHER


class NoInteger:
    """A number for `int()` only, such as `numpy.int64`."""

    def __int__(self) -> int:
        return 32


def test_any_report_can_be_encoded_and_is_accepted_by_the_exporter() -> None:
    recorder = Recorder()
    recorder.pool("device", "used", 5, device=np.int64(0))  # type: ignore[arg-type]
    recorder.observe("k", 5, grid=("\ud800",), block="\0" * 500, registers=NoInteger())  # type: ignore[arg-type]
    recorder.observe("k", 5, block=(10**300, 1, 1), shared_memory_bytes=2**70)
    recorder.observe("wide", 5, block=(10**300, 1, 1))
    recorder.observe("longer than Python prints", 5, grid=(10**5000, 1, 1))
    recorder.observe("numpy", 5, device=np.int64(0))  # type: ignore[arg-type]
    recorder.copy("numpy", 5, 5, device=np.int64(1))  # type: ignore[arg-type]
    recorder.copy("float", 5, 5, device=2.0)  # type: ignore[arg-type]
    assert recorder.devices() == [0, 1, 2]
    assert all(list(encode(recorder.counters(device, dropped_frames=0))) for device in (1, 2))
    recorder.copy("\ud800\0", 2**70, 5)
    recorder.copy("\ud800\0", 2**62, 5)
    recorder.copy("\ud800\0", 2**62, 5)
    recorder.sync("\ud800\0", 5)
    recorder.count("k", LONGEST_NS - 1)
    for _ in range(2**13 + 2):
        recorder.observe("absolute", LONGEST_NS - 1)
        recorder.sync("absolute", LONGEST_NS - 1)
        recorder.count("absolute", LONGEST_NS - 1)
    names = Names(tuple(cell.name() for cell in recorder.cells(0)))
    rows = KernelRows(0, tuple(recorder.take(cell) for cell in recorder.cells(0)))
    for sent in (names, rows, recorder.counters(0, dropped_frames=0)):
        (frame,) = [decode(packet) for packet in encode(sent)]
        if isinstance(frame, Names):
            check_names(frame)
        if isinstance(frame, Counters):
            check_counters(frame, 1)
            assert frame.memcpy == (("??", "", 2**62, 1, 5),)
    assert recorder.refused > 3


def test_the_last_configuration_is_kept() -> None:
    recorder = Recorder()
    recorder.observe("k", 1, grid=(7, 1, 1), block=(48, 1, 1), registers=32, shared_memory_bytes=1024)
    recorder.observe("k", 1, grid="9x1x1", block="64x1x1")
    recorder.observe("k", 1)
    name = recorder.cells(0)[0].name()
    assert (name.grid, name.block, name.registers) == ("9x1x1", "64x1x1", 0)


def test_copies_and_waits_add_up_by_kind_within_a_bound() -> None:
    recorder = Recorder()
    recorder.copy("h2d", 100, 5, pinned="true")
    recorder.copy("h2d", 50, 5, pinned="true")
    recorder.copy("d2h", 1, 2)
    for number in range(100):
        recorder.sync(f"kind {number}", 2)
        recorder.copy(f"kind {number}", 1, 1)
    counters = recorder.counters(0, dropped_frames=3)
    assert ("h2d", "true", 150, 2, 10) in counters.memcpy
    assert sum(row[3] for row in counters.memcpy) == 103
    assert sum(waited_ns for _, _, waited_ns in counters.sync) == 200
    assert max(len(counters.memcpy), len(counters.sync)) <= MAX_KINDS + 1
    assert counters.dropped_frames == 3


def test_the_cost_of_the_process_stands_with_the_device_used_first_for_ever() -> None:
    recorder = Recorder()
    recorder.observe("k", 1, device=3)
    recorder.observe("k", 1, device=0)
    recorder.charge(1000)
    assert recorder.counters(3, dropped_frames=1).overhead_ns >= 1000
    assert recorder.counters(0, dropped_frames=1).overhead_ns == 0


def test_time_of_kernels_is_reported_by_device_and_signature() -> None:
    recorder = Recorder()
    recorder.observe("a", 10)
    recorder.observe("b", 20, device=1)
    recorder.count("b", 4, device=1)
    assert recorder.spent(["b"]) == {(1, "b"): Spent(20, 1, 5)}
    assert len(recorder.spent([])) == 2


def test_steps_are_reported_for_the_device_that_was_used_first() -> None:
    recorder = Recorder()
    recorder.observe("k", 5, device=1)
    recorder.observe("k", 5, device=0)
    for step in range(3):
        recorder.progress.advance(1_000 + 10 * step, 32)
    home = recorder.counters(1, dropped_frames=0)
    assert (home.steps, home.items, home.step_ns) == (3, 96, 20)
    other = recorder.counters(0, dropped_frames=0)
    times = other.running_ns, other.measured_ns, other.waits_measured_ns
    assert other == Counters(0, running_ns=times[0], measured_ns=times[1], waits_measured_ns=times[2])
    check_counters(home, 2)


@given(st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=3), st.none(), st.booleans()), max_size=20))
def test_an_impossible_number_of_items_raises_nothing_and_counts_the_step(given_items: list[object]) -> None:
    recorder = Recorder()
    recorder.observe("k", 5)
    for step, items in enumerate(given_items):
        recorder.progress.advance(step, items)  # type: ignore[arg-type]
    counters = recorder.counters(0, dropped_frames=0)
    assert counters.steps == len(given_items)
    check_counters(counters, 1)


def test_items_of_numpy_count() -> None:
    recorder = Recorder()
    recorder.progress.advance(1, np.int64(7))  # type: ignore[arg-type]
    assert recorder.progress.items == 7
