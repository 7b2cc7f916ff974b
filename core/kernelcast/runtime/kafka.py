"""Kafka clients: a producer that never blocks its caller and counts what it drops, and a batch consumer."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from prometheus_client import CollectorRegistry, Counter

from kernelcast.runtime.settings import KafkaSettings
from kernelcast.wire.errors import BrokerError, ConfigurationError
from kernelcast.wire.topics import PARTITIONER

Headers = Sequence[tuple[str, bytes]]
DeliveryListener = Callable[[str | None], None]

QUEUE_KIBIBYTES: Final = 64 * 1024
MAX_MESSAGE_BYTES: Final = 9 * 1024 * 1024

PRODUCER_DEFAULTS: Final[Mapping[str, str]] = {
    "acks": "all",
    "enable.idempotence": "true",
    "compression.type": "lz4",
    "partitioner": PARTITIONER,
    "linger.ms": "20",
    "queue.buffering.max.kbytes": str(QUEUE_KIBIBYTES),
    "message.max.bytes": str(MAX_MESSAGE_BYTES),
}
CONSUMER_DEFAULTS: Final[Mapping[str, str]] = {
    "enable.auto.commit": "false",
    "enable.partition.eof": "false",
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
}


class Producer:
    """Writes to Kafka without blocking; what does not fit its bounded queue is dropped and counted.

    Attributes:
        sent, acknowledged, failed, dropped: Messages since the start, all topics together.
    """

    def __init__(self, settings: KafkaSettings, *, client_id: str, registry: CollectorRegistry | None = None) -> None:
        registry = registry if registry is not None else CollectorRegistry()
        self._messages = Counter(
            "kernelcast_producer_messages_total", "Messages by outcome", ["topic", "outcome"], registry=registry
        )
        self._client = _connect(confluent_kafka.Producer, settings, PRODUCER_DEFAULTS, {"client.id": client_id})
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self.dropped = 0

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        on_delivery: DeliveryListener | None = None,
    ) -> None:
        """Queue a message; returns at once."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._count(topic, "failed" if error else "acknowledged")
            if on_delivery is not None:
                on_delivery(error.str() if error else None)

        for attempt in range(2):
            try:
                self._client.produce(topic, value=value, key=key, headers=list(headers), on_delivery=delivered)
            except BufferError:
                if attempt == 0:
                    self._client.poll(0.05)
                    continue
                self._count(topic, "dropped")
            except KafkaException:
                self._count(topic, "dropped")
            else:
                self._count(topic, "sent")
            break
        self._client.poll(0)

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Serve acknowledgements; call it now and then when nothing is sent."""
        self._client.poll(timeout_seconds)

    def flush(self, timeout_seconds: float) -> int:
        """Wait until Kafka has answered for every message, at most so long; returns how many are outstanding."""
        return int(self._client.flush(timeout_seconds))

    def _count(self, topic: str, outcome: str) -> None:
        self._messages.labels(topic, outcome).inc()
        setattr(self, outcome, getattr(self, outcome) + 1)


class Rebalance(Protocol):
    """What a service does when partitions come and go; called on the thread that consumes."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """New partitions; returns the same with the offsets to start from, or None to start from committed ones."""

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Partitions that go to another member; `lost`: they have gone already, do not commit."""


class Consumer:
    """Reads batches from Kafka; offsets are committed only when told to."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        group_id: str,
        client_id: str = "",
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        extra = {"group.id": group_id, "client.id": client_id or group_id, **(overrides or {})}
        self._client = _connect(confluent_kafka.Consumer, settings, CONSUMER_DEFAULTS, extra)

    def subscribe(self, topics: Iterable[str], rebalance: Rebalance | None = None) -> None:
        """Join the group."""
        if rebalance is None:
            self._client.subscribe(list(topics))
            return

        def assigned(client: Any, partitions: list[TopicPartition]) -> None:
            client.incremental_assign(list(rebalance.assigned(partitions) or partitions))

        def revoked(client: Any, partitions: list[TopicPartition]) -> None:
            rebalance.revoked(partitions, lost=False)

        def lost(client: Any, partitions: list[TopicPartition]) -> None:
            rebalance.revoked(partitions, lost=True)

        self._client.subscribe(list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions, without a group."""
        self._client.assign(list(partitions))

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Message], list[KafkaError]]:
        """Read what is there: messages, and errors apart from them."""
        good: list[Message] = []
        errors: list[KafkaError] = []
        for message in self._client.consume(max_messages, timeout_seconds):
            error = message.error()
            if error is None:
                good.append(message)
            else:
                errors.append(error)
        return good, errors

    def assignment(self) -> list[TopicPartition]:
        """The partitions read now."""
        return list(self._client.assignment())

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The next offset to be read of each."""
        return list(self._client.position(list(partitions)))

    def watermarks(self, partition: TopicPartition, *, timeout_seconds: float = 5.0) -> tuple[int, int]:
        """The first offset kept and the next to be written."""
        try:
            low, high = self._client.get_watermark_offsets(partition, timeout=timeout_seconds)
        except KafkaException as error:
            raise BrokerError(f"watermarks of {partition.topic}/{partition.partition}: {error}") from error
        return int(low), int(high)

    def offsets_for_time(
        self, partitions: Sequence[TopicPartition], time_ns: int, *, timeout_seconds: float = 5.0
    ) -> list[TopicPartition]:
        """Where each partition stood at a time; its beginning where the broker keeps no time index."""
        return [TopicPartition(p.topic, p.partition, confluent_kafka.OFFSET_BEGINNING) for p in partitions]

    def committed(self, partitions: Sequence[TopicPartition], *, timeout_seconds: float = 5.0) -> list[TopicPartition]:
        """The group's committed offsets; -1001 where it has none."""
        return list(self._client.committed(list(partitions), timeout=timeout_seconds))

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:
        """Commit offsets of the next messages to be read."""
        self._client.commit(offsets=list(offsets), asynchronous=not wait)

    def seek(self, partition: TopicPartition) -> None:
        """Go on reading a partition at another offset."""
        self._client.seek(partition)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these for now."""
        self._client.pause(list(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch these again."""
        self._client.resume(list(partitions))

    def close(self) -> None:
        """Leave the group; the broker hands the partitions on at once."""
        self._client.close()


def _connect(
    client: Callable[[dict[str, Any]], Any],
    settings: KafkaSettings,
    defaults: Mapping[str, str],
    extra: Mapping[str, str],
) -> Any:
    config = {**defaults, "bootstrap.servers": settings.bootstrap_servers, **extra, **settings.properties}
    try:
        return client(dict(config))
    except KafkaException as error:
        raise ConfigurationError(f"kafka.properties: librdkafka says: {error.args[0].str()}") from None


def now_ns() -> int:
    """Wall clock, in nanoseconds."""
    return time.time_ns()
