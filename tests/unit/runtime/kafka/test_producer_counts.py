"""How the producer counts the answers to its messages."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError
from prometheus_client import CollectorRegistry

from kernelcast.runtime.kafka.producer import OUTCOMES, Producer
from kernelcast.runtime.settings.service import KafkaSettings

Delivered = Callable[[KafkaError | None, Any], None]


class Client:
    """librdkafka's producer, which answers each message at once."""

    def __init__(self, answer: KafkaError | None) -> None:
        self._answer = answer

    def produce(self, _topic: str, *, on_delivery: Delivered, **_rest: Any) -> None:
        on_delivery(self._answer, None)

    def poll(self, _timeout_seconds: float) -> None:
        """Serve nothing."""

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (None, {"sent", "acknowledged"}),
        (KafkaError.NOT_ENOUGH_REPLICAS, {"sent", "failed"}),
        (KafkaError.INVALID_RECORD, {"failed", "refused"}),
        (KafkaError._MSG_TIMED_OUT, {"failed"}),
        (KafkaError._PURGE_QUEUE, {"failed"}),
    ],
)
def test_a_message_counts_as_sent_if_kafka_has_answered(answer: int | None, counted: set[str]) -> None:
    registry, error = CollectorRegistry(), KafkaError(answer) if answer is not None else None
    producer = Producer(
        KafkaSettings(), client_id="test", registry=registry, client=lambda _config, **_rest: Client(error)
    )
    producer.send("samples", key=None, value=b"x")
    values = {
        outcome: registry.get_sample_value(
            "kernelcast_producer_messages_total", {"topic": "samples", "outcome": outcome}
        )
        for outcome in OUTCOMES
    }
    assert {outcome for outcome, value in values.items() if value} == counted
    assert {outcome for outcome in OUTCOMES if getattr(producer, outcome)} == counted
