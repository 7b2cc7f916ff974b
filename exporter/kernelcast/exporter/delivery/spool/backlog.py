"""Backlog between the publisher and Kafka: keeps every message until Kafka has confirmed it.

A message is in one of three places: in librdkafka's memory only; there and on disk (*spilled*, after
`memory_seconds`); or on disk only, from where it is replayed in order. `kafka_output` makes the backlog. The daemon's
thread calls `send`, the thread of `pump.py` calls `poll`, and librdkafka reports deliveries on any thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from kernelcast.exporter.delivery.spool.counts import SpoolCounts
from kernelcast.exporter.delivery.spool.disk import DiskSpool
from kernelcast.exporter.delivery.spool.pace import SendThrottle
from kernelcast.exporter.delivery.spool.record import SpooledMessage
from kernelcast.runtime.kafka.clients import ConfirmingSender
from kernelcast.runtime.kafka.producer import DeliveryListener, Undelivered

ENDLESS: Final = {"message.timeout.ms": "0"}
"""Properties of the producer: librdkafka retries for ever and keeps the order. A message that timed out would have to
be sent again after younger ones. The number of waiting messages is bounded here instead."""
WINDOW_MESSAGES: Final = 256
"""Largest number of messages from disk that are in flight."""
AWAY_FLUSH_SECONDS: Final = 1.0
"""Longest wait of `close` for Kafka's answers if Kafka was silent before."""
NOT_ON_DISK: Final = -1
"""Used in place of a number in the spool if it could not be written; only librdkafka has the message."""


class Kafka(ConfirmingSender, Protocol):
    """The part of a producer that is needed here."""

    def poll(self, timeout_seconds: float) -> None:
        """Wait for acknowledgements, and serve them."""
        ...

    def close(self, timeout_seconds: float) -> int:
        """Flush, then drop the remaining messages."""
        ...


@dataclass(slots=True)
class Flight:
    """A message in flight: librdkafka has it, and Kafka has not confirmed it.

    Attributes:
        record: The message.
        since: When it was passed to librdkafka, monotonic seconds.
        number: Its number in the spool; None while it is in memory only, NOT_ON_DISK if it could not be written.
        listener: Called with Kafka's final answer, or if the message is lost.
    """

    record: SpooledMessage
    since: float
    number: int | None = None
    listener: DeliveryListener | None = None


