"""Times that no GPU can have had: left out or cut, counted, and said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelcast.exporter.replay import Trace
from kernelcast.exporter.replay.formats import kineto

UNIX = 1_722_374_400_123_456
HOUR = 3_600_000_000


def kernel(ts: Any, dur: Any, *, stream: int = 7, **more: Any) -> dict[str, Any]:
    arguments = {"device": 0, "stream": stream, **more}
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": arguments}


def read(folder: Path, events: list[dict[str, Any]], **head: Any) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return kineto.read(path)


def durations(trace: Trace) -> list[int]:
    order = np.argsort(trace.launches.spans.start_ns, kind="stable")
    found: list[int] = trace.launches.spans.duration_ns[order].tolist()
    return found


def said(trace: Trace) -> str:
    return "; ".join(trace.notes)


def test_a_time_before_the_recordings_origin_is_a_time(tmp_path: Path) -> None:
    """google/perfetto issue 107: tools that align traces count from an event within them."""
    trace = read(tmp_path, [kernel(-700.5, 4), kernel(-0.25, 3), kernel(9, 2)])
    assert (durations(trace), trace.unusable) == ([4_000, 3_000, 2_000], 0)
    assert trace.start_ns == -700_500


def test_an_event_at_0_among_unix_times_is_left_out_and_counted(tmp_path: Path) -> None:
    trace = read(tmp_path, [kernel(0, 4), kernel(UNIX, 3)])
    assert (durations(trace), trace.unusable, trace.read_ratio) == ([3_000], 1, 0.5)
    assert trace.end_ns - trace.start_ns == 3_000


def test_half_of_a_trace_at_0_does_not_move_it(tmp_path: Path) -> None:
    """pytorch/pytorch issue 188481: the second half of a trace has `"ts": 0.000, "dur": 0.000`."""
    events = [kernel(5e9 + 10 * at, 2) for at in range(10)] + [kernel(0.0, 0.0)] * 40
    trace = read(tmp_path, events, baseTimeNanoseconds=1_751_410_836_000_000_000)
    assert (len(durations(trace)), trace.unusable) == (10, 40)
    assert trace.start_ns == 1_751_410_836_000_000_000 + 5_000_000_000_000


@pytest.mark.parametrize("strange", [UNIX * 1000, UNIX - 40 * 365 * 24 * HOUR, 17.5])
def test_an_event_of_another_clock_is_left_out_wherever_it_lies(tmp_path: Path, strange: float) -> None:
    """Nanoseconds in place of microseconds, another epoch, a time since the start."""
    trace = read(tmp_path, [kernel(strange, 4), kernel(UNIX, 3), kernel(UNIX + 50, 3)])
    assert (durations(trace), trace.unusable) == ([3_000, 3_000], 1)
    assert trace.end_ns - trace.start_ns == 53_000


def test_few_events_hours_away_are_left_out_and_a_long_pause_is_kept(tmp_path: Path) -> None:
    many = [kernel(UNIX + 10 * at, 2) for at in range(300)]
    trace = read(tmp_path, [*many, kernel(UNIX - 3 * HOUR, 2)])
    assert (len(durations(trace)), trace.unusable) == (300, 1)
    assert "1 event of the GPU left out" in said(trace)
    assert "3.0 hours" in said(trace)
    paused = read(tmp_path, [*many, *(kernel(UNIX + 3 * HOUR + 10 * at, 2) for at in range(100))])
    assert (len(durations(paused)), paused.unusable) == (400, 0)


def test_a_wait_of_another_clock_does_not_lengthen_the_replay(tmp_path: Path) -> None:
    wait = {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "ts": 3, "dur": 1, "args": {}}
    trace = read(tmp_path, [wait, kernel(UNIX, 3), kernel(UNIX + 50, 3)])
    assert (len(trace.syncs.spans), trace.unusable) == (0, 1)


def test_a_kernel_that_swallows_later_ones_of_its_stream_is_cut_at_the_next_start(tmp_path: Path) -> None:
    """AMD-AGI/TraceLens issue 669: ROCm's tracer records 1.6 s over 20 later kernels."""
    trace = read(tmp_path, [kernel(1e6, 1.6e6), *(kernel(1e6 + 50 * at, 40) for at in range(2, 22))])
    assert durations(trace) == [100_000, *[40_000] * 20]
    assert "1 kernel cut at the next start on its stream, by 1.599900 s in all" in said(trace)
    assert (trace.unusable, trace.read_ratio) == (0, 1.0)


