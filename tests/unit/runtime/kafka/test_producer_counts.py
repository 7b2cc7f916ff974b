"""How the producer counts the answers to its messages."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kernelcast.runtime.kafka.producer import OUTAGE_SECONDS, OUTCOMES, Producer
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


def test_an_outage_of_kafka_is_one_sentence_with_reason_and_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reported = [100.0], list[Callable[[KafkaError], None]]()
    monkeypatch.setattr("kernelcast.runtime.kafka.producer.time", SimpleNamespace(monotonic=lambda: now[0]))

    def client(config: dict[str, Any], **_rest: Any) -> Client:
        reported.append(config["error_cb"])
        return Client(None)

    Producer(KafkaSettings(bootstrap_servers="k:9092"), client_id="test", client=client)
    with capture_logs() as lines:
        for pause_seconds in (0.0, 1.0, 1.0, OUTAGE_SECONDS + 1):
            now[0] += pause_seconds
            reported[0](KafkaError(KafkaError._TRANSPORT, "k:9092/bootstrap: Connect to k failed: Connection refused"))
            reported[0](KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert [line["event"] for line in lines] == ["waiting for Kafka"] * 2, "of each outage one"
    assert lines[0] == {
        "event": "waiting for Kafka",
        "log_level": "warning",
        "brokers": "k:9092",
        "reason": "k:9092/bootstrap: Connect to k failed: Connection refused",
        "remedy": "start Kafka, or correct the port in kafka.bootstrap_servers",
    }


def test_a_producer_without_messages_is_ready_again_when_outages_are_reported_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exporter without a GPU and a program sends nothing that Kafka could acknowledge."""
    now, reported = [100.0], list[Callable[[KafkaError], None]]()
    monkeypatch.setattr("kernelcast.runtime.kafka.producer.time", SimpleNamespace(monotonic=lambda: now[0]))

    def client(config: dict[str, Any], **_rest: Any) -> Client:
        reported.append(config["error_cb"])
        return Client(None)

    producer = Producer(KafkaSettings(bootstrap_servers="k:9092"), client_id="test", client=client)
    for _ in range(4):  # librdkafka leaves equal reports out for 30 s
        now[0] += 30.0
        reported[0](KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert producer.ready() == (False, "no broker of k:9092 answers")
    now[0] += OUTAGE_SECONDS + 1.0
    assert producer.ready() == (True, "")
