"""Undecodable messages are counted and sent to the dead-letter topic with the reason; all others are processed."""

import os
import random
import sys
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from tests.service.conftest import Broker
from tests.service.servers import wait_for
from tests.service.stack import Stack
from tests.support.columnar.otlp_messages import varint
from tests.support.service.programs import LAUNCHES, SCRIPT, topics

from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.topics import ALERTS, DEADLETTER, HINTS, METRIC_TOPICS, OUTCOMES

pytestmark = pytest.mark.service


READ = (*METRIC_TOPICS, HINTS, OUTCOMES)

POISON = {
    "random": random.Random(1).randbytes(2000),
    "truncated": b"\x0a\x7f\x0a\x05",
    "endless varint": b"\xff" * 64,
    "huge length": b"\x0a" + varint(2**63 - 1),
    "length that overflows": b"\x0a" + varint(2**64 - 1) + b"\x00" * 20,
    "unclosed group": b"\x0b" * 200,
    "deep nesting": b"\x0a\x7e" * 60,
    "reserved wire type": b"\x0f\x00",
    "oversized": os.urandom(900_000),
    "text": b"not a metric at all",
    "json": b'{"specversion": "1.0", "id": 3}',
}


def dead_letters(bootstrap_servers: str, expected: int) -> list[Message]:
    consumer = Consumer(KafkaSettings(bootstrap_servers=bootstrap_servers), group_id="test-dead")
    partitions = consumer.partitions(DEADLETTER.name)
    for partition in partitions:
        partition.offset = 0
    consumer.assign(partitions)
    found: list[Message] = []

    def enough() -> bool:
        found.extend(consumer.consume(500, 0.5)[0])
        topics_seen = {headers_of(letter)["kernelcast.topic"] for letter in found}
        return len(found) >= expected and {topic.name for topic in READ} <= topics_seen

    wait_for(f"{expected} dead letters, of every topic that is read", enough)
    consumer.close()
    return found


def test_undecodable_messages_of_every_topic_become_dead_letters_and_the_rest_is_processed(
    kafka: Broker, tmp_path: Path
) -> None:
    topics(kafka)
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        for name in ("bridge", "exporter", "predictor"):
            stack.service(name)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 1_000_000})
        for topic in (*METRIC_TOPICS, HINTS, OUTCOMES, ALERTS):
            for name, body in POISON.items():
                producer.produce(topic.name, key=name.encode(), value=body)
        assert producer.flush(30) == 0
        sent = len(POISON) * len(METRIC_TOPICS)
        wait_for("the bridge to refuse them", lambda: decode_failures(stack) >= sent - 2 * len(METRIC_TOPICS))
        letters = dead_letters(kafka.bootstrap_servers, sent)
        topics_seen = {headers_of(letter)["kernelcast.topic"] for letter in letters}
        assert {topic.name for topic in READ} <= topics_seen
        assert ALERTS.name not in topics_seen, "no service reads alerts, so none can refuse one"
        for letter in letters:
            headers = headers_of(letter)
            assert headers["kernelcast.error"]
            assert headers["kernelcast.error_type"]
            assert int(headers["kernelcast.partition"]) >= 0
            assert int(headers["kernelcast.offset"]) >= 0
        stack.background("program", sys.executable, SCRIPT, "after", "void work<float>(int)", "500", "1")
        wait_for("what came after the poison", lambda: stack.total(LAUNCHES, program="after") == 500)


def headers_of(message: Message) -> dict[str, str]:
    headers = message.headers() or []
    assert isinstance(headers, list)
    return {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in headers}


def decode_failures(stack: Stack) -> float:
    return stack.own("bridge", "kernelcast_bridge_decode_failures_total")
