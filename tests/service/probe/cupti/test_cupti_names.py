"""More kernels, names and buckets than the decoder keeps: launches count in their class, and losses are counted."""

from collections.abc import Iterable

import pytest
from tests.service.probe.cupti.double import SMALL, Double
from tests.service.probe.cupti.records import START_NS, Packer

from kernelcast.probe.cupti.deltas import Absorber
from kernelcast.probe.cupti.native import (
    NO_NAME,
    NO_NAME_COLLECTIVE,
    STATES,
    ActivityDecoder,
    Drain,
    NativeSettings,
)
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.wire.kernels import OTHER, OTHER_COLLECTIVES

NAMES = 4_096
ROOMY = NativeSettings(SMALL.buffer_bytes, buffers=256)
RESERVED = {NO_NAME, NO_NAME_COLLECTIVE}


def launches(packer: Packer, names: Iterable[str]) -> list[bytes]:
    """One launch of 7 ns for each name, one after another."""
    return [packer.kernel(name, START_NS + 10 * at, START_NS + 10 * at + 7) for at, name in enumerate(names)]


def drained(decoder: ActivityDecoder) -> Drain:
    assert decoder.settle(5_000)
    return decoder.drain(final=True)


def fill(decoder: ActivityDecoder, double: Double, packer: Packer, names: Iterable[str]) -> None:
    """Use all room for names, in intervals in which all kernels have room."""
    kept = list(names)
    for begin in range(0, len(kept), 1_000):
        double.bring(launches(packer, kept[begin : begin + 1_000]))
        drained(decoder)


def check_beyond(decoder: ActivityDecoder, double: Double, packer: Packer) -> None:
    """Names beyond the limit: two collectives and three other kernels, each launched twice, and one without a name."""
    collectives = ["ncclDevKernel_AllReduce", "_ZN7deep_ep9intranode8dispatchEv"]
    names = [*collectives, "late_gemm", "late_relu", "triton_poi_fused_add_all_reduce_4"]
    double.bring([*launches(packer, [*names, *names]), packer.kernel(None, START_NS + 1_000, START_NS + 1_007)])
    drain = drained(decoder)
    rows = {row.name: row for row in drain.kernels}
    assert set(rows) == {NO_NAME, NO_NAME_COLLECTIVE}
    assert (rows[NO_NAME_COLLECTIVE].launches, rows[NO_NAME].launches) == (4, 7)
    assert (rows[NO_NAME_COLLECTIVE].durations.sum_ns, rows[NO_NAME].durations.sum_ns) == (28, 49)
    assert drain.counts.unnamed == 10
    state_ns = dict(zip(STATES, drain.devices[0].state_ns, strict=True))
    assert (state_ns["collective"], state_ns["compute"]) == (28, 49)
    assert not set(drain.names) - RESERVED


def test_names_beyond_the_limit_are_counted_and_keep_their_class(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, ROOMY)
    fill(decoder, double, packer, (f"k{at}" for at in range(NAMES - len(RESERVED))))
    check_beyond(decoder, double, packer)


def test_text_beyond_the_limit_is_counted_and_keeps_its_class(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, ROOMY)
    fill(decoder, double, packer, (f"{at:x<16384}" for at in range(2**22 // 16_384)))
    check_beyond(decoder, double, packer)


def test_the_last_name_with_room_has_its_own(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, ROOMY)
    fill(decoder, double, packer, (f"k{at}" for at in range(NAMES - len(RESERVED) - 1)))
    double.bring(launches(packer, ["last", "beyond"]))
    drain = drained(decoder)
    assert sorted(drain.names.values()) == ["last"]
    assert {row.name for row in drain.kernels} == {NAMES - 1, NO_NAME}


def test_collectives_beyond_the_kernels_of_an_interval_stay_collectives(
    decoder: ActivityDecoder, double: Double
) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(SMALL.buffer_bytes, buffers=1024))
    every = [packer.kernel(f"k{at % 4_000}", START_NS, START_NS, device=at // 4_000) for at in range(8_000)]
    double.bring([*every, packer.kernel("ncclDevKernel_Late", START_NS, START_NS + 5, device=1)])
    drain = drained(decoder)
    rows = {(row.device, row.name): row for row in drain.kernels}
    assert rows[1, NO_NAME_COLLECTIVE].launches == 1
    assert sum(row.launches for row in drain.kernels) == 8_001
    assert drain.counts.crowded == 8_001 - sum(row.launches for key, row in rows.items() if key[1] not in RESERVED)
    assert len(rows) <= NAMES


def test_durations_whose_buckets_find_no_room_are_counted(decoder: ActivityDecoder, double: Double) -> None:
    packer = Packer()
    double.connect(decoder, NativeSettings(SMALL.buffer_bytes, buffers=1024))
    lengths = [int(50 * 1.21**at) for at in range(70)]
    for kernel in range(1_000):
        double.bring([packer.kernel(f"k{kernel}", START_NS, START_NS + length) for length in lengths])
        assert decoder.settle(5_000)
    drain = drained(decoder)
    counted = sum(row.durations.count for row in drain.kernels)
    in_buckets = sum(sum(row.durations.buckets.values()) for row in drain.kernels)
    gaps = drain.devices[0].gaps
    assert counted == 70_000
    assert in_buckets < counted, "the test does not reach the limit"
    assert drain.counts.crowded == counted - in_buckets + gaps.count - sum(gaps.buckets.values())


def test_the_decoders_other_is_other_in_its_class_for_the_recorder(decoder: ActivityDecoder, double: Double) -> None:
    packer, recorder = Packer(), Recorder()
    absorber = Absorber(recorder, lambda name: name, lambda _: (8, 0))
    double.connect(decoder, ROOMY)
    for begin in (0, 2_047, 4_094):
        names = [f"k{at}" for at in range(begin, min(begin + 2_047, NAMES - len(RESERVED)))]
        double.bring(launches(packer, names or ["ncclDevKernel_AllReduce", "gemm"]))
        absorber.absorb(drained(decoder), 0)
    cells = {cell.signature: cell.launches for cell in recorder.cells(0)}
    assert cells[OTHER_COLLECTIVES] == 1
    assert sum(cells.values()) == NAMES - len(RESERVED) + 2
    assert OTHER in cells


@pytest.mark.parametrize(("signature", "kept"), [("ncclDevKernel_AllReduce", OTHER_COLLECTIVES), ("gemm", OTHER)])
def test_a_kernel_beyond_the_recorders_limit_keeps_its_class(signature: str, kept: str) -> None:
    recorder = Recorder(max_kernels=1)
    recorder.count("first", 3)
    recorder.count(signature, 2)
    assert {cell.signature: cell.launches for cell in recorder.cells(0)} == {"first": 3, kept: 2}
