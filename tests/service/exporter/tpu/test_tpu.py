"""TPUs by a runtime that answers real gRPC: units, distributions, and everything that can be absent."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.support.exporter.tpu_double import FakeRuntime, distribution, gauge, of, of_device
from tests.support.waiting import Stopwatch, eventually

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.exporter.exposition import render
from kernelcast.exporter.grpc.messages import message_classes
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.exporter.tpu import assembly as tpu_assembly
from kernelcast.exporter.tpu.assembly import tpu_source
from kernelcast.exporter.tpu.chips import ports_of, tpu_model
from kernelcast.exporter.tpu.distributions import complete, durations
from kernelcast.exporter.tpu.metrics import METRICS
from kernelcast.exporter.tpu.reader import value_of
from kernelcast.exporter.tpu.runtime import MESSAGES, Point
from kernelcast.exporter.tpu.source import TpuSource
from kernelcast.runtime.settings.service import load
from kernelcast.wire.catalogue.devices import tpu
from kernelcast.wire.errors import MissingExtraError
from kernelcast.wire.histogram import CLASSIC_BOUNDS_SECONDS, DurationTotals, classic_counts

NOW_NS = 1_800_000_000_000_000_000
HBM_USED = "tpu.runtime.hbm.memory.usage.bytes"
HBM_TOTAL = "tpu.runtime.hbm.memory.total.bytes"
DUTY = "tpu.runtime.tensorcore.dutycycle.percent"
QUEUE = "hlo.queue.size.gauge"
EXECUTION = "hlo.execution.timing.distribution.microseconds"
DCN = "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution"
RATE = "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution"


@pytest.fixture
def runtime() -> Iterator[FakeRuntime]:
    double = FakeRuntime().start()
    yield double
    double.stop()


class Node:
    """The source of one node, and its errors."""

    def __init__(self, *runtimes: FakeRuntime) -> None:
        self.errors: list[str] = []
        self.source = TpuSource(
            [one.port for one in runtimes],
            hostname="n",
            model="TPU v5e",
            interval_seconds=10.0,
            on_error=self.errors.append,
        )

    def samples(self, now_ns: int = NOW_NS) -> list[Sample]:
        self.source.refresh()
        return list(self.source.poll(now_ns).samples)

    def values(self) -> dict[str, Any]:
        """`name{labels that are not the node's}` to value, without absent rows."""
        return shown(self.samples())


def shown(samples: list[Sample]) -> dict[str, Any]:
    found = {}
    for sample in samples:
        own = {key: value for key, value in sample.attributes if key not in {"Hostname", "port", "modelName"}}
        if "reason" not in own:
            labels = ",".join(f"{key}={value}" for key, value in own.items())
            assert f"{sample.metric.prometheus_name}{{{labels}}}" not in found, "each series stands once"
            found[f"{sample.metric.prometheus_name}{{{labels}}}"] = sample.value
    return found


def points_sent(samples: list[Sample]) -> int:
    resource = Resource((("service.instance.id", "n"), ("service.name", "s")))
    return sum(export.points for export in encode(resource, samples, scope="s"))


def absent(samples: list[Sample]) -> dict[str, str]:
    rows = [dict(sample.attributes) for sample in samples if "reason" in dict(sample.attributes)]
    return {row["metric"]: row["reason"] for row in rows}


def test_gauges_are_written_in_base_units_per_chip_and_under_the_names_that_gpus_share(runtime: FakeRuntime) -> None:
    runtime.metrics = {
        HBM_USED: gauge(of_device(0), 2**30) + gauge(of_device(1), 3 * 2**30),
        HBM_TOTAL: gauge(of_device(0), 16 * 2**30) + gauge(of_device(1), 16 * 2**30),
        DUTY: gauge(of_device(0), 87.5) + gauge(of_device(1), 0.0),
        "tpu.runtime.tensorcore.idle_duration.seconds": gauge(of_device(0), 1.5),
        QUEUE: gauge(of(device_ordinal="0", core_type="TENSOR_CORE"), 3) + gauge(of(device_ordinal=1), 0),
    }
    shared = "accelerator=tpu,index="
    assert Node(runtime).values() == {
        "tpu_hbm_memory_used_bytes{tpu=0}": 2**30,
        "tpu_hbm_memory_used_bytes{tpu=1}": 3 * 2**30,
        "tpu_hbm_memory_total_bytes{tpu=0}": 16 * 2**30,
        "tpu_hbm_memory_total_bytes{tpu=1}": 16 * 2**30,
        "tpu_tensorcore_duty_cycle_ratio{tpu=0}": 0.875,
        "tpu_tensorcore_duty_cycle_ratio{tpu=1}": 0.0,
        "tpu_tensorcore_idle_duration_seconds{tpu=0}": 1.5,
        "tpu_hlo_queue_size{core_type=TENSOR_CORE,tpu=0}": 3,
        "tpu_hlo_queue_size{tpu=1}": 0,
        f"kernelcast_accelerator_utilization_ratio{{{shared}0}}": 0.875,
        f"kernelcast_accelerator_utilization_ratio{{{shared}1}}": 0.0,
        f"kernelcast_accelerator_memory_used_bytes{{{shared}0}}": 2**30,
        f"kernelcast_accelerator_memory_used_bytes{{{shared}1}}": 3 * 2**30,
        f"kernelcast_accelerator_memory_total_bytes{{{shared}0}}": 16 * 2**30,
        f"kernelcast_accelerator_memory_total_bytes{{{shared}1}}": 16 * 2**30,
    }


def test_a_distribution_becomes_a_histogram_in_seconds(runtime: FakeRuntime) -> None:
    """Bounds 1, 2, 4 µs: one below 1, two in (1, 2], three in (2, 4], one above."""
    counts = [1, 2, 3, 1]
    runtime.metrics = {
        EXECUTION: distribution(of(device_ordinal=0), counts, mean=3.0, deviation=70.0, start=1_700_000_000)
    }
    (sample,) = [one for one in Node(runtime).samples() if isinstance(one.value, DurationTotals)]
    totals = sample.value
    assert isinstance(totals, DurationTotals)
    assert (totals.count, totals.sum_ns, totals.sum_squares_ns2) == (7, 21_000, (70 + 7 * 9) * 1_000_000)
    assert sample.start_ns == 1_700_000_000 * 10**9 + 5
    page = render([sample]).decode()
    assert "tpu_hlo_execution_seconds_sum" in page
    found = dict(zip(CLASSIC_BOUNDS_SECONDS, classic_counts(0, totals.buckets.items()), strict=True))
    assert (found[2.0**-19], found[2.0**-18], found[2.0**-17]) == (1, 3, 7), "1.9, 3.8 and 7.6 µs"


def test_points_of_one_buffer_size_are_added_up_and_each_size_is_a_series(runtime: FakeRuntime) -> None:
    runtime.metrics = {
        DCN: distribution(of(buffer_size="8MB+", collective="a"), [0, 2, 0], mean=1.5)
        + distribution(of(buffer_size="8MB+", collective="b"), [0, 0, 2], mean=3.0)
        + distribution(of(buffer_size="4MB+"), [1, 0, 0], mean=0.5)
    }
    values = Node(runtime).values()
    assert {name: (one.count, one.sum_ns) for name, one in values.items()} == {
        "tpu_megascale_dcn_transfer_seconds{buffer_size=8MB+}": (4, 9_000),
        "tpu_megascale_dcn_transfer_seconds{buffer_size=4MB+}": (1, 500),
    }


def test_a_rate_is_reported_by_sum_and_count_in_bytes_per_second(runtime: FakeRuntime) -> None:
    runtime.metrics = {RATE: distribution(of(peer="10.0.0.1"), [0, 1, 1, 0], mean=800.0)}
    lines = render([one for one in Node(runtime).samples() if isinstance(one.value, DurationTotals)]).decode()
    name = "tpu_megascale_tcp_delivery_rate_bytes_per_second"
    assert f"{name}_sum" in lines
    assert [line.rpartition(" ")[2] for line in lines.splitlines() if f"{name}_" in line] == ["2", "200000000.0", "2"]


def test_a_histogram_without_a_start_begins_when_seen_and_restarts_when_it_falls(runtime: FakeRuntime) -> None:
    node = Node(runtime)

    def start(counts: list[int], now_ns: int) -> int:
        runtime.metrics = {DCN: distribution(of(buffer_size="1"), counts, mean=1.0)}
        return next(one.start_ns for one in node.samples(now_ns) if isinstance(one.value, DurationTotals))

    assert start([1, 1, 1], NOW_NS) == NOW_NS
    assert start([1, 5, 1], NOW_NS + 10) == NOW_NS
    assert start([1, 0, 0], NOW_NS + 20) == NOW_NS + 20


def test_a_start_before_1970_counts_as_none_and_the_sample_can_be_sent(runtime: FakeRuntime) -> None:
    """An empty time of Go or absl is the beginning of the year 1."""
    runtime.metrics = {DCN: distribution(of(buffer_size="1"), [1, 1, 1], mean=1.0, start=-62_135_596_800)}
    (sample,) = [one for one in Node(runtime).samples() if isinstance(one.value, DurationTotals)]
    assert sample.start_ns == NOW_NS
    assert points_sent([sample]) == 1


def test_counts_whose_sum_no_sample_can_carry_are_left_out(runtime: FakeRuntime) -> None:
    largest = 2**63 - 1
    runtime.metrics = {DCN: 3 * distribution(of(buffer_size="1"), [0, largest, 0], mean=1.0)}
    samples = Node(runtime).samples()
    assert not shown(samples)
    assert absent(samples)[DCN] == "no_data"


def test_without_a_program_everything_is_absent_for_that_reason_and_it_is_no_error() -> None:
    gone = FakeRuntime().start()
    node = Node(gone)
    gone.stop()
    samples = node.samples()
    assert (absent(samples), shown(samples), node.errors) == ({"all": "no_program"}, {}, [])


def test_a_program_that_comes_and_goes_takes_its_series_with_it(runtime: FakeRuntime) -> None:
    node = Node(runtime)
    runtime.metrics = {DUTY: gauge(of_device(0), 50.0)}
    assert "tpu_tensorcore_duty_cycle_ratio{tpu=0}" in node.values()
    runtime.stop()
    assert node.values() == {}
    runtime.start()
    eventually(lambda: "tpu_tensorcore_duty_cycle_ratio{tpu=0}" in node.values())


def test_empty_answers_and_metrics_that_the_runtime_lacks_are_absent_each_for_its_reason(runtime: FakeRuntime) -> None:
    runtime.metrics = {DUTY: b"", HBM_USED: gauge(of_device(0), math.nan), EXECUTION: gauge(of_device(0), 1.0)}
    node = Node(runtime)
    reasons = absent(node.samples())
    assert {name: reasons.pop(name) for name in runtime.metrics} == dict.fromkeys(runtime.metrics, "no_data")
    assert set(reasons) == set(METRICS) - set(runtime.metrics)
    assert set(reasons.values()) == {"not_supported"}
    assert runtime.asked == sorted(runtime.metrics), "unsupported metrics are not requested"


def test_one_metric_that_fails_takes_no_other_with_it(runtime: FakeRuntime) -> None:
    runtime.metrics = {DUTY: gauge(of_device(0), 50.0), HBM_USED: gauge(of_device(0), 1)}
    runtime.failures = {HBM_USED: grpc.StatusCode.INTERNAL}
    node = Node(runtime)
    samples = node.samples()
    assert absent(samples)[HBM_USED] == "error"
    assert "tpu_tensorcore_duty_cycle_ratio{tpu=0}" in shown(samples)
    assert node.errors == ["error"]


def test_an_older_runtime_that_cannot_list_is_asked_for_each_metric(runtime: FakeRuntime) -> None:
    runtime.metrics = dict.fromkeys(METRICS, b"") | {DUTY: gauge(of_device(0), 50.0)}
    runtime.failures = {"": grpc.StatusCode.UNIMPLEMENTED}
    assert "tpu_tensorcore_duty_cycle_ratio{tpu=0}" in Node(runtime).values()
    assert set(runtime.asked) == set(METRICS)


def test_a_slow_runtime_keeps_neither_the_daemon_nor_the_other_ports_waiting(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.metrics = {DUTY: gauge(of_device(0), 50.0)}
    runtime.slow = {DUTY}
    quick = FakeRuntime(**{DUTY: gauge(of_device(4), 25.0)}).start()
    node = Node(runtime, quick)
    try:
        node.source.start()
        with Stopwatch() as took:
            values = shown(list(node.source.poll(NOW_NS).samples))
        assert took.seconds < 0.1
        assert values["tpu_tensorcore_duty_cycle_ratio{tpu=4}"] == 0.25
        assert "tpu_tensorcore_duty_cycle_ratio{tpu=0}" not in values
        eventually(lambda: node.errors == ["timeout"])
        assert "timeout" in absent(list(node.source.poll(NOW_NS).samples)).values()
    finally:
        runtime.may_answer.set()
        node.source.close()
        quick.stop()


def test_each_ports_series_are_its_own_and_a_chip_that_two_tell_of_counts_once(runtime: FakeRuntime) -> None:
    other = FakeRuntime().start()
    runtime.metrics = {HBM_USED: gauge(of_device(0), 5), DCN: distribution(of(buffer_size="1"), [1, 0], mean=1.0)}
    other.metrics = {HBM_USED: gauge(of_device(0), 7), DCN: distribution(of(buffer_size="1"), [2, 0], mean=1.0)}
    samples = Node(runtime, other).samples()
    other.stop()
    keys = [(one.metric, one.attributes) for one in samples]
    assert len(keys) == len(set(keys))
    common = [one.value for one in samples if one.metric.prometheus_name.startswith("kernelcast_accelerator")]
    assert common == [5]


buckets = st.lists(st.integers(0, 50), min_size=2, max_size=40)


@given(counts=buckets, growth=st.floats(1.05, 4.0), scale=st.floats(0.5, 50.0), data=st.data())
def test_no_bucket_is_lower_than_its_bound_nor_much_higher(
    counts: list[int], growth: float, scale: float, data: st.DataObject
) -> None:
    """The oracle counts each of the runtime's buckets whole, at its upper bound."""
    message = CLASSES["Distribution"](count=sum(counts), mean=1.0, bucket_counts=counts)
    options = message.bucket_options.exponential_buckets
    options.num_finite_buckets, options.growth_factor, options.scale = len(counts) - 2, growth, scale
    totals = durations(message, 1_000.0)
    assert complete(totals)
    for bound, count in zip(
        CLASSIC_BOUNDS_SECONDS, classic_counts(totals.zero_count, totals.buckets.items()), strict=True
    ):
        at_most = sum(n for i, n in enumerate(counts[:-1]) if scale * growth**i * 1e-6 <= bound * (1 + 1e-6))
        at_least = sum(n for i, n in enumerate(counts[:-1]) if scale * growth**i * 1e-6 <= bound * (1 - 1e-3))
        assert at_least <= count <= at_most + (counts[-1] if count > at_most else 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 3, "bucket_counts": [1, 1]},
        {"count": 2, "bucket_counts": [1] * 2000},
        {"count": 2, "bucket_counts": [2], "growth": 1.0},
        {"count": 2, "bucket_counts": [2], "scale": 0.0},
        {"count": 2, "bucket_counts": [2], "finite": 2**31 - 1},
    ],
    ids=str,
)
def test_buckets_that_cannot_be_are_left_out_and_sum_and_count_stay(wrong: dict[str, Any]) -> None:
    message = CLASSES["Distribution"](count=wrong["count"], mean=2.0, bucket_counts=wrong["bucket_counts"])
    options = message.bucket_options.exponential_buckets
    options.num_finite_buckets = wrong.get("finite", 2)
    options.growth_factor, options.scale = wrong.get("growth", 2.0), wrong.get("scale", 1.0)
    totals = durations(message, 1_000.0)
    assert not complete(totals)
    assert (totals.count, totals.sum_ns) == (wrong["count"], wrong["count"] * 2_000)


