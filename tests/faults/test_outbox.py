"""Messages of real schedules on their way to Kafka; nothing is started."""

from collections.abc import Callable

from confluent_kafka import KafkaException
from tests.faults.real.kafka import Outbox, Outgoing


class Client:
    """A producer that refuses messages, or fails to deliver them, while its metadata lacks a partition."""

    def __init__(self) -> None:
        self.known, self.fails = {("kernels", 0)}, False
        self.written: list[bytes | None] = []
        self._deliveries: list[tuple[bytes | None, Callable[[object, object], None], str | None]] = []

    def produce(
        self,
        topic: str,
        body: bytes | None,
        _key: bytes | None,
        number: int,
        *,
        on_delivery: Callable[[object, object], None],
    ) -> None:
        if (topic, number) not in self.known:
            raise KafkaException("unknown partition")
        self._deliveries.append((body, on_delivery, "unknown topic" if self.fails else None))

    def poll(self, _seconds: float) -> None:
        due, self._deliveries = self._deliveries, []
        for body, delivered, error in due:
            self.written += [] if error else [body]
            delivered(error, None)

    def flush(self, seconds: float) -> int:
        self.poll(seconds)
        return len(self._deliveries)


def message(body: bytes, number: int = 0) -> Outgoing:
    return Outgoing("kernels", number, body, b"key")


def test_messages_for_a_partition_that_is_not_known_yet_are_written_later_in_order() -> None:
    client = Client()
    outbox = Outbox(client)
    for body in (b"1", b"2"):
        outbox.add(message(body, 1))
    outbox.add(message(b"other"))
    for _ in range(100):
        outbox.send()
    assert (client.written, outbox.empty(0)) == ([b"other"], False)
    client.known.add(("kernels", 1))
    outbox.add(message(b"3", 1))
    assert outbox.empty(0)
    assert client.written == [b"other", b"1", b"2", b"3"]


def test_a_message_that_was_not_delivered_is_written_again() -> None:
    client = Client()
    outbox = Outbox(client)
    client.fails = True
    outbox.add(message(b"1"))
    assert not outbox.empty(0)
    client.fails = False
    assert outbox.empty(0)
    assert client.written == [b"1"]


def test_messages_for_a_deleted_topic_are_dropped() -> None:
    client = Client()
    outbox = Outbox(client)
    outbox.add(message(b"1", 1))
    outbox.forget("kernels")
    assert outbox.empty(0)
    assert client.written == []
