"""Prometheus' `increase()` equals the delta producer's counts, though the bridge is killed in the middle."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA
from tests.service.conftest import Broker
from tests.service.servers import wait_for
from tests.service.stack import Stack
from tests.service.topics import create_topics

from kernelcast.wire.topics import KERNELS, STATE

pytestmark = pytest.mark.service
TOTAL = "orders_total"
SETTINGS = {
    "bridge": {
        "topics": [KERNELS.name],
        "group_id": "shop",
        "ttl_seconds": 60,
        "deltas": {"snapshot_seconds": 1},
        # Kafka waits less for a member that was killed.
        "kafka": {"properties": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}},
    }
}


def make_topics(kafka: Broker) -> None:
    compacted = {"cleanup.policy": "compact"}
    topics = [NewTopic(KERNELS.name, 2, 1), NewTopic(STATE.name, 2, 1, config=compacted)]
    create_topics(kafka.bootstrap_servers, topics)


class Shop:
    """A producer of deltas: two series with keys of their own, five points a second each."""

    def __init__(self, kafka: Broker) -> None:
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        self._ended = threading.Event()
        self._last_ns = time.time_ns()
        self.sold = 0

    def sell(self, count: int) -> None:
        now_ns = time.time_ns()
        for kind in ("books", "toys"):
            request = ExportMetricsServiceRequest()
            metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
            metric.name = "orders"
            metric.sum.aggregation_temporality, metric.sum.is_monotonic = AGGREGATION_TEMPORALITY_DELTA, True
            point = metric.sum.data_points.add(start_time_unix_nano=self._last_ns, time_unix_nano=now_ns, as_int=count)
            attribute = point.attributes.add()
            attribute.key, attribute.value.string_value = "kind", kind
            self._producer.produce(KERNELS.name, request.SerializeToString(), key=kind.encode())
        self._producer.flush(5)
        self._last_ns = now_ns
        self.sold += count

    @contextmanager
    def open(self) -> Iterator[None]:
        """Sell until the block ends."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            self.sell(1)


def test_increase_equals_the_produced_counts_through_a_kill_a_restart_and_a_takeover(
    kafka: Broker, tmp_path: Path
) -> None:
    make_topics(kafka)
    shop = Shop(kafka)
    with Stack(tmp_path, kafka.bootstrap_servers, SETTINGS) as stack:
        bridge = stack.service("bridge")
        prometheus = stack.prometheus(rules=False)
        shop.sell(1)
        wait_for("the first sample", lambda: len(prometheus.query(TOTAL)) == 2)
        with shop.open():
            counted(stack, 20)
            bridge.kill()
            sold = shop.sold
            wait_for("sales while no bridge runs", lambda: shop.sold >= sold + 5)
            stack.start(bridge)
            counted(stack, shop.sold + 5)
            bridge.stop()
            stack.start(bridge)
            counted(stack, shop.sold + 5)
            (tmp_path / "second").mkdir()
            with Stack(tmp_path / "second", kafka.bootstrap_servers, SETTINGS) as other:
                other.service("bridge")
                wait_for("each replica to have a series", lambda: len(other.exposed(TOTAL)) == 1)
                bridge.kill()
                wait_for("the second to take over", lambda: len(other.exposed(TOTAL)) == 2)
                wait_for("all to be counted", lambda: min(other.exposed(TOTAL).values()) > 30)
            stack.start(bridge)
        wait_for("everything", lambda: list(stack.exposed(TOTAL).values()) == [shop.sold] * 2)
        wait_for("the scrape of it", lambda: set(dict_of(prometheus.query(TOTAL)).values()) == {shop.sold})
        for labels, samples in prometheus.samples(TOTAL):
            seen = [value for _, value in samples]
            assert seen == sorted(seen), f"{labels} fell"
            assert (seen[0], seen[-1]) == (1, shop.sold)
        assert prometheus.scalar(f"max(resets({TOTAL}[10m]))") == 0  # so increase() is the difference of the two
        assert stack.own("bridge", "kernelcast_bridge_delta_beginnings_total", cause="restored") >= 1


def counted(stack: Stack, sales: int) -> None:
    """Wait until the bridge exposes both series with as many sales."""

    def are_counted() -> bool:
        values = stack.exposed(TOTAL).values()
        return len(values) == 2 and min(values) >= sales

    wait_for(f"{sales} sales", are_counted)


def dict_of(found: list[tuple[dict[str, str], float]]) -> dict[str, float]:
    return {labels["kind"]: value for labels, value in found}
