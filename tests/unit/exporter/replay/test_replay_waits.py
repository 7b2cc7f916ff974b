"""Waits of Kineto traces without `cuda_sync` events, which PyTorch leaves off by default: from the runtime's calls."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.service.require import shared_data

from kernelcast.exporter.replay import Trace, TraceSource
from kernelcast.exporter.replay.formats import kineto

NOW = 1_760_000_000_000_000_000
Rows = dict[tuple[int, str], tuple[int, int]]


def event(category: str, name: str, ts: float, dur: float, *, tid: int = 7, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 4711, "tid": tid, "ts": ts, "dur": dur, "args": arguments}


def written(folder: Path, *events: dict[str, Any]) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return kineto.read(path)


def waits(trace: Trace) -> Rows:
    """(GPU, type) to (calls, nanoseconds), as the replay reports them."""
    source = TraceSource(trace, program="job", rank="", hostname="node1", speed=None, start_ns=NOW)
    found: Rows = {}
    for report in source.poll(NOW).reports:
        assert report.counters is not None
        device = trace.devices[report.counters.device].index
        found |= {(device, kind): (calls, waited_ns) for kind, calls, waited_ns in report.counters.sync if calls}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gpu", "calls"),
    [
        ("control", 3, {"stream": 60, "context": 1}),
        ("mi250_minitoy", 2, {"context": 1}),
    ],
)
def test_a_recording_without_sync_events_has_the_waits_of_its_calls(name: str, gpu: int, calls: dict[str, int]) -> None:
    path = shared_data("kineto", f"{name}.json.gz")
    kinds = {"cudaStreamSynchronize": "stream", "cudaDeviceSynchronize": "context", "hipDeviceSynchronize": "context"}
    waited_ns: Counter[str] = Counter()
    with gzip.open(path, "rt") as file:
        for one in json.load(file)["traceEvents"]:
            if "Synchronize" in one["name"]:
                waited_ns[kinds[one["name"]]] += round(one["dur"] * 1000)
    assert waits(kineto.read(path)) == {(gpu, kind): (count, waited_ns[kind]) for kind, count in calls.items()}


def test_a_recording_with_sync_events_counts_them_alone() -> None:
    path = shared_data("kineto", "alexnet.json.gz")
    kinds = {"Stream Sync": "stream", "Context Sync": "context", "Stream Wait Event": "stream_wait"}
    calls: Counter[str] = Counter()
    waited_ns: Counter[str] = Counter()
    with gzip.open(path, "rt") as file:
        for one in json.load(file)["traceEvents"]:
            if one.get("cat") == "cuda_sync":
                calls[kinds[one["name"]]] += 1
                waited_ns[kinds[one["name"]]] += one["dur"] * 1000
    assert sum(calls.values()) == 41
    assert waits(kineto.read(path)) == {(0, kind): (calls[kind], waited_ns[kind]) for kind in calls}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaDeviceSynchronize", "context"),
        ("cudaThreadSynchronize", "context"),
        ("cuCtxSynchronize_v2", "context"),
        ("hipDeviceSynchronize", "context"),
        ("cudaStreamSynchronize_ptsz", "stream"),
        ("cuStreamSynchronize", "stream"),
        ("hipStreamSynchronize", "stream"),
        ("cudaEventSynchronize_v3020", "event"),
        ("cuEventSynchronize", "event"),
        ("hipEventSynchronize", "event"),
    ],
)
@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"])
def test_every_call_that_waits_is_of_its_type(name: str, kind: str, category: str, tmp_path: Path) -> None:
    trace = written(tmp_path, event("kernel", "k", 1, 2, device=1), event(category, name, 3, 4))
    assert waits(trace) == {(1, kind): (1, 4_000)}


@pytest.mark.parametrize("name", ["cudaStreamWaitEvent", "cudaMemcpy", "xlaStreamSynchronize", "cudaEventSynchronizer"])
def test_other_calls_are_no_waits(name: str, tmp_path: Path) -> None:
    trace = written(tmp_path, event("kernel", "k", 1, 2, device=1), event("cuda_runtime", name, 3, 4))
    assert waits(trace) == {}


def test_a_driver_call_within_a_runtime_call_is_the_same_wait(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        event("kernel", "k", 1, 2, device=0),
        event("cuda_driver", "cuCtxSynchronize", 11, 8),
        event("cuda_runtime", "cudaDeviceSynchronize", 10, 10),
        event("cuda_runtime", "cudaStreamSynchronize", 12, 3, tid=8),
        event("cuda_runtime", "cudaStreamSynchronize", 20, 5),
    )
    assert waits(trace) == {(0, "context"): (1, 10_000), (0, "stream"): (2, 8_000)}


def test_a_wait_is_for_the_gpu_that_its_thread_launched_on_last(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 10, 1, correlation=2),
        event("cuda_runtime", "cudaLaunchKernel", 10, 1, correlation=3, tid=8),
        event("kernel", "k", 2, 2, device=5, correlation=1),
        event("kernel", "k", 12, 2, device=6, correlation=2),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 12, 2, device=7, correlation=3, bytes=8),
        event("cuda_runtime", "cudaStreamSynchronize", 5, 1),
        event("cuda_runtime", "cudaStreamSynchronize", 20, 2),
        event("cuda_runtime", "cudaStreamSynchronize", 20, 4, tid=8),
        event("cuda_runtime", "cudaDeviceSynchronize", 0, 8, tid=9),
        event("cuda_runtime", "cudaDeviceSynchronize", 30, 16, tid=9),
    )
    assert waits(trace) == {
        (5, "stream"): (1, 1_000),
        (6, "stream"): (1, 2_000),
        (7, "stream"): (1, 4_000),
        (5, "context"): (2, 24_000),
    }


def test_waits_without_any_gpu_activity_belong_to_no_gpu(tmp_path: Path) -> None:
    trace = written(tmp_path, event("cuda_runtime", "cudaDeviceSynchronize", 3, 4))
    assert (trace.devices, len(trace.syncs.spans)) == ((), 0)


def test_a_sync_event_of_any_kind_switches_the_calls_off(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        event("kernel", "k", 1, 2, device=0),
        event("cuda_sync", "Stream Wait Event", 2, 1, device=0),
        event("cuda_runtime", "cudaDeviceSynchronize", 3, 4),
    )
    assert waits(trace) == {(0, "stream_wait"): (1, 1_000)}