@dataclass(slots=True)
class TopicQueue:
    """State of one topic: its messages in flight, and how it may send. The backlog's lock protects it.

    Attributes:
        topic: Its name.
        pace: Limits the speed of replay from disk.
        flights: Unconfirmed messages by token, in the order of sending.
        flight_bytes: Size of the messages in librdkafka, whether they are on disk as well or not.
        is_full: Whether `memory_bytes` was reached and Kafka has confirmed nothing since.
        listeners: Listeners of messages that wait on disk, by number, in ascending order.
        draining: Whether messages have failed: nothing is sent until all are answered, then the oldest is first.
    """

    topic: str
    pace: SendThrottle
    flights: dict[int, Flight] = field(default_factory=dict)
    flight_bytes: int = 0
    is_full: bool = False
    draining: bool = False
    listeners: dict[int, DeliveryListener] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Limits of the memory and disk that waiting messages may take.

    Attributes:
        memory_bytes: Size limit of a topic's messages in librdkafka; the message that reaches it is still sent.
        memory_seconds: Time in memory after which a message is written to disk.
        replay_bytes_per_second: Replay speed from disk, for each topic.
        jitter: Returns the random wait before a replay, seconds.
    """

    memory_bytes: int
    memory_seconds: float
    replay_bytes_per_second: float
    jitter: Callable[[], float]


class SpoolBacklog:
    """Sends messages at once while Kafka confirms; else stores them, also on disk, and sends them later. Thread-safe.

    Messages of a topic are sent in the order of `send`: while some wait on disk, new ones are stored after them.
    Delivery is at least once.

    Args:
        producer: Made with the properties `ENDLESS`.
        disk: The spool, opened with every topic that is used.
        limits: Limits of memory and disk.
        counts: Counts of lost and waiting messages.
        clock: Unix nanoseconds.
        monotonic: Monotonic seconds.
    """

    def __init__(
        self,
        producer: Kafka,
        disk: DiskSpool,
        limits: SpoolLimits,
        counts: SpoolCounts,
        *,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer, self._disk, self._limits, self._counts = producer, disk, limits, counts
        self._clock, self._monotonic = clock, monotonic
        rate = limits.replay_bytes_per_second
        self._queues = {topic: TopicQueue(topic, SendThrottle(rate, limits.jitter)) for topic in disk.topics}
        self._lock = threading.RLock()
        self._answers: deque[tuple[str, int, Undelivered | None]] = deque()
        self.wake = threading.Event()
        """Set when there are answers to poll for."""
        self._tokens = 0

    def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, on_delivery: DeliveryListener | None = None
    ) -> None:
        """Accept a message; never blocks for long, never raises.

        `on_delivery` is called once Kafka has the message, refuses it for good, or it is lost here; it must not call
        back. A message that waits on disk at the end is sent after the next start, without it.
        """
        with self._lock:
            self._process_reports()
            queue, record = self._queues[topic], SpooledMessage(self._clock(), key, value)
            if self._may_send(queue):
                self._produce(queue, record, None, on_delivery)
            else:
                # Messages in flight first, so that the order on disk is that of `send`.
                self._spill(queue)
                self._keep(queue, record, on_delivery)
        self.wake.set()

    @property
    def idle(self) -> bool:
        """Whether Kafka has confirmed everything."""
        with self._lock:
            return not any(queue.flights for queue in self._queues.values()) and not self._disk.messages

    @property
    def behind(self) -> bool:
        """Whether messages on disk have not been passed to librdkafka."""
        with self._lock:
            return any(self._disk.lane(topic).unread for topic in self._queues)

    def on_disk(self) -> tuple[int, int]:
        """Bytes of the segments, and messages in them that Kafka has not confirmed."""
        with self._lock:
            return self._disk.size_bytes, self._disk.messages

    def poll(self, timeout_seconds: float) -> None:
        """Wait for Kafka's answers within a time limit and act on them; the daemon calls it in a loop."""
        self._producer.poll(timeout_seconds)
        with self._lock:
            self._process_reports()
            now = self._monotonic()
            self._disk.expire(self._clock())
            for queue in self._queues.values():
                self._report_lost(queue)
                self._check_silence(queue, now)
                self._restart_from_oldest(queue, now)
                self._replay(queue, now)
            files = self._disk.unsynced()
        self._disk.sync(files)

    def close(self, timeout_seconds: float) -> int:
        """Wait for Kafka within a time limit, or not at all if it is away; unconfirmed messages stay on disk.

        Returns:
            The number of messages on disk.
        """
        away = any(queue.pace.is_suspended for queue in self._queues.values())
        self._producer.close(min(timeout_seconds, AWAY_FLUSH_SECONDS) if away else timeout_seconds)
        with self._lock:
            self._process_reports()
            self._spill_all()
            left = self._disk.messages
        self._disk.close()
        return left

    def _may_send(self, queue: TopicQueue) -> bool:
        """Whether a message may be sent at once: none of its topic waits on disk, and Kafka was not silent."""
        queue.is_full = queue.is_full or queue.flight_bytes >= self._limits.memory_bytes
        return not (queue.is_full or queue.draining or queue.pace.is_suspended or self._disk.lane(queue.topic).unread)

    def _produce(
        self, queue: TopicQueue, record: SpooledMessage, number: int | None, listener: DeliveryListener | None = None
    ) -> None:
        self._tokens += 1
        queue.flights[self._tokens] = Flight(record, self._monotonic(), number, listener)
        queue.flight_bytes += record.size_bytes
        answer = partial(self._answered, queue.topic, self._tokens)
        self._producer.send(queue.topic, key=record.key, value=record.value, on_delivery=answer)

    def _answered(self, topic: str, token: int, reason: Undelivered | None) -> None:
        """Queue a delivery report; librdkafka may call this on any thread."""
        self._answers.append((topic, token, reason))

    def _process_reports(self) -> None:
        """Process the delivery reports of messages."""
        while self._answers:
            topic, token, reason = self._answers.popleft()
            queue = self._queues[topic]
            if reason is not None and not reason.final:
                # Kafka may take the message later, but those after it must wait: let all in flight be answered, then
                # read again from the oldest. Example: 1 and 3 of the messages 1 2 3 failed. All three are on disk; 2
                # is settled there. `_restart_from_oldest` rewinds, and 1 and 3 are sent again.
                # Before the flight is removed, so that it is written to disk in its place in the order.
                self._spill(queue)
                queue.draining = True
            flight = queue.flights.pop(token)
            queue.flight_bytes -= flight.record.size_bytes
            if reason is None:
                queue.is_full = False
                queue.pace.confirmed(self._monotonic())
                self._confirmed(queue, flight)
            elif reason.final:
                self._counts.drop("refused", 1)
                self._disk.lane(topic).settle(NOT_ON_DISK if flight.number is None else flight.number)
                if flight.listener is not None:
                    flight.listener(reason)
            else:
                self._requeue_failed(queue, flight)

    def _confirmed(self, queue: TopicQueue, flight: Flight) -> None:
        if flight.number is not None and flight.number != NOT_ON_DISK:
            self._disk.lane(queue.topic).settle(flight.number)
            self._counts.replayed.inc()
        if flight.listener is not None:
            flight.listener(None)

    def _requeue_failed(self, queue: TopicQueue, flight: Flight) -> None:
        """Handle a failed message: it is on disk and is read again, unless it could not be written or was dropped."""
        if flight.number == NOT_ON_DISK:
            self._counts.drop("disk", 1)
        elif flight.number is not None and not self._disk.lane(queue.topic).holds(flight.number):
            self._counts.drop("bound", 1)
        elif flight.number is not None and flight.listener is not None:
            queue.listeners[flight.number] = flight.listener
            return
        if flight.listener is not None:
            flight.listener(Undelivered("not written to disk, or dropped from it"))

    def _spill_all(self) -> None:
        for queue in self._queues.values():
            self._spill(queue)

    def _spill(self, queue: TopicQueue) -> None:
        """Write messages that are in memory only to disk, oldest first; librdkafka continues to send them."""
        alone = [flight for flight in queue.flights.values() if flight.number is None]
        for flight in alone:
            number = self._store(queue, flight.record)
            flight.number = NOT_ON_DISK if number is None else number
        if alone:
            # Messages in memory only were sent after all on disk had been read, so these count as read as well.
            self._disk.lane(queue.topic).skip()

    def _keep(self, queue: TopicQueue, record: SpooledMessage, listener: DeliveryListener | None) -> None:
        number = self._store(queue, record)
        if number is None:
            self._counts.drop("disk", 1)
        if listener is not None and number is None:
            listener(Undelivered("not written to disk"))
        elif listener is not None and number is not None:
            queue.listeners[number] = listener

    def _report_lost(self, queue: TopicQueue) -> None:
        """Answer for messages that the disk has dropped, because of its bound or their age."""
        lost = [number for number in queue.listeners if not self._disk.lane(queue.topic).holds(number)]
        for number in lost:
            queue.listeners.pop(number)(Undelivered("dropped from disk"))

    def _store(self, queue: TopicQueue, record: SpooledMessage) -> int | None:
        number = self._disk.append(queue.topic, record)
        if number is not None:
            self._counts.written.inc()
            queue.pace.granted(record.size_bytes)
        return number

    def _check_silence(self, queue: TopicQueue, now: float) -> None:
        """Write messages to disk, and stop sending new ones, if Kafka has not answered for `memory_seconds`."""
        oldest = next(iter(queue.flights.values()), None)
        if oldest is not None and now - oldest.since > self._limits.memory_seconds:
            self._spill(queue)
            queue.pace.suspended()

    def _restart_from_oldest(self, queue: TopicQueue, now: float) -> None:
        """Restart with the oldest message, after all in flight were answered and some were refused."""
        if queue.draining and not queue.flights:
            queue.draining = False
            queue.pace.failed(now)
            self._disk.lane(queue.topic).rewind()

    def _replay(self, queue: TopicQueue, now: float) -> None:
        """Send messages from disk, as long as the window and the throttle allow it."""
        while not queue.draining and self._has_room(queue, now):
            found = self._disk.read(queue.topic)
            if found is None:
                return
            number, record = found
            queue.pace.spent(record.size_bytes)
            self._produce(queue, record, number, queue.listeners.pop(number, None))

    @staticmethod
    def _has_room(queue: TopicQueue, now: float) -> bool:
        limit = 1 if queue.is_full else WINDOW_MESSAGES
        return len(queue.flights) < limit and queue.pace.allows(now, in_flight=len(queue.flights))
