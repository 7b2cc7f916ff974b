"""The recipes of deploy/collector in a real OpenTelemetry Collector, from a real Kafka to real Prometheus servers."""

import subprocess
import time
from pathlib import Path
from typing import Self

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from tests.service.built import COLLECTOR, PROMETHEUS
from tests.service.conftest import Broker
from tests.service.servers import PrometheusServer, ServerProcess, stopping, wait_for
from tests.service.topics import create_topics

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.wire.catalogue import CATALOGUE, Kind, kernel
from kernelcast.wire.catalogue.bridge import TARGET_INFO
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.topics import KERNELS, METRIC_TOPICS

pytestmark = pytest.mark.service
RECIPES = Path(__file__).parents[3] / "deploy" / "collector"
RESOURCE = Resource((("service.instance.id", "node-1"), ("service.name", "kernelcast-exporter")))
RETRIES = "--feature-gates=exporter.prometheusremotewritexporter.RetryOn429"
NATIVE = "--enable-feature=native-histograms"
OLD, NEW = "2.42", "3.15"
WAYS = {
    (OLD, "remote_write"): ("/api/v1/write", ["--web.enable-remote-write-receiver", NATIVE]),
    (NEW, "remote_write"): ("/api/v1/write", ["--web.enable-remote-write-receiver"]),
    (NEW, "otlp"): ("/api/v1/otlp/v1/metrics", ["--web.enable-otlp-receiver"]),
}
SERIES, STEP_MS = 6, 50


class Store(PrometheusServer):
    """A Prometheus that scrapes nothing and accepts points."""

    def __init__(self, directory: Path, version: str, pipeline: str) -> None:
        directory.mkdir(exist_ok=True)
        configuration = directory / "prometheus.yml"
        # A Collector that was killed sends its last points again.
        configuration.write_text("global: {scrape_interval: 1m}\nstorage: {tsdb: {out_of_order_time_window: 30m}}\n")
        path, options = WAYS[version, pipeline]
        program = PROMETHEUS.found() if version == NEW else None
        super().__init__(directory, configuration, program=program, options=options)
        self.accepts = self.url + path

    def names(self) -> set[str]:
        """Names of all its series."""
        return set(self.api("label/__name__/values"))

    def points(self) -> dict[str, float]:
        """Number of points of each kernel."""
        counts = self.query("count_over_time(cuda_kernel_launches_total[1h])")
        return {labels["kernel"]: value for labels, value in counts}


class Topics:
    """Kernelcast's topics, and a producer that writes to them as an exporter does."""

    def __init__(self, kafka: Broker) -> None:
        create_topics(kafka.bootstrap_servers, [NewTopic(topic.name, 2, 1) for topic in METRIC_TOPICS])
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        self._start_ms = round(time.time() * 1000) - 600_000
        self.rounds = 0

    def write(self, rounds: int) -> None:
        """One point of every series a round, each with a time of its own."""
        for _ in range(rounds):
            self.rounds += 1
            time_ns = (self._start_ms + self.rounds * STEP_MS) * 1_000_000
            for number in range(SERIES):
                samples = [Sample(kernel.LAUNCHES, (("kernel", f"k{number}"),), time_ns, self.rounds, 1)]
                self._send(KERNELS.name, samples, f"program-{number}")
        assert self._producer.flush(20) == 0

    def write_catalogue(self) -> None:
        """A point of every metric of the catalogue."""
        time_ns = time.time_ns()
        totals = DurationTotals()
        totals.observe(1_000)
        for row in CATALOGUE:
            if row.otlp_name:
                value = totals if row.kind is Kind.HISTOGRAM else 1
                start_ns = 0 if row.kind in (Kind.GAUGE, Kind.INFO) else 1
                labels = tuple((name, "1") for name in sorted(row.labels))
                self._send(KERNELS.name, [Sample(row, labels, time_ns, value, start_ns, detailed=True)], "node-1")
        assert self._producer.flush(20) == 0

    def _send(self, topic: str, samples: list[Sample], key: str) -> None:
        for export in encode(RESOURCE, samples, scope="test"):
            self._producer.produce(topic, export.body, key=key)

    def all(self) -> dict[str, float]:
        return {f"k{number}": self.rounds for number in range(SERIES)}


class RecipeProcess(ServerProcess):
    """A Collector with `push.yaml` as it is; its other pipeline reads a topic that does not exist."""

    def __init__(self, directory: Path, kafka: Broker, store: Store, pipeline: str) -> None:
        other = "otlp" if pipeline == "remote_write" else "remote_write"
        address = {"remote_write": "REMOTE_WRITE_URL", "otlp": "OTLP_METRICS_URL"}[pipeline]
        readers = {
            f"kafka/{pipeline}": {"initial_offset": "earliest"},
            f"kafka/{other}": {"metrics": {"topics": ["none"]}},
        }
        changes = directory / "changes.yaml"
        silent = {"telemetry": {"metrics": {"level": "none"}}}
        changes.write_text(yaml.safe_dump({"receivers": readers, "service": silent}))
        command = [str(COLLECTOR.found()), "--config", f"file:{RECIPES / 'push.yaml'}", "--config", f"file:{changes}"]
        environ = {"KAFKA_BROKERS": kafka.bootstrap_servers, address: store.accepts}
        super().__init__("collector", [*command, RETRIES], directory, environ)

    def run(self) -> Self:
        """Start and wait."""
        began = self._starts()
        return self.start(lambda: self._starts() > began)

    def _starts(self) -> int:
        return self.tail(10_000_000).count("Everything is ready")


@pytest.fixture
def topics(kafka: Broker) -> Topics:
    return Topics(kafka)


@pytest.mark.parametrize("recipe", ["push.yaml", "delta.yaml"])
def test_a_collector_accepts_each_recipe(recipe: str) -> None:
    command = [str(COLLECTOR.found()), "validate", "--config", f"file:{RECIPES / recipe}"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""


@pytest.mark.parametrize(("version", "pipeline"), list(WAYS))
def test_every_metric_of_the_catalogue_arrives_under_the_name_that_dashboards_ask_for(
    kafka: Broker, topics: Topics, tmp_path: Path, version: str, pipeline: str
) -> None:
    topics.write_catalogue()
    store = Store(tmp_path / "store", version, pipeline)
    process = RecipeProcess(tmp_path, kafka, store, pipeline)
    expected = {row.prometheus_name for row in CATALOGUE if row.otlp_name and row.exposed}
    with stopping(store, process):
        store.run()
        process.run()
        wait_for("the series", lambda: not expected - store.names())
        assert store.names() - {TARGET_INFO.prometheus_name} == expected


@pytest.mark.parametrize(("version", "pipeline"), list(WAYS))
def test_every_point_arrives_across_an_outage_of_the_store_and_a_killed_collector(
    kafka: Broker, topics: Topics, tmp_path: Path, version: str, pipeline: str
) -> None:
    store = Store(tmp_path / "store", version, pipeline)
    process = RecipeProcess(tmp_path, kafka, store, pipeline)

    def arrived() -> bool:
        return store.points() == topics.all()

    with stopping(store, process):
        store.run()
        process.run()
        topics.write(40)
        wait_for("the first points", arrived)
        store.stop()
        topics.write(40)
        wait_for("retries", lambda: "Backing off" in process.tail(1_000_000))
        process.kill()
        topics.write(40)
        store.run()
        process.run()
        wait_for("the points of the outage", arrived)
        for _ in range(2):
            topics.write(40)
            process.kill()
            process.run()
        wait_for("the points around each crash", arrived)
