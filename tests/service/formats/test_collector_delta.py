"""The recipe for delta points in a real OpenTelemetry Collector, between a real Kafka and a bridge."""

import re
import time
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA
from tests.service.built import COLLECTOR
from tests.service.conftest import Broker
from tests.service.replicas import Replicas
from tests.service.servers import ServerProcess, get, stopping, wait_for
from tests.service.topics import create_topics

pytestmark = pytest.mark.service
RECIPE = Path(__file__).parents[3] / "deploy" / "collector" / "delta.yaml"
DELTAS, TOTALS = "otlp_metrics", "otlp_totals"
GROUP = "kernelcast-delta"
SHOPS = ("a", "b", "c")
LINE = re.compile(r'^(sold_total|waits_count|stock){.*instance="(\w)".*} (\S+)$', re.MULTILINE)


class Shops:
    """Resources that each write a delta sum, a delta histogram and a gauge, without a key."""

    def __init__(self, kafka: Broker) -> None:
        self._kafka = kafka
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        self._last_ns = time.time_ns()
        self.written = 0

    def sell(self, times: int) -> dict[tuple[str, str], float]:
        """Write points of one; what a page shows whose totals begin with them."""
        for _ in range(times):
            now_ns = time.time_ns()
            for shop in SHOPS:
                self._producer.produce(DELTAS, _points(shop, self._last_ns, now_ns), partition=0)
            self._last_ns, self.written = now_ns, self.written + len(SHOPS)
        assert self._producer.flush(20) == 0
        totals = {(name, shop): float(times) for name in ("sold_total", "waits_count") for shop in SHOPS}
        return totals | {("stock", shop): 7.0 for shop in SHOPS}

    def all_committed(self) -> bool:
        """Whether the Collector has committed the offset after the last point."""
        consumer = Consumer({"bootstrap.servers": self._kafka.bootstrap_servers, "group.id": GROUP})
        (partition,) = consumer.committed([TopicPartition(DELTAS, 0)], 10)
        consumer.close()
        return bool(partition.offset == self.written)


def _points(shop: str, start_ns: int, time_ns: int) -> bytes:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for name, value in (("service.name", "shop"), ("service.instance.id", shop)):
        resource.resource.attributes.add(key=name).value.string_value = value
    metrics = resource.scope_metrics.add().metrics
    sold, waits, stock = (
        metrics.add(name="sold").sum,
        metrics.add(name="waits").histogram,
        metrics.add(name="stock").gauge,
    )
    sold.aggregation_temporality = waits.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    sold.is_monotonic = True
    sold.data_points.add(start_time_unix_nano=start_ns, time_unix_nano=time_ns, as_int=1)
    waits.data_points.add(
        start_time_unix_nano=start_ns, time_unix_nano=time_ns, count=1, bucket_counts=[1, 0], explicit_bounds=[1.0]
    )
    stock.data_points.add(time_unix_nano=time_ns, as_int=7)
    return bytes(request.SerializeToString())


def _configuration(directory: Path) -> Path:
    """The recipe as it is, but for the offset of a new group, and without a port for the Collector's own metrics."""
    content = yaml.safe_load(RECIPE.read_text())
    content["receivers"]["kafka"]["initial_offset"] = "earliest"
    content["service"]["telemetry"] = {"metrics": {"level": "none"}}
    path = directory / "delta.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_totals_of_delta_points_are_exposed_and_begin_again_after_a_crash_of_the_collector(
    kafka: Broker, tmp_path: Path
) -> None:
    create_topics(kafka.bootstrap_servers, [NewTopic(DELTAS, 1, 1), NewTopic(TOTALS, 2, 1)])
    shops = Shops(kafka)
    command = [str(COLLECTOR.found()), "--config", str(_configuration(tmp_path))]
    environ = {"KAFKA_BROKERS": kafka.bootstrap_servers, "DELTA_TOPIC": DELTAS, "TOTALS_TOPIC": TOTALS}
    collector = ServerProcess("collector", command, tmp_path, environ)
    with stopping(collector), Replicas(tmp_path, kafka.bootstrap_servers, 1, topics=[TOTALS]) as bridges:
        bridges.start(0)

        def shown() -> dict[tuple[str, str], float]:
            page = get(f"{bridges.url(0)}/metrics")
            return {(name, shop): float(value) for name, shop, value in LINE.findall(page)}

        collector.start()
        first = shops.sell(20)
        wait_for("the totals", lambda: shown() == first, 60)
        wait_for("the offset", shops.all_committed, 60)
        collector.kill()
        second = shops.sell(5)
        collector.start()
        wait_for("totals from 0", lambda: shown() == second, 60)
