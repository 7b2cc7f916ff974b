"""Follows whole topics from their first message on, without a group.

The predictor reads hints, outcomes, orders, findings and baselines with it: a `TopicFollower` passes each message to a
function.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kernelcast.runtime.kafka.replay import ReplayConsumer

BATCH: Final = 500
RETRY_SECONDS: Final = 5.0
"""Time between two looks for a topic that does not exist, or after an error."""
QUIET_SECONDS: Final = 30.0
"""Time without a message or an error that counts as the end, where the consumer does not report it. It is longer than
Kafka needs to replace a broker that died (9 s), so that no order to stop is unread when hints begin."""


class TopicFollower:
    """Reads every message of some topics, those on Kafka at the start and then each new one. One thread uses it.

    Attributes:
        caught_up: Whether every message that was on Kafka at the start has been read.
        missing: Whether a topic did not exist when Kafka was asked last.
    """

    def __init__(
        self,
        reader: ReplayConsumer,
        topics: Sequence[str],
        take: Callable[[Any], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; the first poll begins to read.

        Args:
            reader: The consumer, of which this is the only user.
            topics: Their names; reading begins when all exist.
            take: Receives each message.
            monotonic: A clock, in seconds.
        """
        self._reader = reader
        self._topics = tuple(topics)
        self._take = take
        self._monotonic = monotonic
        self._retry_at = 0.0
        self._unread_ends: dict[tuple[str, int], int] | None = None
        self._last_answer_seconds = 0.0
        self.caught_up = self.missing = False

    def poll(self, timeout_seconds: float) -> int:
        """Read one batch; returns the number of messages.

        Raises:
            BrokerError: Kafka does not answer.
        """
        if self._unread_ends is None and self._monotonic() >= self._retry_at:
            self._retry_at = self._monotonic() + RETRY_SECONDS
            self._unread_ends = self._assign_all()
            self._last_answer_seconds = self._monotonic()
        if self._unread_ends is None:
            return 0
        messages, errors = self._reader.consume(BATCH, timeout_seconds)
        for message in messages:
            self._take(message)
            self._read_to(message.topic(), message.partition(), message.offset() + 1)
        for end in self._reader.ends():  # the last offsets have no message after a compaction
            self._read_to(end.topic, end.partition, end.offset)
        if messages or errors:
            self._last_answer_seconds = self._monotonic()
        self.caught_up = (
            self.caught_up or not self._unread_ends or self._monotonic() - self._last_answer_seconds >= QUIET_SECONDS
        )
        return len(messages)

    def close(self, timeout_seconds: float) -> None:
        """Stop reading; waits for the client at most this long."""
        self._reader.close(timeout_seconds)

    def _read_to(self, topic: str, partition: int, offset: int) -> None:
        if self._unread_ends is not None and offset >= self._unread_ends.get((topic, partition), 0):
            self._unread_ends.pop((topic, partition), None)

    def _assign_all(self) -> dict[tuple[str, int], int] | None:
        """Assign all partitions; returns the end offset of each with messages, or None while a topic is missing."""
        left = {}
        found = [self._reader.partitions(topic) for topic in self._topics]
        self.missing = not all(found)
        if self.missing:
            return None
        partitions = [partition for topic in found for partition in topic]
        for partition in partitions:
            low, high = self._reader.watermarks(partition)
            partition.offset = low
            if high > low:
                left[partition.topic, partition.partition] = high
        self._reader.assign(partitions)
        return left
