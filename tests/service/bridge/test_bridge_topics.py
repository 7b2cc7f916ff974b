"""Topics that grow, or are deleted and created again, under bridges that come and go: every total holds."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from tests.service.conftest import Broker
from tests.service.replicas import Replicas
from tests.service.servers import get, wait_for
from tests.service.topics import create_topics
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings

pytestmark = pytest.mark.service
TOPIC = "grown"
KINDS = tuple(f"kind{number}" for number in range(6))
LINE = re.compile(r'^(worked)_total{.*kind="(\w+)".*} (\S+)$', re.MULTILINE)
QUICK = {"topic.metadata.refresh.interval.ms": 1000, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
SETTINGS = {
    "topics": [TOPIC],
    "group_id": TOPIC,
    "ttl_seconds": 40,
    "ttl_floor_seconds": 3,
    "kafka": {"properties": QUICK},
}
MOVED_SECONDS = 15
"""Time after which moved series have ended in their old partitions."""
SMALL, GROWN = (0, 1, 0, 1, 0, 1), (0, 1, 2, 3, 3, 2)
"""The partition of each kind before and after the topic grows. Series move from both old partitions to both added ones.
So some move to another replica, whichever replica has which partition."""


class Shop:
    """Counts one of each kind five times a second; the kind is the key."""

    def __init__(self, kafka: Broker) -> None:
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **QUICK_PRODUCER})
        self._start_ns = time.time_ns()
        self.partitions, self.count = SMALL, 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Count until the block ends, and have Kafka acknowledge all."""
        closed = threading.Event()

        def run() -> None:
            while not closed.wait(0.2):
                self._count()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            closed.set()
            thread.join()
            assert self._producer.flush(30) == 0

    def _count(self) -> None:
        now_ns, self.count = time.time_ns(), self.count + 1
        for number, kind in enumerate(KINDS):
            request = ExportMetricsServiceRequest()
            metrics = request.resource_metrics.add().scope_metrics.add().metrics
            total = metrics.add(name="worked").sum
            total.aggregation_temporality, total.is_monotonic = AGGREGATION_TEMPORALITY_CUMULATIVE, True
            point = total.data_points.add(start_time_unix_nano=self._start_ns, time_unix_nano=now_ns, as_int=self.count)
            attribute = point.attributes.add(key="kind")
            attribute.value.string_value = kind
            self._producer.produce(TOPIC, request.SerializeToString(), kind.encode(), self.partitions[number])
        self._producer.poll(0)


QUICK_PRODUCER = {"topic.metadata.refresh.interval.ms": 500, "acks": "all", "log_level": 2}


@dataclass(frozen=True)
class Look:
    """The series of one page, and the seconds before and after the answer."""

    began: float
    ended: float
    values: dict[tuple[str, str], float]


class Pages(threading.Thread):
    """Reads the pages of all replicas again and again."""

    def __init__(self, replicas: Replicas) -> None:
        super().__init__(daemon=True)
        self._replicas, self._stopping = replicas, threading.Event()
        self.looks: list[Look] = []

    def run(self) -> None:
        """Look; called by `start`."""
        while not self._stopping.wait(0.2):
            for index in range(self._replicas.count):
                began = time.monotonic()
                try:
                    body = get(f"{self._replicas.url(index)}/metrics", 5)
                except OSError:
                    continue
                values = {(name, kind): float(value) for name, kind, value in LINE.findall(body)}
                self.looks.append(Look(began, time.monotonic(), values))

    def stop(self) -> None:
        """Stop looking."""
        self._stopping.set()
        self.join(LONGEST_SECONDS)

    def falls(self) -> list[tuple[str, str, float, float]]:
        """Every value that was lower than one seen before on any replica: name, kind, before, after."""
        found = []
        highest: dict[tuple[str, str], tuple[float, float]] = {}
        for look in self.looks:
            for series, value in look.values.items():
                known, ended = highest.get(series, (0.0, 0.0))
                if value < known and look.began >= ended:
                    found.append((*series, known, value))
                highest[series] = (value, look.ended)
        return found


def exposed(replicas: Replicas, *indexes: int) -> dict[tuple[str, str], list[float]]:
    """The values of each series on the replicas."""
    found: dict[tuple[str, str], list[float]] = {}
    for index in indexes:
        for name, kind, value in LINE.findall(get(f"{replicas.url(index)}/metrics")):
            found.setdefault((name, kind), []).append(float(value))
    return found


