"""Every recording, replayed in steps: the exporter's last samples against a plain computation from the file."""

import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.exporter import recording_truth
from tests.support.exporter.recording_truth import Truth

from kernelcast.columnar import Sample
from kernelcast.exporter.replay import TraceSource
from kernelcast.exporter.replay.formats import kineto, nsys
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.wire.catalogue import Metric, kernel
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import OTHER, label, normalise

NOW = 1_760_000_000_000_000_000
SECOND_NS = 1_000_000_000
STEPS = 23
ROOT = Path(__file__).resolve().parents[4]
FOLDER = Path(os.environ.get("KERNELCAST_SHARED_DATA", ROOT.parent / "shared" / "data"))
RECORDINGS = [
    "kineto/control.json.gz",
    "kineto/alexnet.json.gz",
    "kineto/mi250_minitoy.json.gz",
    "kineto/sampled_rank-0.json.gz",
    "kineto/sampled_rank-1.json.gz",
    "nsys/cloverleaf-a100.sqlite",
]

pytestmark = pytest.mark.parametrize("name", RECORDINGS)


def recording(name: str) -> Path:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is not on this machine; set KERNELCAST_SHARED_DATA to the folder of recordings")
    return path


@cache
def truth_of(name: str) -> Truth:
    path = recording(name)
    return recording_truth.nsys(path) if name.startswith("nsys") else recording_truth.kineto(path)


@cache
def last_samples(name: str) -> tuple[Sample, ...]:
    path = recording(name)
    trace = nsys.read(path) if name.startswith("nsys") else kineto.read(path)
    source = TraceSource(trace, program="job", rank="", hostname="node1", speed=1.0, start_ns=NOW)
    aggregator = Aggregator(max_kernels=None, detailed_kernels=10_000)
    step_ns = round(source.length_seconds * SECOND_NS / STEPS) + 1
    samples: tuple[Sample, ...] = ()
    for step in range(STEPS + 1):
        for report in source.poll(NOW + step * step_ns).reports:
            aggregator.report(report)
        samples = tuple(one for group in aggregator.samples(NOW + step * step_ns) for one in group.samples)
    assert source.poll(NOW + STEPS * step_ns).done
    assert aggregator.counts.fallen == aggregator.counts.refused == 0
    return samples


def shown(name: str, metric: Metric, by: str) -> dict[str, Any]:
    """Values by one label, summed over the others."""
    found: dict[str, Any] = {}
    for sample in last_samples(name):
        if sample.metric is metric:
            key = dict(sample.attributes).get(by, "")
            found[key] = found[key] + sample.value if key in found else sample.value
    return found


def nanoseconds(values: dict[str, float]) -> dict[str, int]:
    return {key: round(value * SECOND_NS) for key, value in values.items()}


@pytest.mark.slow
def test_launches_and_durations_of_every_kernel(name: str) -> None:
    durations: dict[str, list[int]] = {}
    for launch in truth_of(name).launches:
        durations.setdefault(label(normalise(launch.name)), []).append(launch.duration_ns)
    assert shown(name, kernel.LAUNCHES, "kernel") == {key: len(values) for key, values in durations.items()}
    assert shown(name, kernel.TIMED_LAUNCHES, "kernel") == shown(name, kernel.LAUNCHES, "kernel")
    totals = shown(name, kernel.DURATION, "kernel")
    for key, values in durations.items():
        assert (totals[key].count, totals[key].sum_ns) == (len(values), sum(values))
        assert totals[key].zero_count == values.count(0)
        assert totals[key].buckets == buckets(values)


def buckets(durations_ns: list[int]) -> Counter[int]:
    """Bucket i holds values above 2**(i/8) seconds and at most 2**((i+1)/8): compared, not computed by logarithm."""
    found: Counter[int] = Counter()
    for duration_ns in durations_ns:
        index = -240
        while duration_ns > 2.0 ** ((index + 1) / 8) * SECOND_NS:
            index += 1
        found[index] += duration_ns > 0
    return +found


