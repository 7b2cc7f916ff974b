"""The decoder in C against Python's own arithmetic: histograms, sums, and unions of intervals."""

import ctypes
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.service.probe.cupti.double import SMALL, Double, copied
from tests.service.probe.cupti.records import LENGTHS, START_NS, VERSIONS, Packer, layout_of
from tests.service.probe.cupti.wheels import WHEELS, real_cupti
from tests.support.examples import parser_examples

from kernelcast.exporter.replay.occupation import COLLECTIVE, COMPUTE, COPY, Occupation
from kernelcast.exporter.replay.trace import EventSpans
from kernelcast.probe.cupti import build
from kernelcast.probe.cupti.library import Cupti, CuptiError, open_cupti
from kernelcast.probe.cupti.native import STATES, ActivityDecoder, Drain, NativeError, NativeSettings
from kernelcast.wire.histogram import LOWEST_BUCKET, WHOLE_BOUNDS_NS, DurationTotals, bucket_index


def drained(decoder: ActivityDecoder, *, final: bool = True) -> Drain:
    assert decoder.settle(5_000)
    return decoder.drain(final=final)


def test_every_duration_around_every_bound_falls_into_pythons_bucket(decoder: ActivityDecoder) -> None:
    double_range = {bound + step for bound in WHOLE_BOUNDS_NS for step in range(-2, 3)}
    durations = sorted({*range(1, 5_000), *(value for value in double_range if 0 < value < 2**62), 2**61, 2**62})
    decoder.open(SMALL, 1)
    assert decoder.buckets(durations) == [bucket_index(duration) for duration in durations]
    assert (LOWEST_BUCKET, len(WHOLE_BOUNDS_NS)) == (-240, 401)


