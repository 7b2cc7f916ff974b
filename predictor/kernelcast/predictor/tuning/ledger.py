"""Reads all hints, outcomes and approvals into the hint book: every predictor reads the topics from their beginning.

No hint is issued before the ledger has reached the end offsets that it saw at its start, so that no hint is issued
twice after a restart. Without the topic of orders, or the right to read it, hints are issued all the same: exporters
hold those that need an approval.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from kernelcast.predictor.tuning.hints import HintBook
from kernelcast.runtime.kafka.clients import DeadLetterSink
from kernelcast.runtime.kafka.follow import TopicFollower
from kernelcast.runtime.kafka.replay import ReplayConsumer
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import hint_from, outcome_from
from kernelcast.wire.repeats import RecentIds, event_key
from kernelcast.wire.topics import HINTS, ORDERS, OUTCOMES
from kernelcast.wire.tuning.approvals import approval_from, approval_key

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
APPROVALS: Final = approval_key("")


class Ledger:
    """Keeps a `HintBook` up to date."""

    def __init__(
        self,
        reader: ReplayConsumer,
        book: HintBook,
        rejected: DeadLetterSink,
        orders: ReplayConsumer,
        *,
        clock_ns: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._follower = TopicFollower(reader, (HINTS.name, OUTCOMES.name), self._take, monotonic=monotonic)
        self._orders = TopicFollower(orders, (ORDERS.name,), self._take_order, monotonic=monotonic)
        self._orders_failed = False
        self._book = book
        self._rejected = rejected
        self._clock_ns = clock_ns
        self._outcome_ids = RecentIds()

    @property
    def caught_up(self) -> bool:
        """Whether every message that was on Kafka at the start has been read."""
        without_orders = self._orders.missing or self._orders_failed
        return self._follower.caught_up and (self._orders.caught_up or without_orders)

    def poll(self, timeout_seconds: float) -> int:
        """Read one batch; returns the number of messages.

        Raises:
            BrokerError: Kafka does not answer.
        """
        found = self._follower.poll(timeout_seconds)
        self._orders_failed = True
        found += self._orders.poll(0.0)
        self._orders_failed = False
        return found

    def close(self, timeout_seconds: float) -> None:
        """Stop reading; waits for the client at most this long."""
        self._follower.close(timeout_seconds)
        self._orders.close(timeout_seconds)

    def _take_order(self, message: Any) -> None:
        """Learn the answer of a person to a hint; orders to stop are for exporters."""
        key, value = (message.key() or b"").decode(errors="replace"), message.value()
        if not key.startswith(APPROVALS):
            return
        if value is None:
            self._book.approvals.forget(key.removeprefix(APPROVALS))
            return
        try:
            self._book.approvals.learn(approval_from(decode_event(value)))
        except EventError as error:
            self._rejected.send(message, error)

    def _take(self, message: Any) -> None:
        value = message.value()
        if value is None:
            return
        try:
            event = decode_event(value)
            if message.topic() == HINTS.name:
                self._book.learn_hint(hint_from(event), time_ns=self._written_ns(message))
                return
            outcome = outcome_from(event)
            if self._outcome_ids.add(event_key(event)):
                self._book.learn_outcome(outcome, time_ns=self._written_ns(message))
        except EventError as error:
            self._rejected.send(message, error)

    def _written_ns(self, message: Any) -> int:
        """Time of a message's Kafka timestamp: a restart reads outcomes again, which must not renew a cooldown."""
        kind, milliseconds = message.timestamp()
        now_ns = self._clock_ns()
        return now_ns if kind == TIMESTAMP_NOT_AVAILABLE else min(milliseconds * NANOSECONDS_PER_MILLISECOND, now_ns)
