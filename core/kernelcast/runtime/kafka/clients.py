"""Protocols of the parts of Kafka's clients and messages that services use, so that tests can pass lists and fakes.

`producer.Producer`, `consumer.Consumer` and confluent_kafka's messages satisfy them.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from confluent_kafka import TopicPartition

from kernelcast.runtime.kafka.producer import DeliveryListener, Headers

MessageHeaders = Iterable[tuple[str, bytes | str | None]]
"""Headers of a message that was read."""


class Sender(Protocol):
    """A producer of messages without headers."""

    def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:
        """Queue a message; never blocks for long."""


class ConfirmingSender(Protocol):
    """A producer of messages that reports Kafka's answer."""

    def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, on_delivery: DeliveryListener | None = None
    ) -> None:
        """Queue a message; never blocks for long. `on_delivery` may be called on any thread."""


class HeaderSender(Protocol):
    """A producer of messages that may have headers."""

    def send(self, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Queue a message; never blocks for long."""


class ReceivedMessage(Protocol):
    """A message that was read, with its position; part of confluent_kafka.Message."""

    def topic(self) -> str | None:
        """Topic of the message."""

    def partition(self) -> int | None:
        """Partition of the message."""

    def offset(self) -> int | None:
        """Offset of the message."""

    def key(self) -> bytes | None:
        """Its key."""

    def value(self) -> bytes | None:
        """Its value; None for a tombstone."""


class StampedMessage(ReceivedMessage, Protocol):
    """A message that was read, with its headers and its timestamp as well."""

    def headers(self) -> MessageHeaders | None:
        """Its headers, if it has any."""

    def timestamp(self) -> tuple[int, int]:
        """Type of the timestamp, and milliseconds."""


class DeadLetterSink(Protocol):
    """Takes messages that cannot be used: `deadletter.DeadLetters`."""

    def send(self, message: ReceivedMessage, error: Exception) -> None:
        """Send a message to the dead letter topic."""


class Rebalance(Protocol):
    """Callbacks of a service for rebalances; called inside `consume` and `close`, on their thread."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """Take partitions that are new to this member; an empty assignment is reported as well.

        Returns:
            The same partitions with the offsets to start from, or None to start from the committed ones.
        """

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Give up partitions; `lost`: another member has them already, so nothing can be committed."""