@parser_examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(durations=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**46)), min_size=1, max_size=200))
def test_durations_of_a_kernel_add_up_as_python_adds_them(
    durations: list[int], built: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, packer, expected = tmp_path_factory.mktemp("own"), Packer(), DurationTotals()
    decoder = ActivityDecoder(copied(built / build.LIBRARY_NAME, folder))
    double = Double(copied(built / "libcupti_double.so", folder))
    double.connect(decoder)
    double.bring([packer.kernel("k", START_NS, START_NS + duration) for duration in durations])
    for duration in durations:
        expected.observe(duration)
    (row,) = drained(decoder).kernels
    decoder.close()
    assert row.durations == expected
    assert row.launches == len(durations)


_INTERVAL = st.tuples(st.sampled_from("kcn"), st.integers(0, 400), st.integers(0, 120))


@parser_examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(intervals=st.lists(_INTERVAL, min_size=1, max_size=60), seed=st.integers(0, 2**16))
def test_a_devices_time_is_the_union_of_its_activities_in_any_order(
    intervals: list[tuple[str, int, int]], seed: int, built: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, packer = tmp_path_factory.mktemp("own"), Packer()
    decoder = ActivityDecoder(copied(built / build.LIBRARY_NAME, folder))
    double = Double(copied(built / "libcupti_double.so", folder))
    double.connect(decoder)
    records = [record(packer, kind, START_NS + start, length) for kind, start, length in intervals]
    random.Random(seed).shuffle(records)
    double.bring(records[::2], records[1::2])
    (device,) = drained(decoder).devices
    decoder.close()
    assert device.state_ns == expected_states(intervals)
    assert device.late == 0
    gaps = device.gaps
    assert gaps.sum_ns == device.state_ns[STATES.index("idle")]
    assert (gaps.count > 0) == (gaps.sum_ns > 0)


def record(packer: Packer, kind: str, start_ns: int, length_ns: int) -> bytes:
    if kind == "c":
        return packer.copy(1, 8, start_ns, start_ns + length_ns)
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if kind == "n" else "gemm"
    return packer.kernel(name, start_ns, start_ns + length_ns)


def expected_states(intervals: list[tuple[str, int, int]]) -> tuple[int, ...]:
    kinds = []
    for letter, kind in (("k", COMPUTE), ("n", COLLECTIVE), ("c", COPY)):
        chosen = [(start, length) for found, start, length in intervals if found == letter]
        columns = np.array(chosen, dtype=np.int64).reshape(-1, 2).T
        kinds.append((kind, EventSpans(columns[0], columns[1], np.zeros(len(chosen), dtype=np.int64))))
    begin = min(start for _, start, _ in intervals)
    end = max(start + length for _, start, length in intervals)
    known = Occupation(tuple(kinds), start_ns=begin, end_ns=end).until(end)
    return (*(time_ns for _, time_ns in known), 0)  # nothing is unknown between two activities


def test_time_within_the_window_waits_for_what_comes_late(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(SMALL.buffer_bytes, SMALL.buffers, window_ns=1_000, quiet_ns=10**9))
    double.bring([packer.kernel("a", START_NS + 5_000, START_NS + 6_000)])
    assert sum(drained(decoder, final=False).devices[0].state_ns) == 0
    double.bring([packer.kernel("b", START_NS, START_NS + 100)])
    (first,) = drained(decoder, final=False).devices
    assert (first.state_ns, first.late) == ((100, 0, 0, 0, 4_900, 0), 0)
    double.bring([packer.kernel("c", START_NS + 4_000, START_NS + 5_500)])
    (second,) = drained(decoder).devices
    assert (second.state_ns, second.late) == ((1_000, 0, 0, 0, 0, 0), 1), "what began before the window is cut off"


def test_time_without_records_is_unknown_after_a_while_and_idle_before_a_record(
    decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(SMALL.buffer_bytes, SMALL.buffers, window_ns=1_000, quiet_ns=10_000))
    double.bring([packer.kernel("a", START_NS, START_NS + 500)])
    assert decoder.settle(5_000)
    (device,) = decoder.drain(START_NS + 30_000).devices
    assert device.state_ns == (500, 0, 0, 0, 0, 19_500)
    double.bring([packer.kernel("a", START_NS + 40_000, START_NS + 40_500)])
    (device,) = drained(decoder).devices
    assert (device.state_ns, device.gaps.sum_ns) == ((500, 0, 0, 0, 20_000, 0), 39_500)


def test_a_kernel_that_runs_for_long_has_been_unknown_and_never_idle(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(SMALL.buffer_bytes, SMALL.buffers, window_ns=1_000, quiet_ns=10_000))
    double.bring([packer.kernel("a", START_NS, START_NS + 500)])
    assert decoder.settle(5_000)
    (before,) = decoder.drain(START_NS + 30_000).devices
    double.bring([packer.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", START_NS + 600, START_NS + 40_000)])
    (after,) = drained(decoder).devices
    assert (before.state_ns, after.state_ns) == ((500, 0, 0, 0, 0, 19_500), (0, 20_000, 0, 0, 0, 0))


def test_device_time_restarts_after_a_last_drain(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    double.bring([packer.kernel("a", START_NS, START_NS + 500)])
    drained(decoder)
    double.bring([packer.kernel("a", START_NS + 10**12, START_NS + 10**12 + 700)])
    (device,) = drained(decoder).devices
    assert (device.state_ns, device.gaps.count) == ((700, 0, 0, 0, 0, 0), 0)


def test_more_activities_than_the_decoder_keeps_are_summed_up_early(decoder: ActivityDecoder, double: Double) -> None:
    packer, count = Packer(), 70_000
    double.connect(decoder)
    for begin in range(0, count, 10_000):
        double.bring(
            [packer.fill(1, START_NS + 10 * at, START_NS + 10 * at + 4) for at in range(begin, begin + 10_000)]
        )
        assert decoder.settle(5_000)
    (device,) = drained(decoder).devices
    assert device.state_ns == (0, 0, count * 4, 0, (count - 1) * 6, 0)
    assert (device.memsets.operations, device.memsets.bytes, device.late) == (count, count, 0)


@pytest.mark.parametrize("version", LENGTHS)
def test_fields_are_found_in_records_of_every_known_version(
    version: str, decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer(version)
    versioned = Double(double.path, version)
    versioned.connect(decoder)
    kernel = packer.kernel(
        "k",
        START_NS + 300,
        START_NS + 800,
        device=3,
        context=9,
        grid=(5, 6, 7),
        block=(8, 9, 2),
        registers=255,
        shared=(48, 4096),
        local=16,
        queued_ns=START_NS + 100,
        submitted_ns=START_NS + 200,
        graph=77,
    )
    copies = [packer.copy(2, 1_000, START_NS, START_NS + 10, source=3, destination=1, device=3)]
    copies.append(packer.copy(10, 2_000, START_NS, START_NS + 20, source=3, device=3, record=22))
    versioned.bring([kernel, *copies, packer.sync(3, START_NS, START_NS + 40, context=9), packer.other(), kernel])
    drain = drained(decoder)
    (row,) = drain.kernels
    assert row[:6] == (3, 2, 2, 2, 2, 400)
    assert row.variants == [(255, (5, 6, 7), (8, 9, 2), 48, 4096, 16, 2, 2, 1_000, 500_000)]
    (device,) = drain.devices
    assert (device.device, device.copies[2][1], device.copies[10][0]) == (3, (1, 1_000, 10), (1, 2_000, 20))
    assert device.syncs[3] == (1, 0, 40)
    assert drain.names == {0: "", 1: "", 2: "k"}
    assert (drain.counts.records, drain.counts.other_kinds, drain.counts.malformed) == (5, 1, 0)


def test_submission_time_is_used_where_queueing_was_not_timed(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    double.bring(
        [packer.kernel("k", START_NS, START_NS + 1, submitted_ns=START_NS - 30), packer.kernel("k", START_NS, START_NS)]
    )
    (row,) = drained(decoder).kernels
    assert (row.launches, row.queue_delays, row.queue_delay_ns) == (2, 1, 30)


def test_a_launch_without_times_counts_but_is_not_timed(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    double.bring([packer.kernel("k", 0, 0), packer.kernel("k", START_NS + 5, START_NS), packer.copy(1, 8, 0, 0)])
    drain = drained(decoder)
    (row,) = drain.kernels
    assert (row.launches, row.durations.count, drain.counts.untimed) == (2, 0, 3)
    assert drain.devices[0].copies[1][2] == (1, 8, 0)


def test_waits_belong_to_the_device_of_their_context(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    kernels = [packer.kernel("k", START_NS, START_NS, device=at, context=at + 1) for at in range(3)]
    double.bring([*kernels, *(packer.sync(4, START_NS, START_NS + 10 * at, context=at) for at in (1, 2, 3))])
    waits = [device.syncs[4].ns for device in drained(decoder).devices]
    assert waits == [10, 20, 30]


def test_a_device_beyond_the_limit_is_counted_and_left_out(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    double.bring([packer.kernel("k", START_NS, START_NS, device=64), packer.copy(1, 1, 1, 1, device=2**31)])
    drain = drained(decoder)
    assert (drain.kernels, drain.devices, drain.counts.malformed) == ([], [], 2)


def test_a_name_that_changes_behind_its_pointer_is_another_kernel(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    one = packer.kernel("first", START_NS, START_NS)
    double.bring([one])
    (first,) = drained(decoder).kernels
    ctypes.memmove(packer._address("first"), b"later", 5)
    double.bring([one])
    drain = drained(decoder)
    assert drain.names[drain.kernels[0].name] == "later"
    assert drain.kernels[0].name != first.name


def test_a_name_too_long_ends_in_a_hash_of_the_whole(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    names = ["n" * 20_000 + end for end in "ab"]
    double.bring([packer.kernel(name, START_NS, START_NS) for name in (*names, *names)])
    drain = drained(decoder)
    found = [drain.names[row.name] for row in drain.kernels]
    assert [row.launches for row in drain.kernels] == [2, 2]
    assert all(len(name) == 16_384 + 17 for name in found)
    assert found[0] != found[1]


def test_more_kernels_than_the_decoder_keeps_count_together(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(SMALL.buffer_bytes, buffers=256))
    launches = [packer.kernel(f"k{at}", START_NS, START_NS + 1) for at in range(5_000)]
    double.bring(launches, launches)
    drain = drained(decoder)
    (other,) = [kernel for kernel in drain.kernels if kernel.name == 0]
    assert sum(kernel.launches for kernel in drain.kernels) == 10_000
    assert sum(kernel.durations.count for kernel in drain.kernels) == 10_000
    assert len(drain.kernels) <= 4_096
    assert (other.launches >= 1_800, other.variants) == (True, [])
    double.bring(launches[:10])
    assert len(drained(decoder).kernels) == 10, "the next interval has its own room"


def test_more_configurations_than_the_decoder_keeps_leave_the_kernel_whole(
    decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(SMALL.buffer_bytes, buffers=256))
    launches = [packer.kernel(f"k{at % 50}", START_NS, START_NS + 1, grid=(at + 1, 1, 1)) for at in range(6_000)]
    double.bring(launches, launches)
    drain = drained(decoder)
    assert [kernel.launches for kernel in drain.kernels] == [240] * 50
    told_apart = [variant for kernel in drain.kernels for variant in kernel.variants]
    assert len(told_apart) == 4_096
    assert sum(variant.launches for variant in told_apart) + drain.counts.crowded == 12_000
    double.bring(launches[:10])
    assert len(drained(decoder).kernels[0].variants) == 1


def test_with_no_buffer_to_be_had_records_are_dropped_and_counted(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(buffer_bytes=4_096, buffers=2))
    double.library.double_take(2)
    double.bring([packer.kernel("k", START_NS, START_NS)] * 3)
    drain = drained(decoder)
    assert (drain.kernels, drain.counts.refused_buffers) == ([], 3)


@pytest.mark.parametrize(("walk", "counted"), [("double_beyond", 1), ("double_endless", 1)])
def test_a_walk_beyond_the_buffer_or_in_circles_ends(
    walk: str, counted: int, decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.connect(decoder, walk=walk)
    double.bring([packer.kernel("k", START_NS, START_NS)])
    assert drained(decoder).counts.malformed == counted


def test_a_record_cut_off_by_the_buffers_end_is_not_read(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    buffer = double.library.double_take(1)
    whole, part = packer.kernel("k", START_NS, START_NS), packer.kernel("cut", START_NS, START_NS)[:150]
    ctypes.memmove(buffer, whole + part, len(whole + part))
    double.library.double_return(ctypes.c_void_p(buffer), ctypes.c_size_t(len(whole + part)))
    drain = drained(decoder)
    assert [drain.names[row.name] for row in drain.kernels] == ["k"]
    assert drain.counts.malformed == 1


@pytest.mark.parametrize("error", [21, 1, 999])
def test_records_behind_an_unexpected_answer_are_counted_by_their_length(
    error: int, decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.library.double_breaks(10, error)
    double.library.double_break_walk(1)
    double.connect(decoder)
    double.bring([packer.kernel("k", START_NS, START_NS + 1)] * 100)
    drain = drained(decoder)
    assert (drain.kernels[0].launches, drain.counts.records) == (10, 10)
    assert (drain.counts.unread, drain.counts.malformed) == (90, 0)


def test_a_buffer_that_is_refused_at_its_first_record_counts_as_records_of_the_shortest_kernel(
    decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.library.double_breaks(0, 1)
    double.library.double_break_walk(1)
    double.connect(decoder)
    double.bring([packer.kernel("k", START_NS, START_NS + 1)] * 100)
    drain = drained(decoder)
    assert (drain.kernels, drain.counts.unread) == ([], 100 * 208 // 160)


def test_records_behind_a_malformed_one_are_counted_too(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.library.double_breaks(10, 0)
    double.library.double_break_walk(1)
    double.connect(decoder)
    double.bring([packer.kernel("k", START_NS, START_NS + 1)] * 100)
    drain = drained(decoder)
    assert (drain.kernels[0].launches, drain.counts.malformed, drain.counts.unread) == (10, 1, 89)


@parser_examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(min_size=8, max_size=2_000), valid=st.integers(0, 70_000))
def test_noise_in_a_buffer_harms_nothing(
    noise: bytes, valid: int, built: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, packer = tmp_path_factory.mktemp("own"), Packer()
    decoder = ActivityDecoder(copied(built / build.LIBRARY_NAME, folder))
    double = Double(copied(built / "libcupti_double.so", folder))
    double.connect(decoder)
    buffer = double.library.double_take(1)
    fill = packer.fill(1, START_NS, START_NS)
    ctypes.memmove(buffer, fill + noise, len(fill + noise))
    double.library.double_return(ctypes.c_void_p(buffer), ctypes.c_size_t(valid))
    double.bring([packer.fill(1, START_NS, START_NS)])
    assert drained(decoder).devices[0].memsets.operations >= 1
    decoder.close()


def test_a_foreign_or_repeated_buffer_is_left_alone(decoder: ActivityDecoder, double: Double) -> None:
    double.connect(decoder)
    foreign = ctypes.create_string_buffer(4_096)
    own = double.library.double_take(1)
    for address in (ctypes.addressof(foreign), own + 8, own, own):
        double.library.double_return(ctypes.c_void_p(address), ctypes.c_size_t(0))
    assert drained(decoder).counts.malformed == 3


def test_many_threads_lose_nothing(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(buffer_bytes=16 * 1024, buffers=1024))
    shares = [[packer.kernel(f"k{at}", START_NS + 1, START_NS + 2, device=at % 2)] * 2_000 for at in range(8)]
    collected: list[Drain] = []
    done = threading.Event()

    def collect() -> None:
        while not done.is_set():
            collected.append(decoder.drain())

    reader = threading.Thread(target=collect)
    reader.start()
    double.bring(*shares)
    assert decoder.settle(10_000)
    done.set()
    reader.join()
    collected.append(drained(decoder))
    assert sum(row.launches for drain in collected for row in drain.kernels) == 16_000
    assert sum(drain.counts.records for drain in collected) == 16_000
    assert sum(drain.counts.refused_buffers for drain in collected) == 0
    assert sum(drain.counts.held_ns for drain in collected) > 0


def test_what_comes_after_the_end_finds_nothing_open_and_may_begin_again(
    decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.connect(decoder)
    late = double.library.double_take(1)
    decoder.close()
    double.bring([packer.kernel("k", START_NS, START_NS)])
    double.library.double_return(ctypes.c_void_p(late), ctypes.c_size_t(208))
    assert drained(decoder).kernels == []
    double.connect(decoder)
    double.bring([packer.kernel("k", START_NS, START_NS)])
    assert drained(decoder).kernels[0].launches == 1
    with pytest.raises(NativeError, match="errno"):
        decoder.open(SMALL, double.address("cuptiActivityGetNextRecord"))


def test_a_buffer_that_came_back_after_the_end_is_clear_at_the_next_beginning(
    decoder: ActivityDecoder, double: Double
) -> None:
    double.connect(decoder)
    late = double.library.double_take(1)
    decoder.close()
    ctypes.memset(late, 0xAA, 208)
    double.library.double_return(ctypes.c_void_p(late), ctypes.c_size_t(208))
    double.connect(decoder)
    first = double.library.double_take(1)
    assert first == late
    assert ctypes.string_at(first, 208) == bytes(208)


def test_a_forked_child_is_left_alone(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder)
    child = os.fork()
    if child == 0:
        double.bring([packer.kernel("k", START_NS, START_NS)])
        empty = decoder.drain(final=True)
        decoder.close()
        os._exit(0 if empty.kernels == [] and decoder.settle(1_000) else 1)
    assert os.waitpid(child, 0)[1] == 0
    double.bring([packer.kernel("k", START_NS, START_NS)])
    assert drained(decoder).kernels[0].launches == 1


def test_a_decoder_that_was_not_built_says_so(tmp_path: Path) -> None:
    with pytest.raises(NativeError, match="installed without a C compiler"):
        ActivityDecoder(tmp_path / build.LIBRARY_NAME)
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    with pytest.raises(NativeError, match="install kernelcast again"):
        ActivityDecoder(broken)


def test_unusable_settings_are_refused(decoder: ActivityDecoder) -> None:
    for wrong in (NativeSettings(buffer_bytes=100), NativeSettings(buffers=1), NativeSettings(buffers=5_000)):
        with pytest.raises(NativeError, match="errno 22"):
            decoder.open(wrong, 1)


@pytest.mark.parametrize("version", [*WHEELS, "installed"])
def test_nvidias_own_walk_goes_over_our_records(
    version: str, decoder: ActivityDecoder, double: Double, tmp_path: Path
) -> None:
    """The lengths of records are NVIDIA's business; this is where they would be found to have changed."""
    real = installed_cupti() if version == "installed" else real_cupti(version, tmp_path)
    written = layout_of(real.version)
    if written is None:
        pytest.skip(f"the lengths of CUPTI {real.version}'s records are not written down in records.py")
    packer = Packer(written)
    Double(double.path, written).connect(decoder, next_record=real.next_record)
    one = [packer.kernel("k", START_NS, START_NS + 5), packer.copy(1, 8, START_NS, START_NS + 3)]
    one += [packer.fill(4, START_NS, START_NS + 2), packer.sync(3, START_NS, START_NS + 9)]
    one += [packer.copy(10, 16, START_NS, START_NS + 4, record=22)]
    double.bring(one * 100)
    drain = drained(decoder)
    kernels = {row.name: row for row in drain.kernels}
    (device,) = drain.devices
    assert (kernels[2].launches, kernels[2].durations.sum_ns) == (100, 500)
    assert (device.copies[1][2], device.copies[10][2]) == ((100, 800, 300), (100, 1_600, 400))
    assert (device.memsets, device.syncs[3]) == ((100, 400, 200), (100, 0, 900))
    assert (drain.counts.records, drain.counts.malformed, drain.counts.unread) == (500, 0, 0)


def installed_cupti() -> Cupti:
    try:
        return open_cupti(os.environ)
    except CuptiError as error:
        pytest.skip(f"no usable libcupti here, name one in KERNELCAST_CUPTI_LIBRARY: {error}")


@pytest.mark.parametrize("version", WHEELS)
def test_nvidias_library_is_one_that_the_probe_knows(version: str, tmp_path: Path) -> None:
    """Without a driver a call that needs one is an error with a reason; attributes that are refused are none."""
    real = real_cupti(version, tmp_path)
    assert real.version == VERSIONS[version]
    assert not real.must_have_buffers
    real.configure()
    real.restore()
    with pytest.raises(CuptiError, match=r"no driver|without a driver"):
        real.enable()
    real.disable()