numbers = st.floats(width=64) | st.sampled_from([0.0, -1.0, 1e308, math.inf, math.nan])


@given(
    count=st.integers(-(2**63), 2**63 - 1),
    numbers=st.tuples(numbers, numbers, numbers, numbers),
    finite=st.integers(-(2**31), 2**31 - 1),
    counts=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
)
def test_any_answer_of_a_runtime_is_a_value_that_can_be_sent_or_none(
    count: int, numbers: tuple[float, ...], finite: int, counts: list[int]
) -> None:
    mean, deviation, growth, scale = numbers
    message = CLASSES["Distribution"](count=count, mean=mean, sum_of_squared_deviation=deviation, bucket_counts=counts)
    options = message.bucket_options.exponential_buckets
    options.num_finite_buckets, options.growth_factor, options.scale = finite, growth, scale
    value = value_of(METRICS[DCN], Point({}, message))
    if value is not None:
        assert points_sent([Sample(value.row, value.labels, NOW_NS, value.value, NOW_NS, value.detailed)]) == 1


def test_linear_and_explicit_buckets_are_read_too() -> None:
    linear = CLASSES["Distribution"](count=3, mean=1.0, bucket_counts=[1, 1, 1])
    linear.bucket_options.linear_buckets.num_finite_buckets = 1
    linear.bucket_options.linear_buckets.width = 8.0
    totals = durations(linear, 1_000.0)
    assert (totals.zero_count, sum(totals.buckets.values())) == (1, 2), "the first ends at 0"
    explicit = CLASSES["Distribution"](count=2, mean=1.0, bucket_counts=[1, 1])
    explicit.bucket_options.explicit_buckets.bounds.append(8.0)
    assert complete(durations(explicit, 1_000.0))


