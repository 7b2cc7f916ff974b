"""Goes on reading where a client of Kafka stands still, see `stalls`; `reader.PartitionReader` reads."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import structlog
from confluent_kafka import KafkaException, TopicPartition

from kernelcast.runtime.kafka import queries
from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.kafka.offsets import REQUEST_TIMEOUT_SECONDS, OffsetQueries
from kernelcast.runtime.kafka.receiving import PromptReceiver
from kernelcast.runtime.kafka.stalls import EXIT_PAUSE_SECONDS, Key, StallDetector
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError

ENDS_SECONDS: Final = 5.0
"""Interval between two queries for the ends of the partitions that are read."""


class RecoveringClient(OffsetQueries):
    """confluent_kafka's consumer, which is replaced by a new one where it stands still. Only one thread may use it.

    A partition that stands still although Kafka answers (see `StallDetector`) is sought again, then the client is
    replaced, then the partition counts as failed. Each step is logged and counted.

    Args:
        settings: Settings of the connection.
        make_client: Makes confluent_kafka's consumer.
        connection: Errors of the connection, which the client reports to it.
        metrics: The metrics of the process's consumers; None does not expose them.
        prompt: Whether messages that are there are read at once, see `PromptReceiver`; otherwise reading waits until a
            batch is full or its time is up.
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
        self._ends: dict[Key, int] = {}  # the last ones: a caller may never ask
        self._detector = StallDetector(now_seconds=time.monotonic())
        self._asked_ends: dict[TopicPartition, Any] = {}
        self._asked_seconds, self._ends_due_seconds = 0.0, time.monotonic() + ENDS_SECONDS
        self._drained = False  # whether all messages that the client had fetched have been read
        self._queue = self._new_queue()

    def known_high(self, partition: TopicPartition) -> int:
        """Return the high watermark of Kafka's last answer to a fetch or a query; negative before one.

        Kafka is asked every few seconds, so a partition whose fetching has stopped shows its lag as well.
        """
        progress = self._detector.progress.get((partition.topic, partition.partition))
        asked = -1 if progress is None or progress.end is None else progress.end
        return max(super().known_high(partition), asked)

    def _new_queue(self) -> Any:
        return PromptReceiver(self._client.consume, time.monotonic) if self._prompt else self._client

    def _watch(self, partitions: Sequence[TopicPartition]) -> None:
        """Watch partitions that are read from now on."""
        starts = {(each.topic, each.partition): each.offset for each in partitions}
        self._detector.assigned(starts, now_seconds=time.monotonic())
        for topic, _ in starts:
            self._metrics.expect(topic)

    def _forget(self, keys: Iterable[Key]) -> None:
        """Watch partitions no more."""
        for topic, _ in self._detector.removed(keys):
            self._metrics.failed.labels(topic).dec()

    def _note_progress(self, key: Key, position: int | None) -> None:
        if self._detector.moved(key, position, now_seconds=time.monotonic()):
            self._metrics.failed.labels(key[0]).dec()
            self._log.info("the partition is read again", topic=key[0], partition=key[1])

    def _recover(self) -> None:
        """Learn the ends of the partitions, and take the steps that are due.

        Raises:
            BrokerError: A new client has read nothing either, so that only a new process may help.
        """
        detector, now_seconds = self._detector, time.monotonic()
        self._learn_ends(now_seconds)
        detector.tick(now_seconds, drained=self._drained)
        for (topic, number), offset in detector.take_seeks().items():
            self._count_step("seek", "nothing is read although Kafka has more; sought again", topic, number)
            try:
                self._client.seek(TopicPartition(topic, number, offset))
            except KafkaException as error:
                self._log.info("not sought", topic=topic, partition=number, reason=str(error))
        if detector.take_replacement(now_seconds):
            self._metrics.recoveries.labels("new_client").inc()
            self._log.warning("the client stands still although Kafka answers; it is replaced by a new one")
            self._replace_client()
        for topic, number in detector.take_failed():
            self._count_step("failed", "the partition cannot be read; the others go on", topic, number)
            self._metrics.failed.labels(topic).inc()
        if detector.take_end(now_seconds):
            raise BrokerError(
                f"no partition can be read although Kafka answers, also by a new client; the process ends, at most "
                f"every {EXIT_PAUSE_SECONDS:g} s, so that it is started again"
            )

    def _count_step(self, step: str, event: str, topic: str, number: int) -> None:
        self._metrics.recoveries.labels(step).inc()
        progress = self._detector.progress[topic, number]
        self._log.warning(event, topic=topic, partition=number, position=progress.position, end=progress.end)

    def _learn_ends(self, now_seconds: float) -> None:
        """Query the ends of the partitions every few seconds, and note the answers once they are there."""
        if self._asked_ends:
            if not all(future.done() for future in self._asked_ends.values()):
                return
            ends = queries.answered_ends(self._asked_ends)
            self._detector.answered(ends, asked_seconds=self._asked_seconds, now_seconds=now_seconds)
            self._asked_ends = {}
        if now_seconds < self._ends_due_seconds:
            return
        self._asked_seconds, self._ends_due_seconds = now_seconds, now_seconds + ENDS_SECONDS
        if keys := self._keys_to_ask():
            self._asked_ends = queries.ask_for_ends(self._admin(), keys, REQUEST_TIMEOUT_SECONDS)

    def _keys_to_ask(self) -> list[Key]:
        """Return the partitions whose ends are queried: those that are read."""
        return list(self._detector.progress)

    def _replace_client(self) -> None:
        """Go on with a new client, at the same positions or as another member of the group."""
        raise NotImplementedError

    def _use(self, client: Any) -> None:
        self._client = client
        self._queue = self._new_queue()
        self._ends.clear()
