"""Kafka clients against the broker inside the process, and against clients that misbehave on purpose."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition
from prometheus_client import CollectorRegistry
from tests.support.waiting import Stopwatch

from kernelcast.runtime.kafka.connect import check
from kernelcast.runtime.kafka.consumer import NO_OFFSET, Consumer
from kernelcast.runtime.kafka.embedded import EMBEDDED_PARTITIONS, EmbeddedBroker
from kernelcast.runtime.kafka.producer import OUTCOMES, Producer
from kernelcast.runtime.kafka.topic_errors import TopicErrors
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError, ConfigurationError

DEADLINE_SECONDS = 20
SAID = "kernelcast_producer_messages_total"
DROPPED = "kernelcast_producer_dropped_messages_total"


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaSettings]:
    with EmbeddedBroker(topics=["kernelcast.device", "kernelcast.kernels", "kernelcast.outcomes"]) as broker:
        yield KafkaSettings(bootstrap_servers=broker.bootstrap_servers)


def read(consumer: Consumer, count: int) -> list[Message]:
    """Read until `count` messages are there."""
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        good, _errors = consumer.consume(100, 0.2)
        messages += good
    return messages


def write(kafka: KafkaSettings, topic: str, *values: bytes, key: bytes = b"node-1") -> None:
    producer = Producer(kafka, client_id="test")
    for value in values:
        producer.send(topic, key=key, value=value)
    assert producer.close(DEADLINE_SECONDS) == 0


def test_sent_messages_are_acknowledged_counted_and_read_back(kafka: KafkaSettings) -> None:
    registry = CollectorRegistry()
    producer = Producer(kafka, client_id="test", registry=registry, topics=["kernelcast.device"])
    answers: list[str | None] = []
    zero = registry.get_sample_value(DROPPED, {"topic": "kernelcast.device", "cause": "queue_full"})

    producer.send("kernelcast.device", key=b"k", value=b"v", headers=[("h", b"1")], on_delivery=answers.append)
    producer.send("kernelcast.device", key=b"k", value=None)
    outstanding = producer.flush(DEADLINE_SECONDS)

    assert (outstanding, len(producer), answers, zero) == (0, 0, [None], 0)
    assert (producer.sent, producer.acknowledged, producer.failed, producer.dropped) == (2, 2, 0, 0)
    assert registry.get_sample_value(SAID, {"topic": "kernelcast.device", "outcome": "acknowledged"}) == 2
    consumer = Consumer(kafka, group_id="reader")
    consumer.assign(consumer.partitions("kernelcast.device"))
    first, tombstone = read(consumer, 2)
    consumer.close()
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", [("h", b"1")])
    assert tombstone.value() is None


def test_a_property_that_only_consumers_have_is_no_matter_for_a_producer(
    kafka: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings = kafka.model_copy(update={"properties": {"session.timeout.ms": "7000", "socket.blocking.max.ms": "1"}})
    with caplog.at_level("DEBUG"):
        Producer(settings, client_id="test").close(1)
    assert "socket.blocking.max.ms" in caplog.text
    assert "session.timeout.ms" not in caplog.text


FORGOTTEN = """
import gc, time
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings

class Rebalance:
    def assigned(self, partitions): ...
    def revoked(self, partitions, *, lost): ...

with EmbeddedBroker() as broker:
    consumer = Consumer(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), group_id="forgotten")
    consumer.subscribe(["kernelcast.device"], Rebalance())
    time.sleep(5)  # the group has answered by now, and no poll has handled its answer
del consumer
gc.collect()
print("collected")
"""


def test_an_unclosed_consumer_stops_no_garbage_collection() -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "always", "-c", FORGOTTEN], capture_output=True, text=True, timeout=60, check=True
    )
    assert "collected" in answer.stdout
    assert "a Kafka consumer was not closed" in answer.stderr


ASKING = """
import time
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings

class Rebalance:
    asked = 0
    def assigned(self, partitions):
        self.asked += bool(consumer.leaders() and consumer.partitions("kernelcast.device"))
    def revoked(self, partitions, *, lost): ...

rebalance = Rebalance()
with EmbeddedBroker() as broker:
    # many lines for librdkafka's log, which it hands out inside `consume`, as it does while brokers come and go
    settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, properties={"debug": "cgrp,metadata"})
    consumer = Consumer(settings, group_id="asking")
    consumer.subscribe(["kernelcast.device"], rebalance)
    deadline = time.monotonic() + 20
    while not rebalance.asked and time.monotonic() < deadline:
        consumer.consume(100, 1)
    consumer.close()
