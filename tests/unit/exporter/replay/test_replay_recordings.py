"""Real recordings of others, replayed; the truth is computed here, from the files alone."""

import gzip
import json
import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kernelcast.exporter.replay import Trace, TraceSource
from kernelcast.exporter.replay.formats import kineto, nsys
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import label, normalise

NOW = 1_760_000_000_000_000_000
ROOT = Path(__file__).resolve().parents[4]
CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync")
KINETO = ("control", "alexnet", "mi250_minitoy", "sampled_rank-0", "sampled_rank-1", "cpu_only")


def recording(*parts: str) -> Path:
    folder = Path(os.environ.get("KERNELCAST_SHARED_DATA", ROOT.parent / "shared" / "data"))
    path = folder.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not on this machine; set KERNELCAST_SHARED_DATA to the folder of recordings")
    return path


@cache
def all_gpu_events(name: str) -> list[dict[str, Any]]:
    with gzip.open(recording("kineto", f"{name}.json.gz"), "rt") as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("cat") in CATEGORIES]


def gpu_events(name: str, category: str) -> list[dict[str, Any]]:
    assert category in CATEGORIES
    return [event for event in all_gpu_events(name) if event["cat"] == category]


@cache
def trace_of(name: str) -> Trace:
    """A recording that is read once: a trace never changes, and a source only reads it."""
    return kineto.read(recording("kineto", f"{name}.json.gz"))


def source_of(trace: Trace, speed: float | None = None) -> TraceSource:
    return TraceSource(trace, program="job", rank=trace.rank, hostname="node1", speed=speed, start_ns=NOW)


def replayed(name: str) -> tuple[TraceSource, tuple[ProcessReport, ...]]:
    source = source_of(trace_of(name))
    return source, source.poll(NOW).reports


@pytest.mark.slow
@pytest.mark.parametrize("name", KINETO)
def test_every_kernel_of_a_trace_is_counted_under_its_name(name: str) -> None:
    events = gpu_events(name, "kernel")
    counts = Counter(normalise(event["name"]) for event in events)
    sums: Counter[str] = Counter()
    for event in events:
        sums[normalise(event["name"])] += event["dur"]
    _, reports = replayed(name)
    signatures = {one.kernel: one.signature for report in reports for one in report.names}
    rows = {signatures[row.kernel]: row for report in reports for row in report.rows}
    assert {signature: row.launches for signature, row in rows.items()} == dict(counts)
    for signature, row in rows.items():
        assert math.isclose(row.durations.sum_ns, sums[signature] * 1000, rel_tol=1e-9, abs_tol=counts[signature])
        assert row.durations.count == row.launches
        assert sum(row.durations.buckets.values()) + row.durations.zero_count == row.launches


@pytest.mark.parametrize("name", KINETO)
def test_every_copy_of_a_trace_is_counted(name: str) -> None:
    events = gpu_events(name, "gpu_memcpy")
    _, reports = replayed(name)
    rows = [row for report in reports if report.counters for row in report.counters.memcpy if row[0] != "memset"]
    assert sum(row[3] for row in rows) == len(events)
    assert math.isclose(sum(row[4] for row in rows), sum(event["dur"] for event in events) * 1000, abs_tol=len(events))
    if name != "mi250_minitoy":
        assert sum(row[2] for row in rows) == sum(event["args"]["bytes"] for event in events)


def test_control_is_rank_3_of_8_on_an_a100_and_says_which_copies_were_pinned() -> None:
    source, reports = replayed("control")
    assert (source.trace.rank, source.trace.world_size) == ("3", 8)
    assert [device.model_name for device in source.devices] == ["NVIDIA A100-PG509-200"]
    (report,) = reports
    assert report.counters is not None
    assert {(kind, pinned): operations for kind, pinned, _, operations, _ in report.counters.memcpy} == {
        ("h2d", "true"): 150,
        ("d2h", "false"): 60,
        ("d2d", ""): 18,
        ("memset", ""): 654,
    }


def test_alexnet_waits_by_kind() -> None:
    truth: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in gpu_events("alexnet", "cuda_sync"):
        truth[event["name"]] += event["dur"] * 1000
        calls[event["name"]] += 1
    _, (report,) = replayed("alexnet")
    assert report.counters is not None
    assert {kind: row for kind, *row in report.counters.sync} == {
        "stream": [calls["Stream Sync"], truth["Stream Sync"]],
        "context": [calls["Context Sync"], truth["Context Sync"]],
        "stream_wait": [calls["Stream Wait Event"], truth["Stream Wait Event"]],
    }


