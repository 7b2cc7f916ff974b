"""Reading of Kineto traces that are made here: damaged events are survived, valid ones are not lost."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.support.examples import parser_examples

from kernelcast.exporter.replay import TraceSource
from kernelcast.exporter.replay.formats import kineto
from kernelcast.exporter.replay.trace import LaunchConfiguration
from kernelcast.wire.errors import TraceError


def event(category: str, name: str, ts: float, dur: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": arguments}


def write(folder: Path, document: Any, name: str = "trace.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def test_every_kind_of_gpu_event_becomes_a_column(tmp_path: Path) -> None:
    arguments = {"device": 1, "stream": 7, "grid": [2, 3, 1], "block": [64, 1, 1], "shared memory": 512}
    document = {
        "deviceProperties": [{"id": 1, "name": "NVIDIA A100"}],
        "distributedInfo": {"rank": 3, "world_size": 8},
        "traceEvents": [
            event("kernel", "gemm", 10, 5, **arguments, **{"registers per thread": 90}),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1, 2, device=1, bytes=4096),
            event("gpu_memset", "Memset (Device)", 20, 1, device=1, bytes=8),
            event("cuda_sync", "Stream Sync", 12, 4, device=1),
            event("cpu_op", "aten::mm", 0, 100),
        ],
    }
    trace = kineto.read(write(tmp_path, document))
    assert [(device.index, device.model_name) for device in trace.devices] == [(1, "NVIDIA A100")]
    assert trace.names == ("gemm",)
    assert trace.configurations == (LaunchConfiguration("2x3x1", "64x1x1", 90, 512),)
    assert trace.launches.spans.start_ns.tolist() == [10_000]
    assert trace.launches.spans.duration_ns.tolist() == [5_000]
    assert trace.copy_kinds == (("h2d", "true"),)
    assert trace.copies.size_bytes.tolist() == [4096]
    assert (len(trace.memsets), trace.memset_bytes.tolist()) == (1, [8])
    assert trace.sync_kinds == ("stream",)
    assert (trace.rank, trace.world_size) == ("3", 8)
    assert (trace.start_ns, trace.end_ns) == (1_000, 21_000)


def test_times_are_microseconds_since_the_base_with_any_display_unit(tmp_path: Path) -> None:
    document = {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": [event("kernel", "k", 1.5, 0.0005), event("kernel", "k", 4203669604595.407, 22.441)],
    }
    trace = kineto.read(write(tmp_path, document))
    assert trace.launches.spans.start_ns.tolist() == [
        1_700_000_000_000_001_500,
        1_700_000_000_000_000_000 + 4_203_669_604_595_407,
    ]
    assert trace.launches.spans.duration_ns.tolist() == [0, 22_441]


def test_missing_arguments_are_no_error(tmp_path: Path) -> None:
    bare = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "pid": 4}
    trace = kineto.read(write(tmp_path, {"traceEvents": [bare, {**bare, "args": None, "pid": "Spans"}]}))
    assert [device.index for device in trace.devices] == [4, 0]
    assert trace.configurations == (LaunchConfiguration(),)
    assert trace.configurations[0].variant == ""


def test_events_without_time_or_duration_are_left_out_and_counted(tmp_path: Path) -> None:
    good = event("kernel", "k", 1, 2)
    events = [
        good,
        {**good, "dur": None},
        {**good, "dur": -3},
        {**good, "ts": "yesterday"},
        {**good, "ts": 1e30},
        {key: value for key, value in good.items() if key != "dur"},
    ]
    trace = kineto.read(write(tmp_path, {"traceEvents": events}))
    assert len(trace.launches.spans) == 1
    assert trace.unusable == 5


def test_sizes_of_amd_copies_come_from_the_runtime_call(tmp_path: Path) -> None:
    events = [
        event("cuda_runtime", "hipMemcpyWithStream", 0, 9, correlation=117, size="2560"),
        event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 3, 2, device=2, correlation=117),
        event("gpu_memcpy", "CopyDeviceToHost", 6, 2, device=2, correlation=118),
        event("cuda_runtime", "hipMemsetAsync", 8, 9, correlation=119, size="64"),
        event("gpu_memset", "FillBuffer", 9, 2, device=2, correlation=119),
    ]
    trace = kineto.read(write(tmp_path, {"traceEvents": events}))
    assert trace.copies.size_bytes.tolist() == [2560, 0]
    assert trace.memset_bytes.tolist() == [64]
    assert trace.copy_kinds == (("h2d", ""), ("d2h", ""))


def test_old_category_names_and_a_bare_list_of_events_are_read(tmp_path: Path) -> None:
    trace = kineto.read(write(tmp_path, [event("Kernel", "k", 1, 2), event("Memset", "Memset (Device)", 4, 1)]))
    assert len(trace.launches.spans) == 1
    assert len(trace.memsets) == 1


def test_json_with_nan_and_control_characters_as_old_kineto_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"traceEvents": [{"ph":"X","cat":"kernel","name":"a\tb","ts":1,"dur":2,"args":{"o": NaN}}]}')
    assert kineto.read(path).names == ("a\tb",)


@pytest.mark.parametrize(
    "number",
    [
        "inf",
        "-inf",
        "nan",
        "-nan",
        "Inf",
        "Infinity",
        "-Infinity",
        "NaN",
        "1" * 5000,
        "-" + "1" * 5000,
        "1" * 5000 + ".5",
        "0." + "1" * 5000,
        "1" * 30,
    ],
)
def test_numbers_that_json_does_not_have_are_read_as_old_kineto_writes_them(tmp_path: Path, number: str) -> None:
    """pytorch/kineto issue 105: a copy that took no time has a memory bandwidth of `inf`."""
    name = r"of \"x\": inf, nan, -inf"
    path = tmp_path / "old.json"
    path.write_text(
        f'{{"traceEvents":[{{"ph":"X","cat":"Memcpy","name":"Memcpy HtoD (Pageable -> Device)","ts":1,"dur":0,"args":'
        f'{{"bytes":200,"memory bandwidth (GB/s)":{number}}}}},'
        f'{{"ph":"X","cat":"Kernel","name":"{name}","ts":1,"dur":2,"args":{{}}}}]}}'
    )
    trace = kineto.read(path)
    assert trace.copies.size_bytes.tolist() == [200]
    assert trace.names == ('of "x": inf, nan, -inf',)


def test_a_trace_without_gpu_activity_is_a_trace(tmp_path: Path) -> None:
    trace = kineto.read(write(tmp_path, {"traceEvents": [event("cpu_op", "aten::mm", 0, 1)]}))
    assert not trace.has_gpu_activity
    assert trace.devices == ()


def test_gzip_is_recognised_by_content(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [event("kernel", "k", 1, 2)]}).encode()))
    assert len(kineto.read(path).launches.spans) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b'{"traceEvents": [', "not JSON"),
        (b"\x1f\x8b\x08\x00garbage that is no deflate stream", "damaged gzip"),
        (gzip.compress(b'{"traceEvents": []}' * 50, mtime=0)[:-10], "damaged gzip"),
        (b'{"events": []}', "traceEvents"),
        (b'{"traceEvents": {"a": 1}}', "traceEvents"),
        (b'{"traceEvents": [1, 2]}', "event 0"),
        (b'"a text"', "traceEvents"),
        (b"\xff\xfe\x00binary", "not JSON"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "bad.json.gz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=said) as raised:
        kineto.read(path)
    assert str(path) in str(raised.value)


def test_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(TraceError, match="not JSON"):
        kineto.read(path)


def test_a_trace_beyond_the_limit_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 1_000_000))
    with pytest.raises(TraceError, match="the limit is 1000"):
        kineto.read(path, max_bytes=1000)


@pytest.mark.parametrize("limit", [10**13, 10**20])
def test_a_limit_beyond_the_memory_takes_no_more_than_the_trace(tmp_path: Path, limit: int) -> None:
    plain, packed = write(tmp_path, [event("kernel", "k", 1, 2)]), tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [kineto.read(path, max_bytes=limit).names for path in (plain, packed)] == [("k",), ("k",)]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        kineto.read(tmp_path / "absent.json")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PLAUSIBLE = st.integers(0, 2**50) | st.floats(0, 1e15)
STRANGE_EVENT = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.just("X") | ANYTHING,
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "cuda_runtime"]) | ANYTHING,
        "name": st.sampled_from(["gemm", "Memcpy HtoD (Pinned -> Device)", "Stream Sync"]) | ANYTHING,
        "ts": PLAUSIBLE | ANYTHING,
        "dur": PLAUSIBLE | ANYTHING,
        "pid": ANYTHING,
        "args": ANYTHING
        | st.dictionaries(
            st.sampled_from(["device", "stream", "grid", "block", "bytes", "size", "correlation", "shared memory"]),
            ANYTHING,
        ),
    },
)


@given(
    events=st.lists(STRANGE_EVENT, max_size=8),
    head=st.dictionaries(st.sampled_from(["baseTimeNanoseconds", "distributedInfo", "deviceProperties"]), ANYTHING),
)
@parser_examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_trace_with_any_events_is_read_and_replayed(
    tmp_path: Path, events: list[dict[str, Any]], head: dict[str, Any]
) -> None:
    trace = kineto.read(write(tmp_path, {**head, "traceEvents": events}))
    source = TraceSource(trace, program="p", rank=trace.rank, hostname="h", speed=None, start_ns=1)
    reports = source.poll(1).reports
    assert sum(row.launches for report in reports for row in report.rows) == len(trace.launches.spans)
    for report in reports:
        assert report.counters is not None
        assert all(total >= 0 for _, total in report.counters.device_time)
        "".join(name.signature for name in report.names).encode()


@pytest.mark.parametrize("category", ["cuda_runtime", "hip_runtime", "cuda_driver", "Runtime"])
def test_a_copy_without_a_size_has_that_of_its_call_whatever_the_api(tmp_path: Path, category: str) -> None:
    events = [
        event(category, "hipMemcpyWithStream", 0, 1, correlation=5, size=4096),
        event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 1, 2, device=0, correlation=5),
    ]
    trace = kineto.read(write(tmp_path, {"traceEvents": events}))
    assert trace.copies.size_bytes.tolist() == [4096]


def test_events_without_a_correlation_id_do_not_belong_together(tmp_path: Path) -> None:
    events = [
        event("cuda_runtime", "cudaMalloc", 0, 1, size=4096),
        event("cuda_runtime", "cudaGraphLaunch", 0, 1),
        event("user_annotation", "setup", 0, 2),
        event("kernel", "k", 90, 2, device=0),
        event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 95, 2, device=0),
    ]
    trace = kineto.read(write(tmp_path, {"traceEvents": events}))
    assert trace.launches.queue_delay_ns.tolist() == [-1]
    assert trace.launches.graph.tolist() == [0]
    assert trace.launches.region.tolist() == [-1]
    assert trace.copies.size_bytes.tolist() == [0]
