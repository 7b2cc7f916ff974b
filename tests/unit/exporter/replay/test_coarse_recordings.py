"""Work that a profiler records as a whole, under another name or in another table: counted, or named."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.exporter.replay.test_replay_recordings import recording

from kernelcast.exporter.replay import Trace
from kernelcast.exporter.replay.formats import kineto, nsys, xla
from kernelcast.exporter.replay.trace import LaunchConfiguration


def export(folder: Path, script: str) -> Trace:
    path = folder / "export.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);" + script)
    return nsys.read(path)


def by_name(trace: Trace) -> dict[str, tuple[int, int]]:
    """Launches and their nanoseconds, by kernel."""
    durations = trace.launches.spans.duration_ns
    return {
        name: (int((trace.launches.name == at).sum()), int(durations[trace.launches.name == at].sum()))
        for at, name in enumerate(trace.names)
    }


GRAPHS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, contextId, streamId, correlationId, globalPid,
    graphId, graphExecId);
INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1000, 2728, 0, 1, 13, 141, 16777216, 1, 2),
    (5000, 6376, 0, 1, 13, 142, 16777216, 1, 2), (0, 0, 0, 1, 13, 143, 16777216, 1, 2);
CREATE TABLE StringIds (id, value);
INSERT INTO StringIds VALUES (1, 'cudaGraphLaunch_v10000'), (2, 'decode');
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 950, 16777217, 141, 1), (4900, 4950, 16777217, 142, 1);
CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid);
INSERT INTO NVTX_EVENTS VALUES (800, 990, 59, NULL, 2, 16777217);
"""


def test_graphs_as_a_whole_count_as_in_the_live_probe(tmp_path: Path) -> None:
    """Inference with CUDA graphs alone, at Nsight's default: no kernel has a row."""
    trace = export(tmp_path, GRAPHS)
    assert by_name(trace) == {"cuda graph (whole)": (2, 1_728 + 1_376)}
    assert trace.launches.graph.tolist() == [1, 1]
    assert trace.launches.queue_delay_ns.tolist() == [-1, -1]
    assert [trace.regions[at] if at >= 0 else "" for at in trace.launches.region.tolist()] == ["decode", ""]
    assert trace.unusable == 1  # CUPTI writes 0 and 0 where it could not collect times


def test_a_graph_whose_kernels_are_recorded_too_is_not_counted_twice(tmp_path: Path) -> None:
    kernels = """
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, correlationId, globalPid, graphNodeId);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 1900, 0, 141, 16777216, 5),
            (1950, 2700, 0, 141, 16777216, 6);
    """
    assert by_name(export(tmp_path, GRAPHS + kernels)) == {"unknown": (2, 1_650), "cuda graph (whole)": (1, 1_376)}


def test_a_real_export_has_its_graphs_and_kernels() -> None:
    """Nsight Systems 2025.5.2, from morluto/flameox."""
    trace = nsys.read(recording("..", "cases", "B16", "flameox-2025.5.2.sqlite"))
    found = by_name(trace)
    assert found.pop("cuda graph (whole)") == (2, 3_104)
    assert sum(ns for _, ns in found.values()) == 3_840
    assert [(device.index, device.model_name) for device in trace.devices] == [(0, "NVIDIA GeForce RTX 3060")]


def test_every_table_of_timed_events_that_is_not_read_is_named_with_its_share(tmp_path: Path) -> None:
    tables = """
        CREATE TABLE MPI_COLLECTIVES_EVENTS (start, end, textId);
        INSERT INTO MPI_COLLECTIVES_EVENTS VALUES (0, 6000, 1), (7000, 7500, 1), (9, 3, 1), (10, NULL, 1);
        CREATE TABLE OPENACC_LAUNCH_EVENTS (start, end);
        INSERT INTO OPENACC_LAUNCH_EVENTS VALUES (0, 100);
        CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, bytes);
        INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (5, 6);
        CREATE TABLE ENUM_NOTHING (start, end);
        INSERT INTO ENUM_NOTHING VALUES (0, 100);
    """
    trace = export(tmp_path, GRAPHS + tables)
    (note,) = [note for note in trace.notes if "not read" in note]
    assert note == (
        "tables that are not read: MPI_COLLECTIVES_EVENTS (2, 65.0 % of all time), "
        "OPENACC_LAUNCH_EVENTS (1, 1.0 % of all time)"
    )


