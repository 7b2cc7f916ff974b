"""Reads assigned partitions in batches, and goes on where the client stands still: a consumer without a group."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from kernelcast.runtime.kafka import queries
from kernelcast.runtime.kafka.connect import broker_errors
from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.kafka.offsets import REQUEST_TIMEOUT_SECONDS, OffsetQueries
from kernelcast.runtime.kafka.receiving import PromptReceiver
from kernelcast.runtime.kafka.supervisor import EXIT_PAUSE_SECONDS, Key, Supervisor
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError

ENDS_SECONDS: Final = 5.0
"""Interval between two queries for the ends of the partitions that are read."""


class PartitionReader(OffsetQueries):
    """Reads the partitions that were assigned, by their group or by `assign`. Only one thread may use it.

    `consume` also supervises itself, see `Supervisor`: a partition that stands still although Kafka answers is sought
    again, then the client is replaced by a new one, then the partition counts as failed. Each step is logged and
    counted.

    Args:
        settings: Settings of the connection.
        make_client: Makes confluent_kafka's consumer.
        connection: Errors of the connection, which the client reports to it.
        metrics: The metrics of the process's consumers; None does not expose them.
        prompt: Whether `consume` returns messages that are there at once, see `PromptReceiver`; otherwise it waits
            until a batch is full or its time is up.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        make_client: Callable[[], Any],
        *,
        connection: ConnectionErrors,
        metrics: ConsumerMetrics | None = None,
        prompt: bool = False,
    ) -> None:
        super().__init__(settings, make_client())
        self._make_client, self._prompt = make_client, prompt
        self._metrics = metrics or ConsumerMetrics()
        self._log = structlog.stdlib.get_logger("kafka.consumer")
        self._connection = connection
        self._failed = False  # after a fatal error, which no request can follow
        self._ends: dict[Key, int] = {}  # the last ones: a caller may never ask
        self._supervisor = Supervisor(now_seconds=time.monotonic())
        self._asked_ends: dict[TopicPartition, Any] = {}
        self._asked_seconds, self._ends_due_seconds = 0.0, time.monotonic() + ENDS_SECONDS
        self._drained = False
        self._queue = self._new_queue()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions from their offsets, without a group's rebalancing."""
        with broker_errors("assigning partitions"):
            self._client.assign(list(partitions))
        self._forget(list(self._supervisor.progress))
        self._supervise(partitions)

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Start reading further partitions from their offsets, without a group's rebalancing."""
        with broker_errors("adding partitions"):
            self._client.incremental_assign(list(partitions))
        self._supervise(partitions)

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

    def known_high(self, partition: TopicPartition) -> int:
        """Return the high watermark of Kafka's last answer to a fetch or a query; negative before one.

        Kafka is asked every few seconds, so a partition whose fetching has stopped shows its lag as well.
        """
        progress = self._supervisor.progress.get((partition.topic, partition.partition))
        asked = -1 if progress is None or progress.end is None else progress.end
        return max(super().known_high(partition), asked)

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
        self._supervisor.pause(_keys(partitions), paused=True)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue fetching these partitions."""
        with broker_errors("resuming"):
            self._client.resume(list(partitions))
        self._supervisor.pause(_keys(partitions), paused=False)

    def _new_queue(self) -> Any:
        return PromptReceiver(self._client.consume, time.monotonic) if self._prompt else self._client

    def _supervise(self, partitions: Sequence[TopicPartition]) -> None:
        """Watch partitions that are read from now on."""
        starts = {(each.topic, each.partition): each.offset for each in partitions}
        self._supervisor.assigned(starts, now_seconds=time.monotonic())
        for topic, _ in starts:
            self._metrics.expect(topic)

    def _forget(self, keys: Iterable[Key]) -> None:
        """Watch partitions no more."""
        for topic, _ in self._supervisor.removed(keys):
            self._metrics.failed.labels(topic).dec()

    def _note_progress(self, key: Key, position: int | None) -> None:
        if self._supervisor.moved(key, position, now_seconds=time.monotonic()):
            self._metrics.failed.labels(key[0]).dec()
            self._log.info("the partition is read again", topic=key[0], partition=key[1])

    def _recover(self) -> None:
        """Learn the ends of the partitions, and take the steps that are due.

        Raises:
            BrokerError: A new client has read nothing either, so that only a new process may help.
        """
        supervisor, now_seconds = self._supervisor, time.monotonic()
        self._learn_ends(now_seconds)
        supervisor.tick(now_seconds, drained=self._drained)
        for (topic, number), offset in supervisor.take_seeks().items():
            self._count_step("seek", "nothing is read although Kafka has more; sought again", topic, number)
            try:
                self._client.seek(TopicPartition(topic, number, offset))
            except KafkaException as error:
                self._log.info("not sought", topic=topic, partition=number, reason=str(error))
        if supervisor.take_replacement(now_seconds):
            self._metrics.recoveries.labels("new_client").inc()
            self._log.warning("the client stands still although Kafka answers; it is replaced by a new one")
            self._replace_client()
        for topic, number in supervisor.take_failed():
            self._count_step("failed", "the partition cannot be read; the others go on", topic, number)
            self._metrics.failed.labels(topic).inc()
        if supervisor.take_end(now_seconds):
            raise BrokerError(
                f"no partition can be read although Kafka answers, also by a new client; the process ends, at most "
                f"every {EXIT_PAUSE_SECONDS:g} s, so that it is started again"
            )

    def _count_step(self, step: str, event: str, topic: str, number: int) -> None:
        self._metrics.recoveries.labels(step).inc()
        progress = self._supervisor.progress[topic, number]
        self._log.warning(event, topic=topic, partition=number, position=progress.position, end=progress.end)

    def _learn_ends(self, now_seconds: float) -> None:
        """Query the ends of the partitions every few seconds, and note the answers once they are there."""
        if self._asked_ends:
            if not all(future.done() for future in self._asked_ends.values()):
                return
            ends = queries.answered_ends(self._asked_ends)
            self._supervisor.answered(ends, asked_seconds=self._asked_seconds, now_seconds=now_seconds)
            self._asked_ends = {}
        if now_seconds < self._ends_due_seconds:
            return
        self._asked_seconds, self._ends_due_seconds = now_seconds, now_seconds + ENDS_SECONDS
        if keys := self._keys_to_ask():
            self._asked_ends = queries.ask_for_ends(self._admin(), keys, REQUEST_TIMEOUT_SECONDS)

    def _keys_to_ask(self) -> list[Key]:
        """Return the partitions whose ends are queried: those that are read."""
        return list(self._supervisor.progress)

    def _replace_client(self) -> None:
        """Go on with a new client, at the same positions or as another member of the group."""
        raise NotImplementedError

    def _use(self, client: Any) -> None:
        self._client = client
        self._queue = self._new_queue()
        self._ends.clear()


def _key(message: Message) -> Key:
    number = message.partition()
    return message.topic() or "", -1 if number is None else number


def _keys(partitions: Iterable[TopicPartition]) -> list[Key]:
    return [(each.topic, each.partition) for each in partitions]