print("asked", rebalance.asked)
"""


def test_a_member_may_ask_for_leaders_while_it_is_assigned_partitions() -> None:
    answer = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True, timeout=60, check=False)

    assert (answer.returncode, answer.stdout) == (0, "asked 1\n"), answer.stderr[-2000:]


def test_a_query_for_leaders_waits_for_no_fetch_of_a_partition_without_new_messages(kafka: KafkaSettings) -> None:
    consumer = Consumer(kafka, group_id="reader", overrides={"fetch.wait.max.ms": "4000"})
    partitions = consumer.partitions("kernelcast.device")
    consumer.assign([TopicPartition(one.topic, one.partition, OFFSET_BEGINNING) for one in partitions])
    took_seconds = []
    for _ in range(3):
        deadline = time.monotonic() + 0.5  # by then the next fetch waits at the broker
        while time.monotonic() < deadline:
            consumer.consume(100, 0.05)
        began = time.monotonic()
        assert consumer.leaders()
        took_seconds.append(time.monotonic() - began)
    consumer.close()
    assert min(took_seconds) < 0.5, took_seconds


def test_the_end_of_a_partition_is_distinguished_from_messages_and_errors(kafka: KafkaSettings) -> None:
    write(kafka, "kernelcast.outcomes", b"1", b"2", key=b"the-end")
    consumer = Consumer(kafka, group_id="reader")
    partitions = consumer.partitions("kernelcast.outcomes")
    highs = {partition.partition: consumer.watermarks(partition)[1] for partition in partitions}
    consumer.assign([TopicPartition(item.topic, item.partition, OFFSET_BEGINNING) for item in partitions])

    ends: dict[int, int] = {}
    deadline = time.monotonic() + DEADLINE_SECONDS
    while ends != highs and time.monotonic() < deadline:
        _, errors = consumer.consume(100, 0.2)
        assert errors == []
        ends.update({item.partition: item.offset for item in consumer.ends()})
    consumer.close()

    assert ends == highs
    assert consumer.ends() == []


def test_a_message_over_the_limit_is_dropped_and_counted_not_raised(kafka: KafkaSettings) -> None:
    registry = CollectorRegistry()
    producer = Producer(kafka, client_id="test", registry=registry)
    answers: list[str | None] = []

    producer.send("kernelcast.device", key=None, value=bytes(10 * 1024 * 1024), on_delivery=answers.append)

    assert producer.dropped == 1
    assert registry.get_sample_value(DROPPED, {"topic": "kernelcast.device", "cause": "too_large"}) == 1
    assert "too large" in str(answers[0])


class FakeProducer:
    """librdkafka's producer, with a queue of one message that is never emptied."""

    def __init__(self) -> None:
        self.queue: list[Callable[[KafkaError, None], None]] = []
        self.refusal: KafkaError | None = None

    def produce(self, _topic: str, *, on_delivery: Callable[[KafkaError, None], None], **_message: Any) -> None:
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        if self.queue:
            raise BufferError("Local: Queue full")
        self.queue.append(on_delivery)

    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        return len(self.queue)

    def purge(self) -> None:
        while self.queue:
            self.queue.pop()(KafkaError(KafkaError._PURGE_QUEUE), None)

    def __len__(self) -> int:
        return len(self.queue)


def fake_producer(registry: CollectorRegistry | None = None) -> tuple[Producer, list[FakeProducer]]:
    made: list[FakeProducer] = []

    def make(_config: dict[str, Any], **_logger: Any) -> FakeProducer:
        made.append(FakeProducer())
        return made[-1]

    return Producer(KafkaSettings(), client_id="test", registry=registry, client=make), made


def test_a_full_queue_drops_and_counts_without_raising() -> None:
    registry = CollectorRegistry()
    producer, _made = fake_producer(registry)

    for _ in range(3):
        producer.send("kernelcast.device", key=None, value=b"v")

    assert (len(producer), producer.dropped) == (1, 2)
    assert registry.get_sample_value(DROPPED, {"topic": "kernelcast.device", "cause": "queue_full"}) == 2
    assert registry.get_sample_value("kernelcast_producer_queue_messages") == 1


def test_closing_counts_what_kafka_never_answered_for_as_failed() -> None:
    producer, _made = fake_producer()
    producer.send("kernelcast.device", key=None, value=b"v")

    outstanding = producer.close(0)

    assert (outstanding, producer.failed) == (1, 1)


