"""Which GPU work ran on: process, device and correlation id together, and a file's own map of numbers."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kernelcast.exporter.replay import Trace, TraceSource
from kernelcast.exporter.replay.formats import kineto, nsys
from kernelcast.exporter.replay.trace import TraceDevice


def event(category: str, name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    pid, tid = more.pop("pid", 0), more.pop("tid", 7)
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": more}


def read(folder: Path, events: list[dict[str, Any]], **head: Any) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return kineto.read(path)


def two_ranks(cpu: tuple[Any, Any], gpu: tuple[Any, Any], devices: tuple[int, int] = (0, 0)) -> list[dict[str, Any]]:
    events = []
    for rank, start in enumerate((1_000_000, 1_000_100)):
        of_gpu = {"pid": gpu[rank], "device": devices[rank], "stream": 7, "correlation": 5}
        events += [
            event("cuda_runtime", "cudaLaunchKernel", start, 3, pid=cpu[rank], tid=1000, correlation=5),
            event("cuda_runtime", "cudaStreamSynchronize", start + 10, 300, pid=cpu[rank], tid=1001, correlation=6),
            event("kernel", "gemm", start + 50, 400, **of_gpu),
            event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", start + 500, 10, **{**of_gpu, "correlation": 7}),
            event("cuda_runtime", "hipMemcpy", start + 20, 1, pid=cpu[rank], correlation=7, size=100 * (rank + 1)),
        ]
    return events


@pytest.mark.parametrize(
    ("cpu", "gpu"),
    [
        (("[TP00] 1000", "[TP01] 1000"), ("[TP00] 0", "[TP01] 0")),  # sgl-project/sglang PR 11413
        (("1000_rank0", "1004_rank1"), ("0_rank0", "0_rank1")),
        (("rank 0", "rank 1"), ("rank 0", "rank 1")),
        ((100_000, 200_000), (100_000, 200_000)),
    ],
)
def test_ranks_of_a_merged_trace_have_their_own_gpus_calls_waits_and_sizes(
    tmp_path: Path, cpu: tuple[Any, Any], gpu: tuple[Any, Any]
) -> None:
    trace = read(tmp_path, two_ranks(cpu, gpu), distributedInfo={"rank": 0, "world_size": 2})
    assert [(device.index, device.process) for device in trace.devices] == [(0, str(gpu[0])), (1, str(gpu[1]))]
    assert trace.launches.queue_delay_ns.tolist() == [50_000, 50_000]
    assert trace.launches.spans.device.tolist() == [0, 1]
    assert trace.copies.size_bytes.tolist() == [100, 200]
    assert trace.syncs.spans.device.tolist() == [0, 1]
    assert (trace.rank, trace.world_size) == ("", 2)
    source = TraceSource(trace, program="p", rank="", hostname="h", speed=None, start_ns=1)
    assert len({device.uuid for device in source.devices}) == 2


def test_processes_that_cannot_be_told_apart_leave_the_cause_unknown(tmp_path: Path) -> None:
    trace = read(tmp_path, two_ranks((1000, 1001), (70, 71)))
    assert len(trace.devices) == 2
    assert trace.launches.queue_delay_ns.tolist() == [-1, -1]


def test_merged_ranks_with_numbers_of_their_own_keep_them(tmp_path: Path) -> None:
    trace = read(tmp_path, two_ranks(("[TP00] 1000", "[TP01] 1000"), ("[TP00] 2", "[TP01] 3"), devices=(2, 3)))
    assert trace.devices == (TraceDevice(2), TraceDevice(3))
    assert trace.launches.queue_delay_ns.tolist() == [50_000, 50_000]
    assert trace.rank == ""


def test_work_of_one_process_under_another_name_keeps_its_calls(tmp_path: Path) -> None:
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 10, 3, pid=1000, correlation=5),
        event("kernel", "k", 20, 3, pid="GPU 0", device=0, correlation=5),
    ]
    assert read(tmp_path, events).launches.queue_delay_ns.tolist() == [10_000]


@pytest.mark.parametrize(
    ("recorded", "properties", "expected"),
    [
        ((9,), {0: "MI300X"}, [(0, "MI300X")]),  # ROCm counts the nodes of a machine, CPUs first
        ((2, 3), {0: "MI250X", 1: "MI210"}, [(0, "MI250X"), (1, "MI210")]),
        ((9,), {0: "MI300X", 1: "MI300X"}, [(9, "MI300X")]),
        ((9,), {0: "MI250X", 1: "MI210"}, [(9, "")]),
        ((1,), {0: "A100", 1: "H100"}, [(1, "H100")]),
        ((1,), {}, [(1, "")]),
    ],
)
def test_numbers_of_another_kind_are_those_of_the_file_s_list_where_that_is_certain(
    tmp_path: Path, recorded: tuple[int, ...], properties: dict[int, str], expected: list[tuple[int, str]]
) -> None:
    events = [event("kernel", "k", 10 * device, 2, pid=device, device=device) for device in recorded]
    listed = [{"id": number, "name": name} for number, name in properties.items()]
    trace = read(tmp_path, events, deviceProperties=listed)
    assert [(device.index, device.model_name) for device in trace.devices] == expected


def export(folder: Path, *mapped: tuple[Any, ...]) -> Trace:
    """Two ranks that see one GPU each; `mapped` are rows of the export's map."""
    path = folder / "export.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(RANKS)
        rows = [(100, 1100, process(71)), (200, 900, process(72))]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, 5, ?, 1)", rows)
        calls = [(60, process(71) + 1), (150, process(72) + 1)]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, 1000, ?, 5, 1)", calls)
        if mapped:
            database.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid, uuid)")
            database.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?, ?)", mapped)
        database.commit()
    return nsys.read(path)


def process(pid: int) -> int:
    return (1 << 48) | (pid << 24)


RANKS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, contextId);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
CREATE TABLE TARGET_INFO_GPU (vmId, id, name, uuid, cuDevice);
INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'A100', 'aa', 0), (1, 1, 'H100', 'bb', 0);
"""


@pytest.mark.parametrize(
    "mapped",
    [[(0, 0, 71, None), (1, 0, 72, None)], [(None, 0, 71, "aa"), (None, 0, 72, "bb")]],
)
def test_ranks_of_an_export_that_see_one_gpu_each_have_the_gpus_that_the_export_maps(
    tmp_path: Path, mapped: list[tuple[Any, ...]]
) -> None:
    trace = export(tmp_path, *mapped)
    assert trace.devices == (TraceDevice(0, "A100"), TraceDevice(1, "H100"))
    assert sorted(trace.launches.queue_delay_ns.tolist()) == [40, 50]
    assert sorted(trace.launches.spans.duration_ns.tolist()) == [700, 1000]


def test_numbers_of_several_processes_without_a_map_are_said(tmp_path: Path) -> None:
    trace = export(tmp_path)
    assert len(trace.devices) == 1
    assert "2 processes call a GPU 0, and the export does not say which GPUs these are" in "; ".join(trace.notes)


def test_the_number_in_an_export_of_one_process_is_mapped_too(tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES=1: the program's GPU 0 is the machine's GPU 1."""
    assert export(tmp_path, (1, 0, 71, ""), (1, 0, 72, "")).devices == (TraceDevice(1, "H100"),)
