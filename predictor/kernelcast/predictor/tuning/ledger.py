"""Reads all hints and outcomes into the hint book: every predictor reads both topics whole, from their beginning.

No hint is issued before the ledger has reached the end offsets that it saw at its start, so that no hint is issued
twice after a restart.
"""

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from kernelcast.predictor.tuning.hints import HintBook
from kernelcast.runtime.kafka.replay import ReplayConsumer
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import decode_event, hint_from, outcome_from
from kernelcast.wire.topics import HINTS, OUTCOMES

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
BATCH: Final = 500
RETRY_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 10.0
"""Time without a message or an error after which the end was reached: compaction may have removed the last offsets."""


class RejectedMessages(Protocol):
    """Receives messages that cannot be decoded, as the dead letter topic does."""

    def send(self, message: Any, error: Exception) -> None:
        """Record one message with the reason for its rejection."""
        ...


class Ledger:
    """Keeps a `HintBook` up to date.

    Attributes:
        caught_up: Whether every message that was on Kafka at the start has been read.
    """

    def __init__(
        self,
        reader: ReplayConsumer,
        book: HintBook,
        rejected: RejectedMessages,
        *,
        clock_ns: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._book = book
        self._rejected = rejected
        self._clock_ns = clock_ns
        self._monotonic = monotonic
        self._retry_at = 0.0
        self._left: dict[tuple[str, int], int] | None = None
        self._heard = 0.0
        self.caught_up = False

    def poll(self, timeout_seconds: float) -> int:
        """Read one batch; returns the number of messages.

        Raises:
            BrokerError: Kafka does not answer.
        """
        if self._left is None and self._monotonic() >= self._retry_at:
            self._retry_at = self._monotonic() + RETRY_SECONDS
            self._left = self._begin()
            self._heard = self._monotonic()
        if self._left is None:
            return 0
        messages, errors = self._reader.consume(BATCH, timeout_seconds)
        for message in messages:
            self._take(message)
            where = (message.topic(), message.partition())
            if message.offset() + 1 >= self._left.get(where, 0):
                self._left.pop(where, None)
        if messages or errors:
            self._heard = self._monotonic()
        self.caught_up = self.caught_up or not self._left or self._monotonic() - self._heard >= QUIET_SECONDS
        return len(messages)

    def close(self, timeout_seconds: float) -> None:
        """Stop reading; waits for the client at most this long."""
        self._reader.close(timeout_seconds)

    def _begin(self) -> dict[tuple[str, int], int] | None:
        """Assign all partitions; returns the end offset of each with messages, or None while a topic is missing."""
        left = {}
        both = [self._reader.partitions(HINTS.name), self._reader.partitions(OUTCOMES.name)]
        if not all(both):
            return None
        partitions = [partition for topic in both for partition in topic]
        for partition in partitions:
            low, high = self._reader.watermarks(partition)
            partition.offset = low
            if high > low:
                left[partition.topic, partition.partition] = high
        self._reader.assign(partitions)
        return left

    def _take(self, message: Any) -> None:
        value = message.value()
        if value is None:
            return
        try:
            event = decode_event(value)
            if message.topic() == HINTS.name:
                self._book.learn_hint(hint_from(event))
            else:
                self._book.learn_outcome(outcome_from(event), time_ns=self._written_ns(message))
        except EventError as error:
            self._rejected.send(message, error)

    def _written_ns(self, message: Any) -> int:
        """Time of a message's Kafka timestamp: a restart reads outcomes again, which must not renew a cooldown."""
        kind, milliseconds = message.timestamp()
        now_ns = self._clock_ns()
        return now_ns if kind == TIMESTAMP_NOT_AVAILABLE else min(milliseconds * NANOSECONDS_PER_MILLISECOND, now_ns)