def all_of(worked: int) -> dict[tuple[str, str], list[float]]:
    """Every series on one replica."""
    return {("worked", kind): [float(worked)] for kind in KINDS}


def asked(found: Callable[[], bool]) -> Callable[[], bool]:
    """A check that fails while a replica does not answer."""

    def check() -> bool:
        try:
            return found()
        except OSError:
            return False

    return check


def occurrences(shown: dict[tuple[str, str], list[float]]) -> dict[tuple[str, str], int]:
    """Number of times that each series is exposed."""
    return {series: len(values) for series, values in shown.items()}


def test_totals_hold_while_a_topic_grows_a_bridge_joins_one_restarts_and_the_topic_is_created_again(
    shared_kafka: Broker, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": shared_kafka.bootstrap_servers})
    topics = [NewTopic(TOPIC, 2, 1)]
    create_topics(shared_kafka.bootstrap_servers, topics)
    shop = Shop(shared_kafka)
    with Replicas(tmp_path, shared_kafka.bootstrap_servers, 2, **SETTINGS) as replicas:
        replicas.start(0, 1)
        pages = Pages(replicas)
        pages.start()
        try:
            with shop.open():
                wait_for("every series", asked(lambda: exposed(replicas, 0, 1).keys() == all_of(0).keys()))
                time.sleep(3)
                for grown in admin.create_partitions([NewPartitions(TOPIC, 4)]).values():
                    grown.result()
                time.sleep(1)
                shop.partitions = GROWN
                time.sleep(MOVED_SECONDS)
                once = dict.fromkeys(all_of(0), 1)
                wait_for("every series once", asked(lambda: occurrences(exposed(replicas, 0, 1)) == once))
                replicas.servers[0].kill()
                replicas.start(0)
                time.sleep(3)
                assert replicas.servers[1].stop() == 0
                replicas.start(1)
            wait_for("all totals", asked(lambda: exposed(replicas, 0, 1) == all_of(shop.count)))
            for deleted in admin.delete_topics([TOPIC]).values():
                deleted.result()
            time.sleep(2)
            create_topics(shared_kafka.bootstrap_servers, topics)
            shop.partitions = SMALL
            time.sleep(2)
            with shop.open():
                time.sleep(5)
            wait_for("the new log", asked(lambda: exposed(replicas, 0, 1) == all_of(shop.count)))
            for server in replicas.servers:
                server.kill()
            replicas.start(0, 1)
            wait_for("its totals again", asked(lambda: exposed(replicas, 0, 1) == all_of(shop.count)))
        finally:
            pages.stop()
    assert pages.falls() == []


def test_kafka_names_newest_timestamps_and_the_ids_of_topics(shared_kafka: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": shared_kafka.bootstrap_servers})
    topic = NewTopic("named", 2, 1, config={"message.timestamp.type": "LogAppendTime"})
    create_topics(shared_kafka.bootstrap_servers, [topic])
    consumer = Consumer(KafkaSettings(bootstrap_servers=shared_kafka.bootstrap_servers), group_id="named")
    try:
        parts = consumer.partitions("named")
        assert consumer.newest_timestamps_ms(parts) == {}
        began_ms = time.time_ns() // 1_000_000
        producer = Producer({"bootstrap.servers": shared_kafka.bootstrap_servers})
        producer.produce("named", b"x", partition=1, timestamp=1)
        assert producer.flush(10) == 0
        ((key, newest_ms),) = consumer.newest_timestamps_ms(parts).items()
        assert key == ("named", 1)
        assert began_ms - 1000 <= newest_ms <= time.time_ns() // 1_000_000 + 1000
        first = consumer.topic_ids(["named", "absent"])
        assert set(first) == {"named"}
        for deleted in admin.delete_topics(["named"]).values():
            deleted.result()
        wait_for("the topic's end", lambda: consumer.topic_ids(["named"]) == {})
        create_topics(shared_kafka.bootstrap_servers, [topic])
        wait_for("another id", lambda: consumer.topic_ids(["named"]).get("named", first["named"]) != first["named"])
    finally:
        consumer.close()
