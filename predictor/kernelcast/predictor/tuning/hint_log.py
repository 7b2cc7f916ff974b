"""Reads hints, outcomes and approvals from Kafka, and records them in the `HintBook`, which decides on new hints.

Every predictor reads these topics from their beginning. It issues no hint before it has reached the end offsets that it
saw at its start, so that a restart issues no hint twice. Approvals are on the topic of orders; its stop orders are for
exporters. A predictor still issues hints if this topic does not exist or its user may not read it: exporters deliver no
hint that needs an approval without one.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from kernelcast.predictor.tuning.hints import HintBook
from kernelcast.runtime.kafka.clients import DeadLetterSink
from kernelcast.runtime.kafka.connect import lacks_right
from kernelcast.runtime.kafka.follow import TopicFollower
from kernelcast.runtime.kafka.replay import ReplayConsumer
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import BrokerError, EventError
from kernelcast.wire.events import hint_from, outcome_from
from kernelcast.wire.recent_ids import RecentIds, event_key
from kernelcast.wire.topics import HINTS, ORDERS, OUTCOMES
from kernelcast.wire.tuning.approvals import approval_from, approval_key

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
APPROVAL_KEY_PREFIX: Final = approval_key("")
"""The key of an approval is this and the hint's id."""


class HintLog:
    """Keeps a `HintBook` up to date. Only the thread that reads Kafka uses it; cycles read the book on another one.

    A message that cannot be decoded is a dead letter again at every start, for as long as its topic keeps it.

    Args:
        reader: Reads hints and outcomes.
        book: Records hints, outcomes and approvals.
        rejected: Receives messages that cannot be decoded.
        orders: Reads orders.
        clock_ns: Now, Unix nanoseconds.
        monotonic: Seconds of a clock that never goes back.
        lock: Held while the book changes; the engine holds it while it reads the book. None for a single thread.
    """

    def __init__(  # noqa: PLR0913
        self,
        reader: ReplayConsumer,
        book: HintBook,
        rejected: DeadLetterSink,
        orders: ReplayConsumer,
        *,
        clock_ns: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._follower = TopicFollower(reader, (HINTS.name, OUTCOMES.name), self._record, monotonic=monotonic)
        self._orders = TopicFollower(orders, (ORDERS.name,), self._record_order, monotonic=monotonic)
        self._orders_forbidden = False
        self._monotonic = monotonic
        self._lock = lock if lock is not None else nullcontext()
        self._book = book
        self._rejected = rejected
        self._clock_ns = clock_ns
        self._outcome_ids = RecentIds()

    @property
    def caught_up(self) -> bool:
        """Whether every message that was on Kafka at the start has been read; orders only where that is possible."""
        are_unreadable = self._orders.missing or self._orders_forbidden
        return self._follower.caught_up and (self._orders.caught_up or are_unreadable)

    def poll(self, timeout_seconds: float) -> int:
        """Read one batch; returns the number of messages.

        Raises:
            BrokerError: Kafka does not answer, or refuses a topic; the next call tries again.
        """
        count = self._follower.poll(timeout_seconds)
        try:
            count += self._orders.poll(0.0)  # no second wait: orders are few
        except BrokerError as error:
            # Only a missing right: an approval may be unread after a time-out, and the next call reads it.
            self._orders_forbidden |= lacks_right(error)
            raise
        self._orders_forbidden = False
        return count

    def close(self, timeout_seconds: float) -> None:
        """Stop reading; waits for both clients together at most this long."""
        deadline_seconds = self._monotonic() + timeout_seconds
        self._follower.close(timeout_seconds)
        self._orders.close(max(deadline_seconds - self._monotonic(), 0.0))

    def _record_order(self, message: Any) -> None:
        """Record an approval or rejection of a hint; forget it if its message was deleted. Other orders are ignored."""
        key = (message.key() or b"").decode(errors="replace")
        if not key.startswith(APPROVAL_KEY_PREFIX):
            return
        value = message.value()
        try:
            approval = approval_from(decode_event(value)) if value is not None else None
        except EventError as error:
            self._rejected.send(message, error)
            return
        with self._lock:
            if approval is None:
                self._book.approvals.forget(key.removeprefix(APPROVAL_KEY_PREFIX))
            else:
                self._book.approvals.learn(approval)

    def _record(self, message: Any) -> None:
        """Record a hint or an outcome; an outcome that was sent twice counts once. Deleting a message has no effect."""
        value = message.value()
        if value is None:
            return
        try:
            event = decode_event(value)
            if message.topic() == HINTS.name:
                hint = hint_from(event)
                with self._lock:
                    self._book.learn_hint(hint, time_ns=self._kafka_time_ns(message))
                return
            outcome = outcome_from(event)
            if self._outcome_ids.add(event_key(event)):
                with self._lock:
                    self._book.learn_outcome(outcome, time_ns=self._kafka_time_ns(message))
        except EventError as error:
            self._rejected.send(message, error)

    def _kafka_time_ns(self, message: Any) -> int:
        """Time at which a message was written to Kafka, at the latest now.

        A hint blocks others of its tunable for a time from then on; reading it again after a restart must not renew it.
        """
        kind, milliseconds = message.timestamp()
        now_ns = self._clock_ns()
        return now_ns if kind == TIMESTAMP_NOT_AVAILABLE else min(milliseconds * NANOSECONDS_PER_MILLISECOND, now_ns)