def chip(root: Path, name: str, vendor: str, device: str, subsystem: str = "0x0000") -> None:
    (root / name).mkdir(parents=True)
    for file, word in (("vendor", vendor), ("device", device), ("subsystem_device", subsystem)):
        (root / name / file).write_text(f"{word}\n")


def test_a_node_has_tpus_by_its_pci_devices_and_googles_network_card_is_none(tmp_path: Path) -> None:
    chip(tmp_path, "0000:00:03.0", "0x1ae0", "0x0042")
    assert tpu_model(tmp_path) == ""
    chip(tmp_path, "0000:00:04.0", "0x10de", "0x0063")
    assert tpu_model(tmp_path) == ""
    chip(tmp_path, "0000:00:05.0", "0x1ae0", "0x0063")
    assert tpu_model(tmp_path) == "TPU v5e"
    assert tpu_model(tmp_path / "none") == ""


def test_an_old_chip_is_recognised_by_its_subsystem(tmp_path: Path) -> None:
    chip(tmp_path, "0000:00:05.0", "0x1ae0", "0x0027", "0x004f")
    assert tpu_model(tmp_path) == "TPU v3"


@pytest.mark.parametrize(
    ("configured", "ports"),
    [("", (8431,)), ("8431,8432, 8433", (8431, 8432, 8433)), ("8440,8440", (8440,)), ("x,99999", (8431,))],
)
def test_ports_are_those_that_libtpu_is_configured_with(configured: str, ports: tuple[int, ...]) -> None:
    assert ports_of({"TPU_RUNTIME_METRICS_PORTS": configured}) == ports