def test_an_amd_trace_is_replayed_with_sizes_from_the_runtime() -> None:
    source, (report,) = replayed("mi250_minitoy")
    assert source.devices[0].model_name == "AMD Radeon Graphics"
    assert report.counters is not None
    assert [row[:4] for row in report.counters.memcpy] == [("h2d", "", 5120, 2)]


def test_a_trace_of_a_process_without_a_gpu_says_nothing() -> None:
    source, reports = replayed("cpu_only")
    assert not source.trace.has_gpu_activity
    assert reports == ()
    assert (source.launches, source.copies) == (0, 0)


def test_two_ranks_of_one_job_stay_apart() -> None:
    ranks = [replayed(f"sampled_rank-{rank}") for rank in (0, 1)]
    assert [source.process.rank for source, _ in ranks] == ["0", "1"]
    assert [source.launches for source, _ in ranks] == [
        len(gpu_events(f"sampled_rank-{rank}", "kernel")) for rank in (0, 1)
    ]
    uuids = {device.uuid for source, _ in ranks for device in source.devices}
    assert len(uuids) == 2


@pytest.mark.parametrize("name", ["control", "sampled_rank-0"])
def test_device_time_equals_a_sweep_over_all_events(name: str) -> None:
    kernels = gpu_events(name, "kernel")
    other = gpu_events(name, "gpu_memcpy") + gpu_events(name, "gpu_memset")
    compute = merged(event for event in kernels if "nccl" not in event["name"].lower())
    collective = merged(event for event in kernels if "nccl" in event["name"].lower())
    beside = merged([*(event for event in kernels if "nccl" in event["name"].lower()), *other])
    everything = merged([*kernels, *other])
    busy = {
        name: sum(end - start for start, end in spans)
        for name, spans in {"compute": compute, "collective": collective, "beside": beside, "all": everything}.items()
    }
    overlap = busy["compute"] + busy["beside"] - busy["all"]
    _, (report,) = replayed(name)
    assert report.counters is not None
    states = dict(report.counters.device_time)
    assert states["overlap"] == overlap
    assert states["compute"] == busy["compute"] - overlap
    assert states["collective"] + states["copy"] == busy["all"] - busy["compute"]
    assert sum(states.values()) == everything[-1][1] - everything[0][0]


def merged(events: Any) -> list[tuple[int, int]]:
    union: list[tuple[int, int]] = []
    for start, end in sorted((round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000)) for e in events):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


NEWER = (
    "b200_eager_trace",
    "h100_Qwen_Qwen1.5-0.5B-Chat__1016005",
    "h100_gaunernst_bert-small-uncased__1016001",
    "inference_sglang_decode_sglang_Qwen3-8B_decode",
    "inference_vllm_decode_full_graph_execution",
    "mi210_gpu_only_trace_gpu_only_trace",
    "mi300_Qwen_Qwen1.5-0.5B-Chat__1016005",
)


@pytest.mark.parametrize("name", [f"traces_{name}" for name in NEWER])
def test_recordings_of_newer_gpus_and_of_graphs_are_exact_to_the_launch_and_nanosecond(name: str) -> None:
    """Blackwell's kernels of one stream overlap: none of them is cut."""
    trace = trace_of(name)
    truth: Counter[str] = Counter()
    for event in gpu_events(name, "kernel"):
        truth[event["name"]] += round(event["dur"] * 1000)
    durations_ns = trace.launches.spans.duration_ns
    found = {kernel: int(durations_ns[trace.launches.name == at].sum()) for at, kernel in enumerate(trace.names)}
    assert found == truth
    assert len(trace.launches.spans) == len(gpu_events(name, "kernel"))
    copies = gpu_events(name, "gpu_memcpy")
    assert int(trace.copies.spans.duration_ns.sum()) == sum(round(event["dur"] * 1000) for event in copies)
    assert len(trace.memsets) == len(gpu_events(name, "gpu_memset"))
    assert (trace.unusable, trace.complete, len(trace.devices)) == (0, True, 1)
    assert not any("cut" in note or "left out" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("name", "index", "model"),
    [
        ("traces_inference_sglang_decode_sglang_Qwen3-8B_decode", 0, "AMD Instinct MI300X"),  # recorded as 9
        ("traces_mi300_Qwen_Qwen1.5-0.5B-Chat__1016005", 0, "AMD Instinct MI300X VF"),  # recorded as 2
        ("traces_mi210_gpu_only_trace_gpu_only_trace", 1, "AMD Instinct MI210"),
        ("traces_b200_eager_trace", 0, "NVIDIA B200"),
    ],
)
def test_gpus_of_recordings_have_the_file_s_own_number_and_name(name: str, index: int, model: str) -> None:
    (device,) = trace_of(name).devices
    assert (device.index, device.model_name) == (index, model)