LAUNCHES = """
CREATE TABLE StringIds (id, value);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'cudaLaunchHostFunc'), (3, 'cudaStreamBeginCapture'),
    (4, 'forward');
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 16777217, 1, 1), (30, 40, 16777217, 2, 1),
    (50, 60, 16777217, 3, 2);
"""
KERNELS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, correlationId, globalPid);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 200, 0, 1, 16777216);
"""
CAPTURE = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (25, 26, 16777217, 9, 3);"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (LAUNCHES, ["2 of its 2 launching calls have no work of a GPU in it"]),
        (LAUNCHES + KERNELS, ["1 of its 2 launching calls have no work of a GPU in it"]),
        (LAUNCHES + KERNELS + CAPTURE, []),
    ],
)
def test_launched_work_that_the_profiler_lost_is_said(tmp_path: Path, script: str, said: list[str]) -> None:
    """GindaChen/nsys-ai issue 160: nsys exits with 0 and writes a report without its kernels."""
    trace = export(tmp_path, script)
    assert [note for note in trace.notes if "launching" in note] == said
    assert dict(trace.categories)["CUPTI_ACTIVITY_KIND_RUNTIME"] >= 3


def test_launched_work_that_pytorch_s_profiler_lost_is_said(tmp_path: Path) -> None:
    """pytorch/pytorch issue 192021: the kernels of the first seconds are not in the file."""
    calls = [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 9,
            "tid": 9,
            "ts": at,
            "dur": 1,
            "args": {"correlation": at},
        }
        for at in range(1, 11)
    ]
    kernels, linked = [], []
    for at in range(7, 11):
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 20 + at, "dur": 1}
        kernels.append({**kernel, "args": {"device": 0, "stream": 7}})
        linked.append({**kernel, "args": {"device": 0, "stream": 7, "correlation": at}})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": calls + linked}))
    assert "6 of its 10 launching calls have no work of a GPU in it" in kineto.read(path).notes
    path.write_text(json.dumps({"traceEvents": calls + kernels}))
    assert not [note for note in kineto.read(path).notes if "launching" in note]


def test_work_without_a_correlation_id_is_linked_to_no_call(tmp_path: Path) -> None:
    """ROCm/roctracer issue 100: all kernels of communication have the id 0, which is CUPTI's word for none."""
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "hipExtLaunchKernel", "pid": 9, "tid": 9, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic", "pid": 0, "tid": 7, "dur": 5}
    events = [launch | {"ts": at, "args": {"correlation": at}} for at in (0, 5)]
    events += [kernel | {"ts": at, "args": {"device": 0, "stream": 7, "correlation": 0}} for at in (20, 30)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    unlinked = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (300, 400, 0, 0, 16777216);"
    calls = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (250, 260, 16777217, 0, 1);"
    for trace in (kineto.read(path), export(tmp_path, LAUNCHES + KERNELS + unlinked + calls)):
        assert trace.launches.queue_delay_ns.tolist()[-1] == -1
        assert not [note for note in trace.notes if "launching" in note]


def test_tables_of_a_later_version_are_read(tmp_path: Path) -> None:
    """GindaChen/nsys-ai 291, 297: `_V2` and `_V3`; of two the higher one, and the documented name before all."""
    ranges = """
        CREATE TABLE NVTX_EVENTS_V2 (start, end, eventType, text, textId, globalTid);
        CREATE TABLE NVTX_EVENTS_V10 (start, end, eventType, text, textId, globalTid);
        INSERT INTO NVTX_EVENTS_V10 VALUES (5, 50, 59, NULL, 4, 16777217);
    """
    script = (LAUNCHES + KERNELS).replace("_KERNEL ", "_KERNEL_V3 ").replace("_RUNTIME ", "_RUNTIME_V3 ")
    trace = export(tmp_path, script + ranges)
    assert trace.launches.queue_delay_ns.tolist() == [90]
    assert trace.regions == ("forward",)
    assert trace.notes == ("1 of its 2 launching calls have no work of a GPU in it",)


def test_ranges_that_are_not_read_are_named(tmp_path: Path) -> None:
    """GindaChen/nsys-ai issue 307, and ranges that were open when the recording stopped."""
    ranges = """
        CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid);
        INSERT INTO NVTX_EVENTS VALUES (5, 50, 60, NULL, 4, 16777217), (5, NULL, 59, NULL, 4, 16777217),
            (6, NULL, 59, NULL, 4, 16777217);
    """
    assert [note for note in export(tmp_path, KERNELS + ranges).notes if "NVTX" in note] == [
        "1 NVTX ranges are not read: they were started and ended, not pushed and popped",
        "2 NVTX ranges are not read: they were open when the recording stopped",
    ]


def test_work_of_an_export_without_processes_is_of_its_only_process(tmp_path: Path) -> None:
    kernels = KERNELS.replace(", globalPid", "").replace(", 16777216", "")
    assert export(tmp_path, LAUNCHES + kernels).launches.queue_delay_ns.tolist() == [90]
    another = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (15, 20, 33554433, 1, 1);"
    (tmp_path / "export.sqlite").unlink()
    assert export(tmp_path, LAUNCHES + kernels + another).launches.queue_delay_ns.tolist() == [-1]


def test_the_driver_s_calls_count_where_the_runtime_has_none(tmp_path: Path) -> None:
    driver = GRAPHS.replace("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
    kernel = """
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, correlationId, globalPid);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1950, 2700, 0, 150, 16777216);
        INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER VALUES (1900, 1910, 16777217, 150, 9);
    """
    trace = export(tmp_path, driver + kernel)
    assert sorted(trace.launches.queue_delay_ns.tolist()) == [-1, -1, 50]


def test_numbers_as_text_and_as_floats_are_read(tmp_path: Path) -> None:
    text = GRAPHS.replace("(1000, 2728, 0, 1, 13, 141, 16777216,", "('1000', '2728', '0', 1, '13', '141', '16777216',")
    text = text.replace("(5000, 6376, 0,", "(5000.0, 6376.0, 0.0,").replace("(900, 950,", "('900', '950',")
    trace = export(tmp_path, text)
    assert by_name(trace) == {"cuda graph (whole)": (2, 3_104)}
    assert trace.unusable == 1


@pytest.mark.parametrize(("kind", "expected"), [(11, "h2d"), (12, "d2h"), (13, "d2d"), (14, "unknown")])
def test_copies_of_unified_memory_have_a_direction(tmp_path: Path, kind: int, expected: str) -> None:
    copies = """
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, bytes, copyKind);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 3, 0, 4096, KIND);
    """
    assert export(tmp_path, copies.replace("KIND)", f"{kind})")).copy_kinds == ((expected, ""),)


def test_a_damaged_table_is_read_so_far_and_named(tmp_path: Path) -> None:
    path = tmp_path / "export.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, shortName)")
        rows = ((at * 100, at * 100 + 50, 0, at) for at in range(20_000))
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?)", rows)
        database.commit()
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    trace = nsys.read(path)
    assert 5_000 < len(trace.launches.spans) < 20_000
    rows_read = len(trace.launches.spans) + trace.unusable
    assert f"CUPTI_ACTIVITY_KIND_KERNEL is damaged after {rows_read} rows" in trace.notes[0]
    assert not trace.complete


