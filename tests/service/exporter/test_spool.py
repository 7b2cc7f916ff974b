"""The exporter loses nothing within the spool's limit while Kafka is down; losses beyond it are counted."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry
from tests.service.emptying import emptied
from tests.service.servers import KafkaServer, wait_for
from tests.service.topics import create_topics

from kernelcast.exporter.delivery.output import SPOOLED, kafka_output
from kernelcast.exporter.settings import ExporterSettings, SpoolSettings
from kernelcast.runtime.kafka.clients import Sender
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.topics import DEVICE, KERNELS

pytestmark = pytest.mark.service
HOSTS = ("node-1", "node-2", "node-3")
INTERVAL_SECONDS = 0.1
PAUSE_SECONDS = 6.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka that these tests freeze and kill."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    try:
        yield server.run()
    finally:
        # One that is stopped acts on no other signal.
        signalled(server, signal.SIGCONT)
        server.kill()


@pytest.fixture
def kafka(server: KafkaServer) -> KafkaServer:
    """The same Kafka, running again, with empty topics."""
    signalled(server, signal.SIGCONT)
    if server.poll() is not None:
        server.run()
    emptied(server.bootstrap_servers)
    create_topics(server.bootstrap_servers, [NewTopic(topic, 4, 1) for topic in SPOOLED])
    return server


def signalled(server: KafkaServer, number: signal.Signals) -> None:
    if server.process is not None and server.process.poll() is None:
        os.kill(server.process.pid, number)


def settings(directory: Path, server: KafkaServer, **spool: object) -> ExporterSettings:
    return ExporterSettings(
        web=WebSettings(listen_address="127.0.0.1:0"),
        kafka=KafkaSettings(bootstrap_servers=server.bootstrap_servers),
        state_directory=directory,
        spool=SpoolSettings.model_validate({"memory_seconds": 1, "replay_jitter_seconds": 0, **spool}),
    )


class Intervals:
    """Sends one numbered message a host and topic at each interval, as the exporter's intervals do."""

    def __init__(self, padding: int = 0) -> None:
        self.sent = 0
        self._padding = b" " * padding
        self._stopping = threading.Event()

    def one(self, sender: Sender) -> None:
        value = b"%08d" % self.sent + self._padding
        for host in HOSTS:
            sender.send(DEVICE.name, key=host.encode(), value=value)
        sender.send(KERNELS.name, key=b"train", value=value)
        self.sent += 1

    @contextmanager
    def running(self, sender: Sender) -> Iterator[None]:
        def run() -> None:
            while not self._stopping.wait(INTERVAL_SECONDS):
                self.one(sender)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()
            self._stopping.clear()


def arrived(server: KafkaServer, topic: str) -> dict[str, list[int]]:
    """The numbers in the topic by key, in the order of their offsets; each key is in one partition."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "test", "enable.partition.eof": "true"}
    )
    partitions = [TopicPartition(topic, number, 0) for number in range(4)]
    consumer.assign(partitions)
    found: dict[str, list[int]] = {}
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        found.setdefault(str(key, "ascii"), []).append(int(value[:8]))
    consumer.close()
    return found


def metric(registry: CollectorRegistry, row: Metric, **labels: str) -> float:
    value = registry.get_sample_value(row.prometheus_name, labels)
    assert value is not None
    return value


def drained(registry: CollectorRegistry) -> bool:
    return metric(registry, rows.SPOOL_MESSAGES) == 0


def test_every_interval_arrives_in_order_after_kafka_was_frozen_and_killed(kafka: KafkaServer, tmp_path: Path) -> None:
    intervals, registry = Intervals(), CollectorRegistry()
    made = settings(tmp_path / "state", kafka)
    with kafka_output(made, "node", registry) as out, intervals.running(out.sender):
        time.sleep(1)
        signalled(kafka, signal.SIGSTOP)
        time.sleep(PAUSE_SECONDS)
        signalled(kafka, signal.SIGCONT)
        wait_for("a replay", lambda: drained(registry))
        time.sleep(1)
        kafka.kill()
        time.sleep(PAUSE_SECONDS)
    # The exporter was stopped while Kafka was away.
    assert list((tmp_path / "state" / "spool").glob("*/*.segment"))
    kafka.run()
    registry = CollectorRegistry()
    with kafka_output(made, "node", registry) as out:
        with intervals.running(out.sender):
            time.sleep(1)
        wait_for("a replay", lambda: drained(registry))
    numbers = {**arrived(kafka, DEVICE.name), **arrived(kafka, KERNELS.name)}
    assert set(numbers) == {*HOSTS, "train"}
    for key, got in numbers.items():
        firsts = list(dict.fromkeys(got))
        assert firsts == list(range(intervals.sent)), key
        # What comes twice comes again as a run, in order too.
        assert len(got) - len(firsts) <= intervals.sent
    assert metric(registry, rows.SPOOL_DROPPED, reason="bound") == 0


def test_beyond_the_limit_exactly_the_counted_messages_are_missing(kafka: KafkaServer, tmp_path: Path) -> None:
    intervals, registry = Intervals(padding=20_000), CollectorRegistry()
    made = settings(tmp_path / "state", kafka, max_bytes=2**20, memory_bytes=100_000)
    with kafka_output(made, "node", registry) as out:
        intervals.one(out.sender)
        time.sleep(1)
        signalled(kafka, signal.SIGSTOP)
        for _ in range(60):
            intervals.one(out.sender)
        dropped = metric(registry, rows.SPOOL_DROPPED, reason="bound")
        assert dropped > 100
        signalled(kafka, signal.SIGCONT)
        wait_for("a replay", lambda: drained(registry))
        assert metric(registry, rows.SPOOL_DROPPED, reason="bound") == dropped
    numbers = {**arrived(kafka, DEVICE.name), **arrived(kafka, KERNELS.name)}
    missing = {key: sorted(set(range(intervals.sent)) - set(got)) for key, got in numbers.items()}
    assert sum(map(len, missing.values())) == dropped
    for key, got in numbers.items():
        assert sorted(got) == got, key
        assert missing[key] == list(range(missing[key][0], missing[key][-1] + 1)), "the oldest went, nothing between"


def test_a_topic_that_kafka_does_not_have_holds_up_no_other(kafka: KafkaServer, tmp_path: Path) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.delete_topics([KERNELS.name])[KERNELS.name].result()
    wait_for("the topic's end", lambda: KERNELS.name not in client.list_topics(timeout=5).topics)
    intervals, registry = Intervals(), CollectorRegistry()
    made = settings(tmp_path / "state", kafka).model_copy(
        update={
            "kafka": KafkaSettings(
                bootstrap_servers=kafka.bootstrap_servers, properties={"topic.metadata.propagation.max.ms": "1000"}
            )
        }
    )
    with kafka_output(made, "node", registry) as out:
        with intervals.running(out.sender):
            time.sleep(PAUSE_SECONDS)
        wait_for("the other topic", lambda: len(arrived(kafka, DEVICE.name).get(HOSTS[0], ())) == intervals.sent)
        assert metric(registry, rows.SPOOL_MESSAGES) > 0
        create_topics(kafka.bootstrap_servers, [NewTopic(KERNELS.name, 4, 1)])
        wait_for("the topic that was missing", lambda: drained(registry))
    assert list(dict.fromkeys(arrived(kafka, KERNELS.name)["train"])) == list(range(intervals.sent))
