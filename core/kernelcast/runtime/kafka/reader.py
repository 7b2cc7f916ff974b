"""Reads assigned partitions in batches, and separates messages from errors: the part of a consumer without a group."""

import time
from collections.abc import Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaError, Message, TopicPartition
from prometheus_client import CollectorRegistry

from kernelcast.runtime.instruments import counter
from kernelcast.runtime.kafka.connect import broker_errors
from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.kafka.offsets import OffsetQueries
from kernelcast.runtime.kafka.receiving import PromptReceiver
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.catalogue import runtime
from kernelcast.wire.errors import BrokerError


class PartitionReader(OffsetQueries):
    """Reads the partitions that were assigned, by their group or by `assign`. Only one thread may use it.

    Args:
        settings: Settings of the connection.
        client: confluent_kafka's consumer.
        connection: Errors of the connection, which the client reports to it.
        registry: Registry of the reader's own metrics; None does not expose them.
        prompt: Whether `consume` returns messages that are there at once, see `PromptReceiver`; otherwise it waits
            until a batch is full or its time is up.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client: Any,
        *,
        connection: ConnectionErrors,
        registry: CollectorRegistry | None = None,
        prompt: bool = False,
    ) -> None:
        super().__init__(settings, client)
        self._queue = PromptReceiver(client.consume, time.monotonic) if prompt else client
        self._errors = counter(runtime.CONSUMER_ERRORS, registry if registry is not None else CollectorRegistry())
        self._log = structlog.stdlib.get_logger("kafka.consumer")
        self._connection = connection
        self._failed = False  # after a fatal error, which no request can follow
        self._ends: dict[tuple[str, int], int] = {}  # the last ones: a caller may never ask

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions from their offsets, without a group's rebalancing."""
        with broker_errors("assigning partitions"):
            self._client.assign(list(partitions))

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Start reading further partitions from their offsets, without a group's rebalancing."""
        with broker_errors("adding partitions"):
            self._client.incremental_assign(list(partitions))

    def remove(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading these partitions; the others continue."""
        with broker_errors("removing partitions"):
            self._client.incremental_unassign(list(partitions))

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Message], list[KafkaError]]:
        """Read available messages, up to a number and a time-out.

        Returns:
            Messages (a tombstone has no value: test for None, an empty message is falsy), and transient errors, which
            are counted and logged already.

        Raises:
            BrokerError: A permanent error, or a login that Kafka has refused for a minute.
        """
        with broker_errors("reading"):
            batch: list[Message] = self._queue.consume(max_messages, timeout_seconds)
        good = [message for message in batch if message.error() is None]
        if good:
            self._connection.clear()
        self._connection.check_login()
        if len(good) == len(batch):
            return good, []
        errors = [error for message in batch if (error := message.error()) is not None and not self._is_end(message)]
        for error in errors:
            self._errors.labels(error.name()).inc()
            if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001 - librdkafka's local error
                self._failed = True
                raise BrokerError(f"reading failed for good: {error.str()}; restart the service")
            self._log.warning("read error", error=error.name(), reason=error.str())
        return good, errors

    def ends(self) -> list[TopicPartition]:
        """Return the partitions that `consume` has read to their end since the last call, with the last end offset.

        The end offset may be beyond the last message: transaction markers use offsets, and retention and compaction
        remove messages. Needs `enable.partition.eof`.
        """
        ends, self._ends = self._ends, {}
        return [TopicPartition(*key, offset) for key, offset in ends.items()]

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return list(self._client.assignment())

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the next offset to be read of each partition; negative before the first message."""
        return list(self._client.position(list(partitions)))

    def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at another offset."""
        with broker_errors(f"seeking in {partition.topic}/{partition.partition}"):
            self._client.seek(partition)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`, without leaving the group."""
        with broker_errors("pausing"):
            self._client.pause(list(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue fetching these partitions."""
        with broker_errors("resuming"):
            self._client.resume(list(partitions))

    def _is_end(self, message: Message) -> bool:
        """Whether an error is only the report that a partition was read to its end, which is then recorded."""
        error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
        if error is None or error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local error
            return False
        if topic is not None and partition is not None and offset is not None:
            self._ends[topic, partition] = offset
        return True
