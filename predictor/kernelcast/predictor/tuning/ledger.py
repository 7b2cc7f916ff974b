"""Reads all hints and outcomes into the hint book: every predictor reads both topics whole, from their beginning.

No hint is issued before the ledger has reached the end offsets that it saw at its start, so that no hint is issued
twice after a restart.
"""

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from kernelcast.predictor.tuning.hints import HintBook
from kernelcast.runtime.kafka.follow import TopicFollower
from kernelcast.runtime.kafka.replay import ReplayConsumer
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import decode_event, hint_from, outcome_from
from kernelcast.wire.topics import HINTS, OUTCOMES

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000


class RejectedMessages(Protocol):
    """Receives messages that cannot be decoded, as the dead letter topic does."""

    def send(self, message: Any, error: Exception) -> None:
        """Record one message with the reason for its rejection."""
        ...


class Ledger:
    """Keeps a `HintBook` up to date."""

    def __init__(
        self,
        reader: ReplayConsumer,
        book: HintBook,
        rejected: RejectedMessages,
        *,
        clock_ns: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._follower = TopicFollower(reader, (HINTS.name, OUTCOMES.name), self._take, monotonic=monotonic)
        self._book = book
        self._rejected = rejected
        self._clock_ns = clock_ns

    @property
    def caught_up(self) -> bool:
        """Whether every message that was on Kafka at the start has been read."""
        return self._follower.caught_up

    def poll(self, timeout_seconds: float) -> int:
        """Read one batch; returns the number of messages.

        Raises:
            BrokerError: Kafka does not answer.
        """
        return self._follower.poll(timeout_seconds)

    def close(self, timeout_seconds: float) -> None:
        """Stop reading; waits for the client at most this long."""
        self._follower.close(timeout_seconds)

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