def test_after_a_fatal_error_a_new_client_continues_and_the_old_ones_messages_count_as_failed() -> None:
    producer, made = fake_producer()
    producer.send("kernelcast.device", key=None, value=b"old")
    made[0].refusal = KafkaError(KafkaError._FATAL, "out of order sequence number", True)

    producer.send("kernelcast.device", key=None, value=b"new")

    assert len(made) == 2
    assert (len(producer), producer.sent, producer.failed, producer.dropped) == (1, 0, 1, 0)


def answer(made: FakeProducer, error: KafkaError | None) -> None:
    made.queue.pop()(error, None)  # type: ignore[arg-type]  # librdkafka gives None, too


def test_a_message_that_kafka_refuses_is_not_sent_and_the_service_is_not_ready_until_the_topic_takes_one() -> None:
    registry = CollectorRegistry()
    producer, made = fake_producer(registry)
    for topic, error in (
        ("kernelcast.device", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "Broker: Message size too large")),
        ("kernelcast.kernels", None),
    ):
        producer.send(topic, key=None, value=b"v")
        answer(made[0], error)

    ready, reason = producer.ready()

    assert not ready
    assert "kernelcast.device: Broker: Message size too large" in reason
    assert "kernelcast.kernels:" not in reason
    said = {name: registry.get_sample_value(SAID, {"topic": "kernelcast.device", "outcome": name}) for name in OUTCOMES}
    assert said == {"sent": 0, "acknowledged": 0, "failed": 1, "refused": 1, "dropped": 0}
    assert (producer.sent, producer.acknowledged, producer.refused) == (1, 1, 1)

    producer.send("kernelcast.device", key=None, value=b"small")
    answer(made[0], None)
    assert producer.ready() == (True, "")


def test_giving_messages_up_at_the_end_is_no_error_of_their_topic() -> None:
    producer, _made = fake_producer()
    producer.send("kernelcast.device", key=None, value=b"v")
    producer.close(0)
    assert producer.ready() == (True, "")


def test_an_error_of_a_topic_that_gets_no_further_message_is_forgotten_after_ten_minutes() -> None:
    now = [0.0]
    errors = TopicErrors(lambda: now[0])
    errors.failed("kernelcast.outcomes", "Broker: Message size too large")
    now[0] = 599.0
    assert "kernelcast.outcomes: Broker: Message size too large (599 s ago)" in errors.text()
    now[0] = 600.0
    assert errors.text() == ""


def test_the_reason_for_not_being_ready_is_that_no_broker_answers() -> None:
    producer = Producer(KafkaSettings(bootstrap_servers="127.0.0.1:1"), client_id="test")
    deadline = time.monotonic() + DEADLINE_SECONDS

    while producer.ready()[0] and time.monotonic() < deadline:
        producer.poll(0.1)

    assert producer.ready() == (False, "no broker of 127.0.0.1:1 answers")