def test_queue_delays_of_every_kernel(name: str) -> None:
    delays: dict[str, list[int]] = {}
    for launch in truth_of(name).launches:
        assert launch.delay_ns is not None
        delays.setdefault(label(normalise(launch.name)), []).append(launch.delay_ns)
    assert shown(name, kernel.QUEUE_DELAYS, "kernel") == {key: len(values) for key, values in delays.items()}
    exposed = nanoseconds(shown(name, kernel.QUEUE_DELAY, "kernel"))
    assert exposed == {key: sum(values) for key, values in delays.items()}
    assert not shown(name, kernel.GRAPH_LAUNCHES, "kernel")


def test_copies_and_fills_by_kind(name: str) -> None:
    size_bytes: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    copied_ns: Counter[str] = Counter()
    truth = truth_of(name)
    fills = [("memset", *one) for one in zip(truth.fill_bytes, truth.fills, strict=True)]
    for kind, copied, (start, end) in truth.copies + fills:
        size_bytes[kind] += copied
        operations[kind] += 1
        copied_ns[kind] += end - start
    assert shown(name, kernel.MEMCPY_BYTES, "kind") == size_bytes
    assert shown(name, kernel.MEMCPY_OPERATIONS, "kind") == operations
    assert nanoseconds(shown(name, kernel.MEMCPY_SECONDS, "kind")) == copied_ns


def test_waits_by_type(name: str) -> None:
    calls = Counter(kind for kind, _ in truth_of(name).syncs)
    waited_ns: Counter[str] = Counter()
    for kind, duration_ns in truth_of(name).syncs:
        waited_ns[kind] += duration_ns
    assert shown(name, kernel.SYNC_CALLS, "type") == calls
    assert nanoseconds(shown(name, kernel.SYNC_WAIT, "type")) == waited_ns


def test_time_of_the_gpu_by_state(name: str) -> None:
    assert nanoseconds(shown(name, kernel.DEVICE_TIME, "state")) == truth_of(name).states()


def test_gaps_between_activities_of_the_gpu(name: str) -> None:
    gaps = truth_of(name).gaps()
    (totals,) = shown(name, kernel.LAUNCH_GAP, "").values()
    assert isinstance(totals, DurationTotals)
    assert (totals.count, totals.sum_ns, totals.sum_squares_ns2) == (len(gaps), sum(gaps), sum(one**2 for one in gaps))
    assert totals.buckets == buckets(gaps)
    assert totals.sum_ns == truth_of(name).states()["idle"]


def test_regions(name: str) -> None:
    truth = truth_of(name)
    exposed = shown(name, kernel.REGION_WALL, "region")
    launches = Counter(one.region for one in truth.launches if one.region)
    gpu_ns: Counter[str] = Counter()
    for launch in truth.launches:
        if launch.region:
            gpu_ns[launch.region] += launch.duration_ns
    kept = {region for region in truth.wall_ns if region in exposed}
    assert len(exposed) <= 33
    assert shown(name, kernel.REGION_LAUNCHES, "region") == folded(launches, kept, exposed)
    assert nanoseconds(shown(name, kernel.REGION_GPU, "region")) == folded(gpu_ns, kept, exposed)
    assert nanoseconds(exposed) == folded(truth.wall_ns, kept, exposed)


def folded(values: Counter[str], kept: set[str], exposed: dict[str, float]) -> dict[str, int]:
    """With the regions that have no row of their own as `other`."""
    found = dict.fromkeys(exposed, 0)
    for region, value in values.items():
        found[region if region in kept else OTHER] += value
    return found


def test_variants_add_up_to_their_kernels(name: str) -> None:
    by_kernel = shown(name, kernel.VARIANT_LAUNCHES, "kernel")
    if "mi250" in name:
        assert all(not dict(sample.attributes).get("grid") for sample in last_samples(name))
    else:
        assert by_kernel == shown(name, kernel.LAUNCHES, "kernel")