def test_an_export_of_2026_equals_what_sql_says() -> None:
    path = recording("nsys", "nsysai-mock.sqlite")
    trace = nsys.read(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        query = "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_{}"
        kernels, copies = (database.execute(query.format(kind)).fetchone() for kind in ("KERNEL", "MEMCPY"))
    for spans, expected in ((trace.launches.spans, kernels), (trace.copies.spans, copies)):
        assert (len(spans), int(spans.duration_ns.sum())) == expected
    assert [(device.index, device.model_name) for device in trace.devices] == [(0, "NVIDIA GeForce RTX 3080")]


def test_an_nsys_export_equals_what_sql_says() -> None:
    path = recording("nsys", "cloverleaf-a100.sqlite")
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        by_name = {
            normalise(name): (count, total)
            for name, count, total in database.execute(
                "SELECT value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL "
                "JOIN StringIds ON StringIds.id = demangledName GROUP BY value"
            )
        }
        copies = database.execute(
            "SELECT count(*), sum(bytes), sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY"
        ).fetchone()
        ((call, calls, waited),) = database.execute(
            "SELECT value, count(*), sum(waits.end - waits.start) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS waits "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME USING (correlationId) JOIN StringIds ON StringIds.id = nameId "
            "GROUP BY value"
        )
    (report,) = source_of(nsys.read(path)).poll(NOW).reports
    signatures = {name.kernel: name.signature for name in report.names}
    assert {signatures[row.kernel]: (row.launches, row.durations.sum_ns) for row in report.rows} == by_name
    assert report.counters is not None
    rows = report.counters.memcpy
    assert (sum(r[3] for r in rows), sum(r[2] for r in rows), sum(r[4] for r in rows)) == copies
    assert call == "cudaDeviceSynchronize_v3020"
    assert report.counters.sync == (("context", calls, waited),)
    assert report.device.model_name == "NVIDIA A100-SXM4-80GB"


def aggregated(source: TraceSource, max_kernels: int | None) -> Iterator[tuple[str, DurationTotals]]:
    aggregator = Aggregator(max_kernels=max_kernels)
    now_ns = NOW
    while True:
        batch = source.poll(now_ns)
        for report in batch.reports:
            aggregator.report(report)
        samples = [sample for group in aggregator.samples(now_ns) for sample in group.samples]
        if batch.done:
            break
        now_ns += 50_000_000
    for sample in samples:
        if sample.metric is kernel.DURATION:
            assert isinstance(sample.value, DurationTotals)
            yield dict(sample.attributes)["kernel"], sample.value


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, None])
def test_through_the_aggregator_totals_are_the_trace_file_s(speed: float | None) -> None:
    events = gpu_events("control", "kernel")
    trace = trace_of("control")
    capped = list(aggregated(source_of(trace, speed), 100))
    assert "other" in dict(capped)
    assert sum(totals.count for _, totals in capped) == len(events)
    assert sum(totals.sum_ns for _, totals in capped) == sum(event["dur"] for event in events) * 1000
    every = dict(aggregated(source_of(trace, speed), None))
    assert {name: totals.count for name, totals in every.items()} == Counter(
        label(normalise(event["name"])) for event in events
    )


def test_twenty_thousand_kernels_in_one_poll_take_well_under_a_second() -> None:
    trace = trace_of("control")
    source = source_of(trace)
    began = time.thread_time()
    source.poll(NOW)
    assert (time.thread_time() - began) * 20_000 / len(trace.launches.spans) < 1
