"""The producer after a fatal error of the real librdkafka, which its own test function raises."""

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from tests.support.waiting import eventually

from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings

pytestmark = pytest.mark.service

TOPIC = "samples"


def fail_for_good(client: Any) -> None:
    """Raise a fatal error in a client; its handle of librdkafka is the first field after Python's header."""
    mapped = Path("/proc/self/maps").read_text().split()
    library = ctypes.CDLL(next(path for path in mapped if "/librdkafka" in path))
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
    library.rd_kafka_test_fatal_error(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"out of order")


@pytest.mark.parametrize("noticed_by", ["send", "poll", "flush"])
def test_messages_arrive_after_a_fatal_error(noticed_by: str) -> None:
    made: list[Any] = []

    def client(*arguments: Any, **named: Any) -> Any:
        made.append(confluent_kafka.Producer(*arguments, **named))
        return made[-1]

    with EmbeddedBroker(topics=[TOPIC]) as broker:
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        producer = Producer(settings, client_id="test", client=client)
        producer.send(TOPIC, key=None, value=b"before")
        eventually(lambda: producer.flush(1.0) == 0)
        fail_for_good(made[0])
        if noticed_by == "poll":
            producer.poll(1.0)
        elif noticed_by == "flush":
            producer.flush(1.0)
        results: list[Any] = []
        producer.send(TOPIC, key=None, value=b"after", on_delivery=results.append)
        eventually(lambda: producer.flush(1.0) == 0)
        assert results == [None]
        assert len(made) == 2
