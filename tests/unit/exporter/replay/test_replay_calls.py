"""The call and the region that launched a kernel: recordings made here."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.replay import Trace, TraceSource
from kernelcast.exporter.replay.calls import ApiCall, Calls, LaunchCause, Range
from kernelcast.exporter.replay.formats import kineto, nsys
from kernelcast.exporter.replay.regions import MAX_REGIONS, plain_name
from kernelcast.wire.frames import Counters, KernelName, KernelRow
from kernelcast.wire.kernels import MAX_VARIANT_CHARACTERS, OTHER, variant

NOW = 1_760_000_000_000_000_000


@st.composite
def nested(draw: st.DrawFn, begin: int = 0, end: int = 200, depth: int = 0) -> list[Range]:
    """Ranges of one thread that lie within each other or apart."""
    found: list[Range] = []
    edges = sorted(draw(st.lists(st.integers(begin, end), max_size=6 if depth < 3 else 0)))
    for start, stop in zip(edges[::2], edges[1::2], strict=False):
        found.append(Range("t", start, stop, f"{depth}:{start}-{stop}"))
        found += draw(nested(start, stop, depth + 1))
    return found


@given(nested(), st.lists(st.integers(0, 220), max_size=30))
def test_a_launch_belongs_to_the_innermost_range_around_its_call(ranges: list[Range], starts: list[int]) -> None:
    calls = Calls({number: ApiCall("t", start) for number, start in enumerate(starts)}, ranges)
    for number, start in enumerate(starts):
        around = [one for one in ranges if one.start_ns <= start < one.end_ns]
        innermost = max(around, key=lambda one: (one.start_ns, -one.end_ns, one.name)).name if around else ""
        found = calls.cause(number, start).region
        assert found == innermost or _same_stretch(ranges, found, innermost)


def _same_stretch(ranges: list[Range], one: str, other: str) -> bool:
    stretches = {known.name: (known.start_ns, known.end_ns) for known in ranges}
    return one in stretches and stretches[one] == stretches.get(other)


def test_ranges_of_another_thread_say_nothing() -> None:
    calls = Calls({1: ApiCall("worker", 50)}, [Range("main", 0, 100, "step")])
    assert calls.cause(1, 60) == LaunchCause(10, graph=False, region="")


def test_a_delay_is_unknown_without_a_call_before_its_time_and_within_a_graph() -> None:
    calls = Calls({1: ApiCall("t", 50), 2: ApiCall("t", 50, graph=True)})
    assert [calls.cause(*found).queue_delay_ns for found in ((1, 60), (1, 40), (2, 60), (3, 60))] == [10, -1, -1, -1]
    assert calls.cause(1, 60, graph=True) == LaunchCause(-1, graph=True)
    assert calls.cause(2, 60).graph
    assert not calls.cause(3, 60).graph


def replayed(trace: Trace) -> tuple[dict[str, KernelRow], dict[str, KernelName], Counters, set[str]]:
    source = TraceSource(trace, program="job", rank="", hostname="node1", speed=None, start_ns=NOW)
    (report,) = source.poll(NOW).reports
    names = {name.kernel: name for name in report.names}
    assert report.counters is not None
    rows = {names[row.kernel].signature: row for row in report.rows}
    by_signature = {name.signature: name for name in names.values()}
    return rows, by_signature, report.counters, {text for _, text in report.variants}


def kineto_trace(tmp_path: Path, events: list[dict[str, Any]]) -> Trace:
    path = tmp_path / "trace.json"
    path.write_bytes(orjson.dumps({"traceEvents": events}))
    return kineto.read(path)


def event(category: str, name: str, start: float, duration: float, **arguments: Any) -> dict[str, Any]:
    times = {"ts": start, "dur": duration, "pid": 1, "tid": 2}
    return {"ph": "X", "cat": category, "name": name, **times, "args": arguments}


def test_kernels_of_a_graph_in_a_kineto_trace_are_graph_launches_without_a_delay(tmp_path: Path) -> None:
    trace = kineto_trace(
        tmp_path,
        [
            event("cuda_runtime", "cudaGraphLaunch", 10, 5, correlation=7),
            event("cuda_runtime", "cudaLaunchKernel", 20, 5, correlation=8),
            event("cuda_driver", "cuLaunchKernel", 21, 3, correlation=8),
            event("kernel", "in graph", 30, 5, correlation=7, device=0),
            event("kernel", "in graph", 40, 5, correlation=7, device=0),
            event("kernel", "plain", 50, 5, correlation=8, device=0),
            event("kernel", "node", 60, 5, correlation=9, device=0, **{"graph node id": 3}),
        ],
    )
    rows, _, counters, _ = replayed(trace)
    found = {
        name: (row.launches, row.graph_launches, row.queue_delays, row.queue_delay_ns) for name, row in rows.items()
    }
    assert found == {"in graph": (2, 2, 0, 0), "plain": (1, 0, 1, 30_000), "node": (1, 1, 0, 0)}
    assert counters.launch_gaps
    assert (counters.launch_gaps.count, counters.launch_gaps.sum_ns) == (3, 15_000)


def test_steps_of_the_profiler_are_one_region_with_their_kernels(tmp_path: Path) -> None:
    events = [event("user_annotation", f"ProfilerStep#{number}", 100 * number, 50) for number in range(1, 4)]
    for number in range(1, 4):
        events.append(event("cuda_runtime", "cudaLaunchKernel", 100 * number + 10, 5, correlation=number))
        events.append(event("kernel", "k", 100 * number + 20, 7, correlation=number, grid=[8, 1, 1], block=[64, 1, 1]))
    rows, _, counters, variants = replayed(kineto_trace(tmp_path, events))
    assert rows["k"].launches == 3
    assert counters.regions == (("ProfilerStep", 3, 21_000, 150_000),)
    assert variants == {"8x1x1|64x1x1||ProfilerStep"}


def test_regions_beyond_the_bound_are_summed_and_the_longest_keep_their_names(tmp_path: Path) -> None:
    events = [event("kernel", "k", 0, 10_000)]
    events += [event("user_annotation", f"region {number}", 100 * number, number) for number in range(1, 50)]
    _, _, counters, _ = replayed(kineto_trace(tmp_path, events))
    assert len(counters.regions) == MAX_REGIONS + 1
    assert counters.regions[0] == ("region 49", 0, 0, 49_000)
    assert counters.regions[-1] == (OTHER, 0, 0, sum(range(1, 50 - MAX_REGIONS)) * 1000)


def test_an_occupancy_that_the_trace_estimates_is_a_ratio(tmp_path: Path) -> None:
    arguments = {"est. achieved occupancy %": 63, "grid": [1, 1, 1]}
    _, names, _, _ = replayed(kineto_trace(tmp_path, [event("kernel", "k", 0, 5, **arguments)]))
    assert names["k"].occupancy == 0.63


NSYS = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaGraphLaunch_v10000'), (3, 'cudaLaunchKernel'), (4, 'forward');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, demangledName INTEGER,
    correlationId INTEGER, globalPid INTEGER, graphNodeId INTEGER, localMemoryPerThread INTEGER, gridX INTEGER,
    gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, dynamicSharedMemory INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 150, 0, 1, 11, 167772160, NULL, 64, 8,1,1, 64,1,1, 1024),
    (200, 210, 0, 1, 12, 167772160, NULL, 64, 8,1,1, 64,1,1, 1024),
    (300, 310, 0, 1, 11, 184549376, NULL, 64, 8,1,1, 64,1,1, 1024),
    (400, 410, 0, 1, 13, 167772160, 5, 64, 8,1,1, 64,1,1, 1024);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
    nameId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (60, 70, 167772161, 11, 3), (90, 95, 167772161, 12, 2),
    (290, 295, 184549377, 11, 3), (390, 395, 167772162, 13, 3);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
INSERT INTO NVTX_EVENTS VALUES (50, 80, 59, 'step#1', NULL, 167772161), (85, 130, 59, NULL, 4, 167772161),
    (0, 900, 60, 'start/end', NULL, 167772161), (280, NULL, 59, 'open', NULL, 184549377);
"""