def test_the_setting_decides_whether_tpus_are_asked(runtime: FakeRuntime) -> None:
    runtime.metrics = {DUTY: gauge(of_device(0), 50.0)}

    def made(**flags: object) -> TpuSource | None:
        settings = load("exporter", ExporterSettings, path=None, flags=flags, environ={})
        return tpu_source(settings, hostname="n", registry=registry)

    registry = CollectorRegistry()
    assert made(tpu="off") is None
    assert registry.get_sample_value("kernelcast_exporter_tpu_errors_total", {"reason": "timeout"}) == 0
    registry = CollectorRegistry()
    source = made(tpu="on", tpu_ports=[runtime.port])
    assert source is not None
    assert "tpu_tensorcore_duty_cycle_ratio{tpu=0}" in shown(list(source.poll(NOW_NS).samples))
    source.close()


def test_the_catalogue_names_the_labels_that_each_row_gets() -> None:
    for metric in METRICS.values():
        assert {ours for _, ours in metric.labels} == set(metric.row.labels) - set(tpu.RUNTIME_LABELS)


def test_without_grpcio_auto_continues_with_tpus_and_on_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.setattr(tpu_assembly, "tpu_model", lambda: "TPU v5e")

    def made(**flags: object) -> TpuSource | None:
        settings = load("exporter", ExporterSettings, path=None, flags=flags, environ={})
        return tpu_source(settings, hostname="n", registry=CollectorRegistry())

    assert made() is None
    with pytest.raises(MissingExtraError, match="grpcio is not installed"):
        made(tpu="on")


CLASSES = message_classes("tpu.monitoring.runtime", MESSAGES)