# JAX and TensorFlow: events without a category


def metadata(pid: int, name: str, tid: int | None = None) -> dict[str, Any]:
    kind = "process_name" if tid is None else "thread_name"
    return {"ph": "M", "pid": pid, "name": kind, "args": {"name": name}} | ({} if tid is None else {"tid": tid})


def work(name: str, ts: float, dur: float, *, pid: int = 1, tid: int = 14, **more: str) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": more}


NAMES = [
    metadata(1, "/device:GPU:0"),
    metadata(1, "Stream #14(Compute,MemcpyD2D)", 14),
    metadata(1, "Stream #20(MemcpyH2D)", 20),
    metadata(1, "XLA Ops", 30),
    metadata(2, "/device:GPU:1"),
    metadata(2, "Stream #14(Compute)", 14),
    metadata(701, "/host:CPU"),
]


def jax(folder: Path, *events: dict[str, Any]) -> Trace:
    path = folder / "perfetto_trace.json.gz"
    path.write_bytes(
        gzip.compress(json.dumps({"displayTimeUnit": "ns", "traceEvents": [*NAMES, *events, {}]}).encode())
    )
    return kineto.read(path)


def test_the_streams_of_a_trace_of_jax_are_kernels_copies_and_fills(tmp_path: Path) -> None:
    details = "regs:32 static_shared:1024 dynamic_shared:16 grid:8,1,1 block:256,1,1 occ_pct:62.5"
    copied = "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"
    trace = jax(
        tmp_path,
        work("cuLaunchKernel", 990.5, 5, pid=701, tid=3, correlation_id="7"),
        work("loop_fusion", 1000.5, 20.1, correlation_id="7", kernel_details=details),
        work("gemm", 1000.5, 30, pid=2, correlation_id="8"),
        work("MemcpyH2D", 900, 3, tid=20, correlation_id="9", memcpy_details=copied),
        work("Memset", 950, 2, memset_details="kind:device num_bytes:512 async:1"),
        work("MemoryAlloc", 951, 2, memalloc_details="kind:device num_bytes:512"),
        work("CudaGraph", 1100, 40, cuda_graph_exec_id="3"),
        work("jit_f", 1000, 500, tid=30, hlo_op="fusion"),
        work("PjitFunction(f)", 900, 300, pid=701, tid=3),
    )
    assert by_name(trace) == {"loop_fusion": (1, 20_100), "gemm": (1, 30_000), "cuda graph (whole)": (1, 40_000)}
    assert [device.index for device in trace.devices] == [0, 1]
    assert trace.configurations[0] == LaunchConfiguration("8x1x1", "256x1x1", 32, 1040, occupancy=0.62)
    assert trace.launches.queue_delay_ns[trace.launches.name == 0].tolist() == [10_000]
    assert (trace.copy_kinds, trace.copies.size_bytes.tolist()) == ((("h2d", "true"),), [4096])
    assert trace.memset_bytes.tolist() == [512]
    (note,) = [note for note in trace.notes if "not read" in note]
    assert note.startswith("events that are not read: /device:GPU:0 XLA Ops (1, 55.")
    assert "/host:CPU (1, 33." in note
    assert "/device:GPU:0 Stream #14(Compute,MemcpyD2D) (1, 0." in note


