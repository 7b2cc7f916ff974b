"""Reads assigned partitions in batches, and separates messages from errors: the part of a consumer without a group."""

from collections.abc import Iterable, Sequence

from confluent_kafka import KafkaError, Message, TopicPartition

from kernelcast.runtime.kafka.connect import broker_errors
from kernelcast.runtime.kafka.stall_recovery import RecoveringClient
from kernelcast.runtime.kafka.stalls import Key
from kernelcast.wire.errors import BrokerError


class PartitionReader(RecoveringClient):
    """Reads the partitions that were assigned, by their group or by `assign`. Only one thread may use it."""

    _failed = False  # after a fatal error, which no request can follow

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions from their offsets, without a group's rebalancing."""
        with broker_errors("assigning partitions"):
            self._client.assign(list(partitions))
        self._forget(list(self._detector.progress))
        self._watch(partitions)

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Start reading further partitions from their offsets, without a group's rebalancing."""
        with broker_errors("adding partitions"):
            self._client.incremental_assign(list(partitions))
        self._watch(partitions)

    def remove(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading these partitions; the others continue."""
        with broker_errors("removing partitions"):
            self._client.incremental_unassign(list(partitions))
        self._forget(_keys(partitions))

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Message], list[KafkaError]]:
        """Read available messages, up to a number and a time-out.

        Returns:
            Messages (a tombstone has no value: test for None, an empty message is falsy), and transient errors, which
            are counted and logged already.

        Raises:
            BrokerError: A permanent error, a login that Kafka has refused for a minute, or no partition can be read.
        """
        self._recover()
        with broker_errors("reading"):
            batch: list[Message] = self._queue.consume(max_messages, timeout_seconds)
        self._drained = len(batch) < max_messages
        good = [message for message in batch if message.error() is None]
        if good:
            self._connection.clear()
        self._connection.check_login()
        for key, position in {_key(message): (message.offset() or 0) + 1 for message in good}.items():
            self._note_progress(key, position)
        if len(good) == len(batch):
            return good, []
        return good, self._errors_in(batch)

    def _errors_in(self, batch: Sequence[Message]) -> list[KafkaError]:
        """Return the errors in a batch; ends of partitions are no errors and are recorded."""
        errors: list[KafkaError] = []
        for message in batch:
            error, key = message.error(), _key(message)
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local error
                self._ends[key] = end = message.offset() or 0
                self._note_progress(key, end)
                continue
            self._note_progress(key, None)
            errors.append(error)
            self._metrics.errors.labels(error.name()).inc()
            if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001 - librdkafka's local error
                self._failed = True
                raise BrokerError(f"reading failed for good: {error.str()}; restart the service")
            self._log.warning("read error", error=error.name(), reason=error.str())
        return errors

    def ends(self) -> list[TopicPartition]:
        """Return the partitions that `consume` has read to their end since the last call, with the last end offset.

        The end offset may be beyond the last message: transaction markers use offsets, and retention and compaction
        remove messages.
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
        self._note_progress((partition.topic, partition.partition), partition.offset)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`, without leaving the group."""
        with broker_errors("pausing"):
            self._client.pause(list(partitions))
        self._detector.pause(_keys(partitions), paused=True)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue fetching these partitions."""
        with broker_errors("resuming"):
            self._client.resume(list(partitions))
        self._detector.pause(_keys(partitions), paused=False)


def _key(message: Message) -> Key:
    number = message.partition()
    return message.topic() or "", -1 if number is None else number


def _keys(partitions: Iterable[TopicPartition]) -> list[Key]:
    return [(each.topic, each.partition) for each in partitions]
