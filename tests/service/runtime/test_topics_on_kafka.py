"""Topics, offsets by time and clocks on a real Apache Kafka."""

import os
import time

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from tests.service.conftest import Broker

from kernelcast.cli.doctor.broker import check_broker
from kernelcast.cli.doctor.result import CheckLevel
from kernelcast.runtime.kafka.admin import Admin, TopicResult, apply_topics, list_topics
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.deadletter import MAX_VALUE_BYTES, DeadLetters
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import DecodeError
from kernelcast.wire.topics import DEADLETTER, DEVICE, TOPICS

pytestmark = pytest.mark.service

DEADLINE_SECONDS = 30


@pytest.fixture
def settings(kafka: Broker) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)


def read(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(100, 0.2)[0]
    return messages


def test_topics_are_made_kept_and_mended(settings: KafkaSettings) -> None:
    first = apply_topics(settings)
    second = apply_topics(settings)
    Admin(settings).alter(DEVICE.name, {"message.timestamp.type": "CreateTime", "segment.ms": "600000"})
    mended = {change.topic: change for change in apply_topics(settings)}
    moved = {change.topic: change for change in apply_topics(settings, partitions=3)}
    found = list_topics(settings)

    assert {change.result for change in first} == {TopicResult.CREATED}
    assert {change.remark for change in first} == {
        "1 replica, as Kafka has 1 broker; --replication-factor sets another number"
    }
    assert {change.result for change in second} == {TopicResult.UNCHANGED}
    assert mended[DEVICE.name].result is TopicResult.ALTERED
    asked = {topic.name for topic in TOPICS if topic.partitions > 1}
    assert {name for name, change in moved.items() if change.result is TopicResult.DIFFERS} == asked
    for topic in TOPICS:
        assert found[topic.name].partitions == topic.partitions
        assert found[topic.name].config.items() >= topic.config.items()
    assert found[DEVICE.name].config["segment.ms"] == "600000"


def test_a_topic_that_refuses_everything_makes_the_producer_unready_until_its_limit_is_put_right(
    settings: KafkaSettings,
) -> None:
    apply_topics(settings, [DEVICE])
    Admin(settings).alter(DEVICE.name, {"max.message.bytes": "1000"})
    producer = Producer(settings, client_id="test")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not producer.refused and time.monotonic() < deadline:  # the broker takes the new limit in a moment
        producer.send(DEVICE.name, key=b"node-1", value=os.urandom(5_000))
        assert producer.flush(DEADLINE_SECONDS) == 0
    assert (producer.sent, producer.refused) == (producer.acknowledged, 1)
    ready, reason = producer.ready()
    assert not ready
    assert DEVICE.name in reason
    assert "Message size too large" in reason

    assert [change.result for change in apply_topics(settings, [DEVICE])] == [TopicResult.ALTERED]
    while not producer.ready()[0] and time.monotonic() < deadline:
        producer.send(DEVICE.name, key=b"node-1", value=os.urandom(5_000))
        producer.flush(DEADLINE_SECONDS)
    assert producer.ready() == (True, "")
    producer.close(DEADLINE_SECONDS)


def test_offsets_by_time_are_the_brokers_and_messages_carry_its_append_time(settings: KafkaSettings) -> None:
    apply_topics(settings, [DEVICE])
    producer = Producer(settings, client_id="test")
    producer.send(DEVICE.name, key=b"node-1", value=b"before")
    assert producer.flush(DEADLINE_SECONDS) == 0
    time.sleep(0.05)
    between_ns = time.time_ns()
    time.sleep(0.05)
    producer.send(DEVICE.name, key=b"node-1", value=b"after")
    assert producer.close(DEADLINE_SECONDS) == 0

    consumer = Consumer(settings, group_id="times")
    partitions = consumer.partitions(DEVICE.name)
    consumer.assign(consumer.offsets_for_time(partitions, between_ns))
    messages = read(consumer, 1)
    beyond = consumer.offsets_for_time(partitions, time.time_ns() + 3_600 * 10**9)
    highs = [consumer.watermarks(partition)[1] for partition in partitions]
    consumer.close()

    assert [message.value() for message in messages] == [b"after"]
    assert messages[0].timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
    assert [partition.offset for partition in beyond] == highs
    assert sum(highs) == 2


def test_the_largest_dead_letter_fits_the_topic(settings: KafkaSettings) -> None:
    apply_topics(settings, [DEADLETTER])
    producer = Producer(settings, client_id="test")
    huge = Message(topic=DEVICE.name, partition=0, offset=0, key=b"k" * 2**15, value=bytes(MAX_VALUE_BYTES + 1))

    DeadLetters(producer).send(huge, DecodeError("x" * 2**20))

    assert producer.close(DEADLINE_SECONDS) == 0
    assert (producer.acknowledged, producer.failed) == (1, 0)


def test_the_doctor_finds_kafka_its_topics_and_its_clock_well(settings: KafkaSettings) -> None:
    missing = {finding.check: finding.level for finding in check_broker(settings, probe_clock=True)}
    apply_topics(settings)
    whole = {finding.check: finding.level for finding in check_broker(settings, probe_clock=True)}

    assert missing == {"kafka": CheckLevel.OK, "topics": CheckLevel.FAIL}
    assert whole == {"kafka": CheckLevel.OK, "topics": CheckLevel.OK, "clock": CheckLevel.OK}