def test_a_trace_of_as_many_events_as_xla_writes_lacks_the_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """jax-ml/jax issue 21295."""
    monkeypatch.setattr(xla, "MOST_EVENTS", 3)
    kernels = [work("k", at, 1) for at in (1, 10, 20, 30)]
    assert [jax(tmp_path, *kernels[:number]).complete for number in (1, 3)] == [True, False]


def test_events_of_another_accelerator_and_of_no_category_are_named_by_their_process(tmp_path: Path) -> None:
    """A TPU, and PyTorch's older profiler, whose work of a GPU is the process `CUDA functions`."""
    older = {"ph": "X", "name": "aten::mm", "ts": 5, "dur": 30, "tid": 0, "pid": "CUDA functions", "args": {}}
    trace = jax(tmp_path, metadata(3, "/device:TPU:0"), work("fusion.1", 1, 10, pid=3), older)
    assert not trace.has_gpu_activity
    assert trace.categories == (("/device:tpu:0", 1), ("process cuda functions", 1))
    assert "process CUDA functions (1, 75.0 % of all time), /device:TPU:0 (1, 25.0 % of all time)" in trace.notes[0]


def test_categories_that_are_not_read_are_named_with_their_share(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    event = {"ph": "X", "name": "k", "ts": 1.5, "pid": 0, "tid": 7, "args": {}}
    begun = {**event, "cat": "kernel", "ph": "B"}
    events = [{**event, "cat": "kernel", "dur": 25}, {**event, "cat": "xpu_kernel", "dur": 75}, begun]
    path.write_text(json.dumps({"traceEvents": events}))
    (note,) = kineto.read(path).notes
    assert note == (
        "events that are not read: xpu_kernel (1, 75.0 % of all time), "
        "kernel as pairs of beginning and end (1, 0.0 % of all time)"
    )
