"""Recorded jobs of others as raw activity records, through the whole method; the replay adds up the same by itself."""

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.service.probe.cupti.double import Double, copied
from tests.service.probe.cupti.records import START_NS, Packer, records_of

from kernelcast.exporter.replay import Trace, TraceSource
from kernelcast.exporter.replay.formats import kineto, nsys
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.probe.cupti import build
from kernelcast.probe.cupti.library import Cupti
from kernelcast.probe.cupti.method import ActivityEnvironment, ActivityMethod
from kernelcast.probe.cupti.native import ActivityDecoder, NativeSettings
from kernelcast.probe.cupti.occupancy import theoretical
from kernelcast.probe.cupti.watch import ProfilerWatch
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.texts import printable
from kernelcast.wire.frames import Counters

ROOT = Path(__file__).resolve().parents[4]
RECORDINGS = ("control", "alexnet", "mi250_minitoy", "sampled_rank-0", "sampled_rank-1", "cloverleaf")
THREADS = 3


def recording(*parts: str) -> Path:
    folder = Path(os.environ.get("KERNELCAST_SHARED_DATA", ROOT.parent / "shared" / "data"))
    path = folder.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not on this machine; set KERNELCAST_SHARED_DATA to the folder of recordings")
    return path


@cache
def read(name: str) -> Trace:
    if name == "cloverleaf":
        return nsys.read(next(recording("nsys").glob("*.sqlite")))
    return kineto.read(recording("kineto", f"{name}.json.gz"))


def measured(name: str, trace: Trace, double: Double, built: Path, folder: Path) -> Recorder:
    """The recorder after the method has had the recording's events in slices, each slice on several threads at once."""
    recorder, packer = Recorder(), Packer()
    native = NativeSettings(buffer_bytes=64 * 1024, buffers=64, window_ns=10**12)
    environment = ActivityEnvironment(
        {},
        lambda: ActivityDecoder(copied(built / build.LIBRARY_NAME, folder)),
        lambda _: Cupti(double.library),
        ProfilerWatch({}, {}, frozenset),
        lambda device: (8, 0),
        native=native,
        rest=0,
    )
    method_used = ActivityMethod(recorder, environment)
    assert method_used.start(), method_used.reason
    records = records_of(trace, packer, shift_ns=START_NS - trace.start_ns)
    for begin in range(0, len(records), 3_000):
        piece = records[begin : begin + 3_000]
        double.bring(*(piece[thread::THREADS] for thread in range(THREADS)))
        method_used.tick()
    method_used.stop()
    assert (recorder.refused, recorder.dropped_records) == (0, 0)
    return recorder


def replayed(trace: Trace) -> tuple[ProcessReport, ...]:
    source = TraceSource(trace, program="job", rank=trace.rank, hostname="node1", speed=None, start_ns=START_NS)
    return source.poll(START_NS).reports


@pytest.mark.parametrize("name", RECORDINGS)
def test_everything_a_recording_holds_is_counted_as_the_replay_counts_it(
    name: str, double: Double, built: Path, tmp_path: Path
) -> None:
    trace = read(name)
    recorder = measured(name, trace, double, built, tmp_path)
    for report in replayed(trace):
        assert report.counters is not None
        device = report.counters.device
        cells = recorder.cells(device)
        signatures = {one.kernel: printable(one.signature) for one in report.names}
        assert {cell.signature: (cell.launches, cell.durations) for cell in cells} == {
            signatures[row.kernel]: (row.launches, row.durations) for row in report.rows
        }
        assert_traffic(recorder.counters(device, dropped_frames=0), report.counters)


def assert_traffic(found: Counters, expected: Counters) -> None:
    assert sorted(found.memcpy) == sorted(row for row in expected.memcpy if row[3])
    assert {row[0]: row[-1] for row in found.sync} == {row[0]: row[-1] for row in expected.sync if row[-1]}


@pytest.mark.parametrize("name", RECORDINGS)
def test_busy_idle_and_overlap_are_the_unions_of_the_recordings_intervals(
    name: str, double: Double, built: Path, tmp_path: Path
) -> None:
    trace = read(name)
    recorder = measured(name, trace, double, built, tmp_path)
    for report in replayed(trace):
        assert report.counters is not None
        device = report.counters.device
        expected = dict(report.counters.device_time)
        expected["idle"] -= idle_at_the_ends(trace, device)
        found = recorder.counters(device, dropped_frames=0)
        assert dict(found.device_time) == {state: time_ns for state, time_ns in expected.items() if time_ns}
        gaps = found.launch_gaps
        assert (gaps.sum_ns if gaps else 0) == expected["idle"]


def idle_at_the_ends(trace: Trace, device: int) -> int:
    """The replay counts from the recording's first moment to its last, the method from the device's own."""
    every = [trace.launches.spans, trace.copies.spans, trace.memsets]
    starts = [int(spans.start_ns[spans.device == device].min()) for spans in every if (spans.device == device).any()]
    ends = [int(spans.end_ns[spans.device == device].max()) for spans in every if (spans.device == device).any()]
    return (min(starts) - trace.start_ns) + (trace.end_ns - max(ends))


@pytest.mark.parametrize("name", ["control", "alexnet"])
def test_theoretical_occupancy_equals_the_profilers_for_grids_that_fill_the_gpu(name: str) -> None:
    """Kineto estimates the achieved occupancy; with enough blocks for every multiprocessor it is the theoretical one.

    It wrote 0 for kernels with more shared memory than a block gets without asking, so those are left out.
    """
    with gzip.open(recording("kineto", f"{name}.json.gz"), "rt") as file:
        document = json.load(file)
    multiprocessors = document["deviceProperties"][0]["numSms"]
    compared = 0
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel" and event["args"]["est. achieved occupancy %"]:
            compared += occupancy_agrees(event["args"], multiprocessors)
    assert compared > 50


def occupancy_agrees(launch: dict[str, Any], multiprocessors: int) -> bool:
    """Whether there was something to compare."""
    (x, y, z), (grid_x, grid_y, grid_z) = launch["block"], launch["grid"]
    ratio = theoretical((8, 0), x * y * z, launch["registers per thread"], launch["shared memory"])
    resident = ratio * 64 / -(-x * y * z // 32)
    if grid_x * grid_y * grid_z < resident * multiprocessors:
        return False
    assert abs(ratio * 100 - launch["est. achieved occupancy %"]) <= 1, launch
    return True
