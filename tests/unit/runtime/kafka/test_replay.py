"""A topic is read to its end, also while Kafka replaces a broker that died; a state that is not whole is noticed."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import TopicPartition
from structlog.testing import capture_logs
from tests.support.runtime.kafka_record import Record

from kernelcast.runtime.kafka.replay import READ_SECONDS, to_end

TOPIC = "samples"


class Broker:
    """A partition of three messages; its leader is away for a time between the first two and the third."""

    def __init__(self, away_seconds: float) -> None:
        self.seconds, self._back_at = 0.0, away_seconds
        self._messages = [Record((TOPIC, 0, offset), b"x", 0) for offset in range(3)]

    def partitions(self, topic: str) -> list[Any]:
        return [TopicPartition(topic, 0, 0)]

    def watermarks(self, _partition: Any) -> tuple[int, int]:
        return 0, 3

    def assign(self, partitions: Sequence[Any]) -> None:
        assert len(partitions) == 1

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        assert max_messages > 2
        self.seconds += timeout_seconds
        readable = 2 if self.seconds < self._back_at else 3
        read = [message for message in self._messages if message.offset() < readable]
        self._messages = self._messages[len(read) :]
        return read, []

    def ends(self) -> list[Any]:
        return []

    def close(self, timeout_seconds: float = 0.0) -> None: ...


def read(broker: Broker) -> tuple[int, list[Any]]:
    """The number of messages that are read, and the warnings."""
    with capture_logs() as logged:
        messages = list(to_end(broker, broker.partitions(TOPIC), monotonic=lambda: broker.seconds))
    return len(messages), [line for line in logged if line["log_level"] == "warning"]


def test_reading_goes_on_once_kafka_has_replaced_a_broker() -> None:
    assert read(Broker(away_seconds=12.0)) == (3, [])


def test_reading_goes_on_where_a_new_leader_reports_an_earlier_end() -> None:
    class NewLeader(Broker):
        def ends(self) -> list[Any]:
            return [TopicPartition(TOPIC, 0, 2)]

    assert read(NewLeader(away_seconds=12.0)) == (3, [])


def test_reading_that_ends_early_is_reported() -> None:
    broker = Broker(away_seconds=1e9)
    number, (warning,) = read(broker)
    assert (number, warning["event"], warning["topic"]) == (2, "topic not read to its end", TOPIC)
    assert broker.seconds < 60.0 + 2 * READ_SECONDS