def test_nsys_exports_have_delays_graphs_regions_and_local_memory_by_process(tmp_path: Path) -> None:
    path = tmp_path / "export.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(NSYS)
    rows, names, counters, variants = replayed(nsys.read(path))
    row = rows["gemm"]
    assert (row.launches, row.graph_launches) == (4, 2)
    assert (row.queue_delays, row.queue_delay_ns) == (2, 40 + 10)
    assert names["gemm"].local_memory_bytes == 64
    assert counters.regions == (("forward", 1, 10, 45), ("step", 1, 50, 30))
    assert variants == {"8x1x1|64x1x1|1024", "8x1x1|64x1x1|1024|step", "8x1x1|64x1x1|1024|forward"}


def test_a_replay_reports_regions_and_gaps_only_after_their_end(tmp_path: Path) -> None:
    events = [event("user_annotation", "step", 0, 2e6), event("kernel", "k", 0, 1e6), event("kernel", "k", 3e6, 1e6)]
    source = TraceSource(
        kineto_trace(tmp_path, events), program="job", rank="", hostname="node1", speed=1.0, start_ns=NOW
    )
    seen = []
    for seconds in (1, 2, 3, 4):
        (report,) = source.poll(NOW + seconds * 10**9).reports
        assert report.counters is not None
        assert report.counters.launch_gaps is not None
        seen.append((report.counters.regions[0][3], report.counters.launch_gaps.count))
    assert seen == [(0, 0), (2 * 10**9, 0), (2 * 10**9, 1), (2 * 10**9, 1)]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (({}), ""),
        ({"grid": "8x1x1", "block": "64x1x1"}, "8x1x1|64x1x1"),
        ({"block": "64x1x1", "shared_memory_bytes": 1024}, "|64x1x1|1024"),
        ({"grid": "8", "region": "a|b", "dtype": "f16"}, "8|||a/b|f16"),
        ({"region": "r" * 300, "dtype": "f16"}, f"|||{'r' * 48}|f16"),
    ],
)
def test_a_variant_is_a_bounded_text(parts: dict[str, Any], text: str) -> None:
    assert variant(**parts) == text


@given(st.text(), st.text(), st.integers(0, 2**60), st.text(), st.text())
def test_no_variant_is_longer_than_the_wire_takes(grid: str, block: str, shared: int, region: str, dtype: str) -> None:
    text = variant(grid, block, shared_memory_bytes=shared, region=region, dtype=dtype)
    assert len(text) <= MAX_VARIANT_CHARACTERS


def test_numbers_that_count_are_no_part_of_a_regions_name() -> None:
    assert [plain_name(name) for name in ("ProfilerStep#12", "Optimizer.step#SGD.step", "#3", "")] == [
        "ProfilerStep",
        "Optimizer.step#SGD.step",
        OTHER,
        OTHER,
    ]
