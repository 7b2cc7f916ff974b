"""Hints, outcomes, alerts and dead letters of a demo, read from Kafka by a thread of its own.

`state.Gatherer` takes copies of the newest ones, on the main thread.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.runtime.threads import Worker
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import BrokerError, EventError
from kernelcast.wire.recent_ids import RecentIds, event_key
from kernelcast.wire.topics import ALERTS, DEADLETTER, HINTS, OUTCOMES

KEPT: Final = 1000
"""Events in memory; of more, the oldest is dropped."""
TOPICS: Final = (HINTS.name, OUTCOMES.name, ALERTS.name)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event, with its topic."""

    topic: str
    event: dict[str, Any]


class EventLog:
    """The newest events of this run. Its own thread adds them; any thread may read copies (`of`).

    Args:
        settings: Settings of the connection.
        since_ms: Time before which events belong to earlier runs, Unix milliseconds.
    """

    def __init__(self, settings: KafkaSettings, since_ms: int) -> None:
        self._settings = settings
        self._since_ms = since_ms
        self._events: deque[LoggedEvent] = deque(maxlen=KEPT)
        self._thread = Worker("demo-events", self._run)
        self._outcome_ids = RecentIds()
        self.dead_letters = 0

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._thread.stop(5)

    def of(self, topic: str) -> list[dict[str, Any]]:
        """The events of one topic, oldest first."""
        return [logged.event for logged in list(self._events) if logged.topic == topic]

    def _run(self) -> None:
        consumer = Consumer(self._settings, group_id="kernelcast-demo")
        try:
            partitions = [each for topic in (*TOPICS, DEADLETTER.name) for each in consumer.partitions(topic)]
            for partition in partitions:
                partition.offset = consumer.watermarks(partition)[0]
            consumer.assign(partitions)
            while not self._thread.stopping.is_set():
                self._add_messages(consumer)
        except BrokerError:
            return  # the broker is gone: the demo is ending, or its panel shows that nothing comes
        finally:
            consumer.close()

    def _add_messages(self, consumer: Consumer) -> None:
        messages, _ = consumer.consume(200, 0.3)
        for message in messages:
            if message.timestamp()[1] < self._since_ms:
                continue  # a broker of the user's own may hold events of earlier runs
            if message.topic() == DEADLETTER.name:
                self.dead_letters += 1
                continue
            try:
                event = decode_event(message.value() or b"")
            except EventError:
                continue  # the services count it and send it to the dead letters; the demo ignores it
            if message.topic() != OUTCOMES.name or self._outcome_ids.add(event_key(event)):
                self._events.append(LoggedEvent(str(message.topic()), event))
