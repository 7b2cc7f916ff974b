"""A real Prometheus scrapes each format: native histograms, classic ones, DCGM's names, and parts of a page."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from confluent_kafka import Producer
from opentelemetry.proto.metrics.v1 import metrics_pb2
from tests.service import built
from tests.service.servers import PrometheusServer, stopping, wait_for
from tests.service.stack import Stack

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.histogram import BUCKETS_PER_DOUBLING, DurationTotals
from kernelcast.wire.topics import DEVICE, KERNELS

pytestmark = pytest.mark.service

RESOURCE = Resource((("service.instance.id", "node-1"), ("service.name", "kernelcast-exporter")))
DURATION = "cuda_kernel_duration_seconds"
NATIVE = "--enable-feature=native-histograms"
QUANTILES = (0.05, 0.5, 0.9, 0.99)
NATIVE_WIDTH = 2 ** (1 / BUCKETS_PER_DOUBLING)
CLASSIC_WIDTH = 2.0
SERIES = 60
PROTOCOLS = ("PrometheusProto", "OpenMetricsText1.0.0", "OpenMetricsText0.0.1", "PrometheusText1.0.0",
             "PrometheusText0.0.4")  # fmt: skip
DURATIONS_NS = np.random.default_rng(7).lognormal(mean=12.0, sigma=1.5, size=2_000).round().astype(np.int64)


def produce(bootstrap_servers: str) -> None:
    """One kernel's durations, and two metrics of DCGM, of which one is a counter without `_total`, of many GPUs."""
    totals = DurationTotals()
    for duration in DURATIONS_NS.tolist():
        totals.observe(duration)
    now = time.time_ns()
    durations = Sample(kernel.DURATION, (("kernel", "gemm"),), now, totals, now - 10**9, detailed=True)
    gpus = [(("UUID", f"GPU-{i}"),) for i in range(SERIES // 2)]
    devices = [Sample(device.GPU_UTIL, labels, now, 42) for labels in gpus]
    devices += [Sample(device.TOTAL_ENERGY, labels, now, 1234, now - 10**9) for labels in gpus]
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(KERNELS.name, traced(now), key=b"node-2")
    for topic, samples in ((KERNELS.name, [durations]), (DEVICE.name, devices)):
        for export in encode(RESOURCE, samples, scope="test"):
            producer.produce(topic, export.body, key=b"node-1")
    assert producer.flush(10) == 0


def traced(now: int) -> bytes:
    """A foreign writer's counter and histogram, whose points say in which traces they were measured."""

    def exemplar(value: float, trace: int) -> metrics_pb2.Exemplar:
        return metrics_pb2.Exemplar(as_double=value, time_unix_nano=now, trace_id=bytes([trace] * 16))

    hits = metrics_pb2.NumberDataPoint(as_int=7, time_unix_nano=now, exemplars=[exemplar(3.0, 1)])
    pauses = metrics_pb2.HistogramDataPoint(
        time_unix_nano=now,
        count=3,
        sum=6.0,
        explicit_bounds=[1.0, 2.0],
        bucket_counts=[1, 1, 1],
        exemplars=[exemplar(0.5, 2), exemplar(4.0, 3)],
    )
    cumulative = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    total = metrics_pb2.Sum(aggregation_temporality=cumulative, is_monotonic=True, data_points=[hits])
    distribution = metrics_pb2.Histogram(aggregation_temporality=cumulative, data_points=[pauses])
    metrics = [metrics_pb2.Metric(name="hits", sum=total), metrics_pb2.Metric(name="pause", histogram=distribution)]
    scope = metrics_pb2.ScopeMetrics(metrics=metrics)
    return metrics_pb2.MetricsData(
        resource_metrics=[metrics_pb2.ResourceMetrics(scope_metrics=[scope])]
    ).SerializeToString()


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A bridge that has read all of it."""
    with EmbeddedBroker() as broker:
        produce(broker.bootstrap_servers)
        with Stack(tmp_path_factory.mktemp("bridge"), broker.bootstrap_servers) as stack:
            stack.service("bridge")
            wait_for("all series", lambda: len(stack.exposed("DCGM_FI_DEV_GPU_UTIL")) == SERIES // 2)
            wait_for("the histogram", lambda: stack.exposed(f"{DURATION}_count"))
            yield stack


def scraping(directory: Path, jobs: Sequence[dict[str, Any]], **how: Any) -> PrometheusServer:
    directory.mkdir()
    path = directory / "prometheus.yml"
    jobs = [{"honor_labels": True, **job} for job in jobs]
    path.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    return PrometheusServer(directory, path, **how)


def job(stack: Stack, name: str = "bridge", **how: Any) -> dict[str, Any]:
    return {
        "job_name": name,
        "static_configs": [{"targets": [stack.addresses["bridge"]], "labels": {"via": name}}],
        **how,
    }


def assert_quantiles(server: PrometheusServer, selector: str, width: float) -> None:
    """Each quantile lies in the bucket that holds the raw values' own."""
    sought = np.quantile(DURATIONS_NS / 1e9, QUANTILES, method="inverted_cdf")
    for quantile, exact in zip(QUANTILES, sought.tolist(), strict=True):
        found = server.scalar(f"histogram_quantile({quantile}, {selector})")
        assert found is not None, selector
        assert exact / width <= found <= exact * width, f"{quantile} of {selector}"


def assert_devices(server: PrometheusServer, via: str) -> None:
    for name, value in (("DCGM_FI_DEV_GPU_UTIL", 42), ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1234)):
        found = server.query(f'{name}{{via="{via}"}}')
        assert [sample for _, sample in found] == [value] * (SERIES // 2), name
        assert {labels["instance"] for labels, _ in found} == {"node-1"}


def metric_names(server: PrometheusServer, via: str) -> set[str]:
    """The names of all series, histograms too, that came by one protocol."""
    result = server.api("query", query=f'{{via="{via}", __name__!~"scrape_.*|up"}}')["result"]
    return {item["metric"]["__name__"] for item in result}


def test_native_and_classic_histograms_give_the_quantiles_of_the_raw_values_within_their_buckets(
    bridge: Stack, tmp_path: Path
) -> None:
    native = scraping(tmp_path / "native", [job(bridge)], options=[NATIVE])
    classic = scraping(tmp_path / "classic", [job(bridge)])
    with stopping(native, classic):
        native.run()
        classic.run()
        for server in (native, classic):
            wait_for("a scrape", partial(server.query, "DCGM_FI_DEV_GPU_UTIL"))
            assert_devices(server, "bridge")
        assert_quantiles(native, DURATION, NATIVE_WIDTH)
        assert native.scalar(f"histogram_count({DURATION})") == len(DURATIONS_NS)
        assert native.scalar(f"histogram_sum({DURATION})") == DURATIONS_NS.sum() / 1e9
        assert not native.query(f"{DURATION}_bucket"), "a Prometheus that takes native histograms takes no classic ones"
        assert_quantiles(classic, f"{DURATION}_bucket", CLASSIC_WIDTH)
        assert classic.scalar(f"{DURATION}_count") == len(DURATIONS_NS)
        assert not classic.query(DURATION)


def test_a_current_prometheus_gets_the_same_series_by_every_protocol(bridge: Stack, tmp_path: Path) -> None:
    jobs = [job(bridge, name, scrape_protocols=[name]) for name in PROTOCOLS]
    jobs[0] |= {"scrape_native_histograms": True, "always_scrape_classic_histograms": True}
    server = scraping(tmp_path / "current", jobs, program=built.PROMETHEUS.found())
    with stopping(server):
        server.run()
        for via in PROTOCOLS:
            wait_for(f"a scrape by {via}", partial(server.query, f'DCGM_FI_DEV_GPU_UTIL{{via="{via}"}}'))
            assert_devices(server, via)
            assert_quantiles(server, f'{DURATION}_bucket{{via="{via}"}}', CLASSIC_WIDTH)
            assert server.scalar(f'kernelcast_bridge_ready{{via="{via}"}}') == 1
        assert_quantiles(server, f'{DURATION}{{via="PrometheusProto"}}', NATIVE_WIDTH)
        names = {via: metric_names(server, via) for via in PROTOCOLS}
        assert all(found - {DURATION} == names["PrometheusText0.0.4"] for found in names.values()), names


@pytest.mark.parametrize("format_of_it", ["text", "protobuf"])
def test_the_traces_of_a_metric_are_found_in_prometheus(bridge: Stack, tmp_path: Path, format_of_it: str) -> None:
    features = "exemplar-storage" + (",native-histograms" if format_of_it == "protobuf" else "")
    server = scraping(tmp_path / "traces", [job(bridge)], options=[f"--enable-feature={features}"])
    with stopping(server):
        server.run()
        wait_for("a scrape", partial(server.query, "hits_total"))
        span = {"start": str(time.time() - 600), "end": str(time.time() + 60)}
        found = [
            (item["seriesLabels"].get("le", ""), exemplar["labels"]["trace_id"], float(exemplar["value"]))
            for item in server.api("query_exemplars", query="hits_total or pause_bucket", **span)
            for exemplar in item["exemplars"]
        ]
        assert sorted(found) == [("", "01" * 16, 3.0), ("+Inf", "03" * 16, 4.0), ("1.0", "02" * 16, 0.5)]


def test_a_scrape_in_shards_found_by_http_brings_every_series_once(bridge: Stack, tmp_path: Path) -> None:
    address = bridge.addresses["bridge"]
    found = {"job_name": "bridge", "http_sd_configs": [{"url": f"http://{address}/sd?shards=4"}]}
    server = scraping(tmp_path / "sharded", [found])
    with stopping(server):
        server.run()
        wait_for("four targets", lambda: server.scalar('count(up{job="bridge"} == 1)') == 4)
        wait_for("all series", lambda: server.scalar("count(DCGM_FI_DEV_GPU_UTIL)") == SERIES // 2)
        assert server.scalar("count(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION)") == SERIES // 2
        shares = [value for _, value in server.query('scrape_samples_scraped{job="bridge"}')]
        assert min(shares) > SERIES / 16
        assert server.query("kernelcast_bridge_ready")[0][0]["instance"] == address
        assert server.scalar("count(kernelcast_bridge_ready)") == 1
        assert server.scalar(f'count({{__name__=~"{DURATION}_bucket"}})') == 28
