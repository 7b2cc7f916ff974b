"""Activity buffers that CUPTI filled on an H100, through the C decoder and the method; the programs' work is known."""

from pathlib import Path

import pytest
from tests.service.probe.cupti.double import SMALL, Double, copied
from tests.service.probe.cupti.h100 import Recording, recording
from tests.service.probe.cupti.records import LENGTHS
from tests.service.probe.cupti.wheels import real_cupti

from kernelcast.probe.cupti import build
from kernelcast.probe.cupti.library import Cupti
from kernelcast.probe.cupti.method import ActivityEnvironment, ActivityMethod
from kernelcast.probe.cupti.native import STATES, ActivityDecoder, Drain
from kernelcast.probe.cupti.watch import ProfilerWatch
from kernelcast.probe.recording.recorder import Recorder

MIB = 1024 * 1024
NAMES = ("cupygraph", "torch")


def decoded(decoder: ActivityDecoder, double: Double, recorded: Recording, next_record: int = 0) -> Drain:
    Double(double.path, "13.0").connect(decoder, SMALL, next_record=next_record)
    for buffer in recorded.buffers:
        double.bring([buffer])
        assert decoder.settle(10_000)
    return decoder.drain(final=True)


def check(drain: Drain, recorded: Recording) -> None:
    truth = recorded.truth
    kernels = {drain.names[row.name]: row for row in drain.kernels}
    assert {name: row.launches for name, row in kernels.items()} == truth.launches
    assert {name: row.durations.count for name, row in kernels.items()} == truth.launches
    assert {name: row.durations.sum_ns for name, row in kernels.items()} == truth.kernel_ns
    (device,) = drain.devices
    assert (device.state_ns, device.late) == (truth.state_ns(), 0)
    counts = drain.counts
    assert counts.records == truth.kinds.total()
    assert (counts.malformed, counts.unread, counts.other_kinds, counts.untimed, counts.unnamed) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_and_moment_of_a_recording_is_counted_once(
    name: str, decoder: ActivityDecoder, double: Double
) -> None:
    check(decoded(decoder, double, recording(name)), recording(name))


@pytest.mark.parametrize("name", NAMES)
def test_nvidias_own_walk_finds_the_same(name: str, decoder: ActivityDecoder, double: Double, tmp_path: Path) -> None:
    real = real_cupti("13.0", tmp_path)
    recorded = recording(name)
    assert real.version == recorded.version
    check(decoded(decoder, double, recorded, real.next_record), recorded)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_as_long_as_our_tests_write_them(name: str) -> None:
    recorded = recording(name)
    assert recorded.lengths == {kind: LENGTHS["13.0"][kind] for kind in recorded.lengths}


def test_the_programs_work_reaches_the_recorder(built: Path, double: Double, tmp_path: Path) -> None:
    recorder, recorded = Recorder(), recording("cupygraph")
    environment = ActivityEnvironment(
        {},
        lambda: ActivityDecoder(copied(built / build.LIBRARY_NAME, tmp_path)),
        lambda _: Cupti(Double(double.path, "13.0").library),
        ProfilerWatch({}, {}, frozenset),
        lambda device: (9, 0),
        native=SMALL,
        rest=0,
    )
    method_used = ActivityMethod(recorder, environment)
    assert method_used.start(), method_used.reason
    for buffer in recorded.buffers:
        double.bring([buffer])
        method_used.tick()
    method_used.stop()
    rows = {cell.signature: (recorder.take(cell), cell.name()) for cell in recorder.cells(0)}
    assert {name: (row.launches, row.graph_launches) for name, (row, _) in rows.items()} == {
        "spin": (2_000 + 50 * 20, 50 * 20),
        "touch": (20_000, 0),
    }
    assert [(name.grid, name.block) for _, name in (rows["spin"], rows["touch"])] == [
        ("1x1x1", "64x1x1"),
        ("1x1x1", "128x1x1"),
    ]
    counters = recorder.counters(0, dropped_frames=0)
    assert {(kind, pinned): (copied_bytes, count) for kind, pinned, copied_bytes, count, _ in counters.memcpy} == {
        ("h2d", "true"): (20 * MIB, 20),
        ("h2d", "false"): (10 * MIB, 10),
        ("d2h", "true"): (5 * MIB, 5),
        ("d2d", ""): (7 * MIB, 7),
        ("memset", ""): (9 * MIB, 9),
    }
    assert {kind: count for kind, count, _ in counters.sync} == {"event": 13, "stream": 12, "context": 2}
    expected = dict(zip(STATES, recorded.truth.state_ns(), strict=True))
    assert dict(counters.device_time) == {state: time_ns for state, time_ns in expected.items() if time_ns}
    assert (counters.dropped_records, counters.untimed_records) == (0, 0)


def test_a_training_step_launches_its_kernels_as_often_as_it_ran() -> None:
    launches = recording("torch").truth.launches
    assert len(launches) == 24
    assert {count % 200 for count in launches.values()} == {0}