def test_every_one_of_several_wrong_durations_is_cut(tmp_path: Path) -> None:
    starts = (1_000, 1_100, 1_200, 1_300)
    trace = read(tmp_path, [kernel(start, dur) for start, dur in zip(starts, (9_000, 8_000, 7_000, 50), strict=True)])
    assert durations(trace) == [100_000, 100_000, 100_000, 50_000]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1_000, 30.0), (1_026.5, 20)),  # starts before the one before it ends: programmatic dependent launch
        ((1_000, 30.0), (1_024, 3)),  # short enough to end within the overlap
        ((1_000, 500.0), (1_100, 900)),  # a long overlap, but in order
        ((1_000, 5), (1_005, 0)),  # whole microseconds
    ],
)
def test_kernels_that_overlap_in_order_keep_their_durations(
    tmp_path: Path, first: tuple[float, float], second: tuple[float, float]
) -> None:
    trace = read(tmp_path, [kernel(*first), kernel(*second)])
    assert durations(trace) == [round(first[1] * 1000), round(second[1] * 1000)]
    assert "cut" not in said(trace)


def test_kernels_beside_each_other_are_no_fault_in_other_streams_contexts_and_one_graph(tmp_path: Path) -> None:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 9, "tid": 9, "ts": 1, "dur": 1}
    events = [
        kernel(1_000, 900, stream=1),
        kernel(1_100, 10, stream=2),
        kernel(1_200, 10, stream=1, context=2),
        {**call, "args": {"correlation": 5}},
        kernel(1_000, 900, stream=3, correlation=5),
        kernel(1_300, 10, stream=3, correlation=5),
    ]
    assert sorted(durations(read(tmp_path, events))) == [10_000, 10_000, 10_000, 900_000, 900_000]


def test_times_as_text_and_unix_times_with_a_fraction_are_exact_to_the_nanosecond(tmp_path: Path) -> None:
    """Ascend/pytorch issue 133 writes text; PyTorch 2.2 wrote Unix microseconds that no float holds."""
    path = tmp_path / "trace.json"
    text = json.dumps({"traceEvents": [kernel(1, 2), kernel(3, 4)]})
    path.write_text(
        text.replace('"ts": 1,', '"ts": "1722374400123456.789",')
        .replace('"dur": 2,', '"dur": "12.345",')
        .replace('"ts": 3,', '"ts": 1722374400123556.123,')
    )
    trace = kineto.read(path)
    assert sorted(trace.launches.spans.start_ns.tolist()) == [1_722_374_400_123_456_789, 1_722_374_400_123_556_123]
    assert durations(trace) == [12_345, 4_000]
    assert "recorded to" not in said(trace)


@pytest.mark.parametrize(
    ("starts", "step"),
    [
        ((UNIX, UNIX + 7), "microsecond"),
        ((f"{UNIX}.250", f"{UNIX + 7}.750"), "250 ns"),  # of a float, written with three digits
        ((UNIX + 0.5, UNIX + 7.5), "500 ns"),
    ],
)
def test_a_precision_that_the_file_lacks_is_said(tmp_path: Path, starts: tuple[Any, Any], step: str) -> None:
    trace = read(tmp_path, [kernel(start, 2.5) for start in starts])
    assert f"times of kernels are recorded to the {step}: what is shorter is lost" in said(trace)


@pytest.mark.parametrize("strange", ["soon", "", "nan", "-inf", "1e999999", "1e-999999999", "0x10", "١٢٣"])
def test_text_that_is_no_time_is_survived(tmp_path: Path, strange: str) -> None:
    trace = read(tmp_path, [kernel(UNIX, 2), kernel(UNIX + 5, strange)])
    assert len(trace.launches.spans) + trace.unusable == 2