class Recorder:
    """A rebalance listener that starts at the beginning and records its events."""

    def __init__(self) -> None:
        self.assignments: list[set[tuple[str, int]]] = []
        self.revocations: list[tuple[set[tuple[str, int]], bool]] = []

    def assigned(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        self.assignments.append({(p.topic, p.partition) for p in partitions})
        return [TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions]

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        self.revocations.append(({(p.topic, p.partition) for p in partitions}, lost))


def test_a_group_hands_partitions_over_in_parts_and_commits_only_on_request(kafka: KafkaSettings) -> None:
    write(kafka, "kernelcast.kernels", b"1", b"2")
    every = {("kernelcast.kernels", number) for number in range(EMBEDDED_PARTITIONS)}
    # The embedded broker waits for a session's timeout before it lets a second member in.
    quick = {"heartbeat.interval.ms": "200", "session.timeout.ms": "3000"}
    first, first_seen = Consumer(kafka, group_id="g", overrides=quick), Recorder()
    first.subscribe(["kernelcast.kernels"], first_seen)
    messages = read(first, 2)
    number = messages[0].partition()
    assert number is not None
    source = TopicPartition("kernelcast.kernels", number)
    assert [message.value() for message in messages] == [b"1", b"2"]
    assert first_seen.assignments == [every]
    assert first.committed([source])[0].offset == NO_OFFSET

    first.commit([TopicPartition(source.topic, source.partition, 2)], wait=True)
    second, second_seen = Consumer(kafka, group_id="g", overrides=quick), Recorder()
    second.subscribe(["kernelcast.kernels"], second_seen)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not any(second_seen.assignments) and time.monotonic() < deadline:
        first.consume(10, 0.1)
        second.consume(10, 0.1)

    taken = set().union(*second_seen.assignments)
    assert len(taken) == EMBEDDED_PARTITIONS / 2
    assert first_seen.revocations == [(taken, False)]
    assert second.committed([source])[0].offset == 2
    second.close()
    first.close()


def test_watermarks_and_offsets_by_time_where_the_broker_has_no_time_index(kafka: KafkaSettings) -> None:
    with EmbeddedBroker(topics=["t"]) as broker:
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        write(settings, "t", b"1", b"2")
        consumer = Consumer(settings, group_id="times")
        partitions = consumer.partitions("t")
        marks = {p.partition: consumer.watermarks(p) for p in partitions}
        found = consumer.offsets_for_time(partitions, time.time_ns())
        consumer.close()

    assert sorted(marks.values()) == [(0, 0)] * (EMBEDDED_PARTITIONS - 1) + [(0, 2)]
    assert {p.partition: p.offset for p in found} == {
        number: OFFSET_BEGINNING if mark == (0, 2) else 0 for number, mark in marks.items()
    }


class FakeConsumer:
    """librdkafka's consumer on a broker with a time index."""

    def __init__(self, _config: dict[str, Any], **_logger: Any) -> None:
        self.index_ms = [1_000, 2_000]

    def offsets_for_times(self, partitions: Sequence[TopicPartition], **_timeout: float) -> list[TopicPartition]:
        later = [i for i, at in enumerate(self.index_ms) if at >= partitions[0].offset]
        return [TopicPartition(p.topic, p.partition, later[0] if later else -1) for p in partitions]

    def get_watermark_offsets(self, _partition: TopicPartition, **_timeout: float) -> tuple[int, int]:
        return 0, len(self.index_ms)

    def close(self) -> None:
        """Nothing to leave."""


@pytest.mark.parametrize(("time_ns", "offset"), [(0, 0), (1_500_000_000, 1), (3_000_000_000, 2)])
def test_offsets_by_time_where_the_broker_has_an_index(time_ns: int, offset: int) -> None:
    consumer = Consumer(KafkaSettings(), group_id="g", client=FakeConsumer)

    found = consumer.offsets_for_time([TopicPartition("t", 0)], time_ns)
    consumer.close()

    assert found[0].offset == offset


def test_seeking_in_an_unassigned_partition_is_a_broker_error_that_names_the_call(kafka: KafkaSettings) -> None:
    consumer = Consumer(kafka, group_id="g2")

    with pytest.raises(BrokerError, match=r"seeking in kernelcast\.device/0 failed"):
        consumer.seek(TopicPartition("kernelcast.device", 0, 5))
    consumer.close()


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"no.such.thing": "1"}, 'No such configuration property: "no.such.thing"'),
        ({"acks": "some"}, "Invalid value"),
    ],
)
def test_wrong_properties_are_refused_with_librdkafkas_message(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"kafka.properties are refused: .*{words}"):
        check(KafkaSettings(properties=properties))


def test_a_certificate_that_is_not_there_is_named_with_its_path() -> None:
    properties = {"security.protocol": "ssl", "ssl.ca.location": "/nowhere"}
    with pytest.raises(ConfigurationError, match=r"ssl\.ca\.location.*/nowhere"):
        check(KafkaSettings(properties=properties))


def test_good_properties_pass_without_a_broker() -> None:
    check(KafkaSettings(bootstrap_servers="127.0.0.1:1", properties={"client.rack": "a"}))


class HangingConsumer(FakeConsumer):
    """A client whose `close` waits for a broker that answers nothing."""

    released = threading.Event()

    def assignment(self) -> list[TopicPartition]:
        return []

    def close(self) -> None:
        self.released.wait(10)


def test_closing_a_consumer_whose_broker_hangs_ends_at_its_limit_and_hands_over_nothing_later() -> None:
    consumer, handed = Consumer(KafkaSettings(), group_id="g", client=HangingConsumer), []

    class Handing:
        def assigned(self, partitions: Sequence[TopicPartition]) -> None:
            """Not called here."""

        def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:  # noqa: ARG002  the protocol's
            handed.append(partitions)

    with Stopwatch() as took:
        consumer.close(0.05)
    consumer._revoked(Handing(), [TopicPartition("t", 0)], lost=False)
    HangingConsumer.released.set()

    assert took.seconds < 5
    assert handed == []
