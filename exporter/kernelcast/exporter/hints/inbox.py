"""Hints from Kafka to the programs of this node.

Every exporter reads all partitions from their beginning and commits nothing: the topic is compacted, so its content is
the set of current hints. Hints that were superseded before this exporter started are skipped: delivery begins once the
reader has come to the end that it saw at its start.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kernelcast.runtime.kafka.clients import DeadLetterSink, ReceivedMessage
from kernelcast.runtime.kafka.replay import ReplayConsumer
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import BrokerError, EventError
from kernelcast.wire.events import Hint, hint_from
from kernelcast.wire.topics import HINTS

OUTCOMES: Final = ("delivered", "elsewhere", "expired", "superseded", "withdrawn", "invalid")
FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 30.0
READ_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 5.0
"""Without a message for this time the reader is at the end, even where the last offsets hold no message."""
MAX_MESSAGES: Final = 500

_log = get_logger(__name__)


class Programs(Protocol):
    """The node's processes."""

    def deliver(self, hint: Hint) -> int:
        """Queue a hint for the processes it fits, now and until it expires; returns for how many now."""
        ...

    def withdraw(self, key: str) -> None:
        """Keep the hint of this key for no process that comes later."""
        ...


class Inbox(Protocol):
    """Takes the messages of one topic."""

    def take(self, message: ReceivedMessage) -> None:
        """Process one message."""
        ...

    def open(self) -> None:
        """Note that every message that was there at the start has been read."""
        ...


class HintInbox:
    """Decides about each hint that was read.

    Args:
        programs: Get the hints.
        dead_letters: Takes messages that are no hints.
        count: Called with the result of each.
        clock: Unix nanoseconds.
    """

    def __init__(
        self,
        programs: Programs,
        dead_letters: DeadLetterSink,
        *,
        count: Callable[[str], None],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._programs = programs
        self._dead_letters = dead_letters
        self._count = count
        self._clock = clock
        self._waiting: dict[bytes, Hint] | None = {}

    def take(self, message: ReceivedMessage) -> None:
        """Take in one message; until `open` is called the newest of each key waits."""
        key, value = message.key() or b"", message.value()
        if self._waiting is not None and self._waiting.pop(key, None) is not None:
            self._count("superseded")
        if value is None:
            self._count("withdrawn")
            self._programs.withdraw(key.decode(errors="replace"))
            return
        try:
            hint = hint_from(decode_event(value))
        except EventError as error:
            self._count("invalid")
            self._dead_letters.send(message, error)
            return
        if self._waiting is None:
            self._pass_on(hint)
        else:
            self._waiting[key or hint.key.encode(errors="replace")] = hint

    def open(self) -> None:
        """Pass on what waits, and from now on whatever comes."""
        waiting, self._waiting = self._waiting or {}, None
        for hint in waiting.values():
            self._pass_on(hint)

    def _pass_on(self, hint: Hint) -> None:
        if hint.expires_at_ns <= self._clock():
            self._count("expired")
            return
        self._count("delivered" if self._programs.deliver(hint) else "elsewhere")


class InboxByTopic:
    """Takes the messages of several topics, each with an inbox of its own."""

    def __init__(self, inboxes: Mapping[str, Inbox]) -> None:
        self._inboxes = dict(inboxes)

    def take(self, message: ReceivedMessage) -> None:
        """Pass one message on."""
        self._inboxes[message.topic() or ""].take(message)

    def open(self) -> None:
        """Note that every message that was there at the start has been read."""
        for inbox in self._inboxes.values():
            inbox.open()


class HintReader:
    """Reads topics until it is stopped; an unreachable broker is tried again at growing intervals.

    Args:
        connect: Makes a consumer.
        inbox: Makes the inbox that takes the messages, a new one for each connection.
        shutdown: Ends it.
        topics: The topics: hints, or what people and the site say about them. Those that do not exist are looked for
            again.
    """

    def __init__(
        self,
        connect: Callable[[], ReplayConsumer],
        inbox: Callable[[], Inbox],
        shutdown: Shutdown,
        topics: Sequence[str] = (HINTS.name,),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._inbox = inbox
        self._shutdown = shutdown
        self._topics = tuple(topics)
        self._monotonic = monotonic
        self._wait_seconds = FIRST_RETRY_SECONDS
        self._trouble = "Kafka has not answered yet"

    def ready(self) -> tuple[bool, str]:
        """Whether Kafka answered when it was asked last; known even where the exporter has nothing to send."""
        trouble = self._trouble
        return not trouble, trouble

    def run(self) -> None:
        """Read; returns when asked to stop."""
        while not self._shutdown.requested:
            reader = self._connect()
            try:
                self._read(reader)
            except BrokerError as error:
                self._trouble = str(error)
                _log.warning(
                    "hints cannot be read", topics=self._topics, reason=str(error), retry_seconds=self._wait_seconds
                )
            except Exception as error:  # noqa: BLE001  one hint's oddity must not end all hints unnoticed
                _log.error(
                    "reading hints failed", topics=self._topics, error=repr(error), retry_seconds=self._wait_seconds
                )
            finally:
                reader.close()
            self._shutdown.wait(self._wait_seconds)
            self._wait_seconds = min(self._wait_seconds * 2, LONGEST_RETRY_SECONDS)

    def _read(self, reader: ReplayConsumer) -> None:
        """Read for as long as it works, or until a topic appears that did not exist."""
        found = {topic: reader.partitions(topic) for topic in self._topics}
        missing = [topic for topic, partitions in found.items() if not partitions]
        partitions = [partition for topic in found.values() for partition in topic]
        self._trouble = ""
        if not partitions:
            return
        behind = Behind(reader, partitions)
        reader.assign(partitions)
        inbox, is_open, quiet_seconds = self._inbox(), False, 0.0
        look_at = self._monotonic() + LONGEST_RETRY_SECONDS
        while not self._shutdown.requested:
            if missing and self._monotonic() >= look_at:
                look_at = self._monotonic() + LONGEST_RETRY_SECONDS
                if any(reader.partitions(topic) for topic in missing):
                    return
            messages, _ = reader.consume(MAX_MESSAGES, READ_SECONDS)
            for message in messages:
                inbox.take(message)
                behind.passed(message)
            quiet_seconds = 0.0 if messages else quiet_seconds + READ_SECONDS
            if not is_open and (behind.none or quiet_seconds >= QUIET_SECONDS):
                is_open = True
                self._wait_seconds = FIRST_RETRY_SECONDS
                inbox.open()


class Behind:
    """The messages that were written before reading began and are not read yet; sets where each partition begins."""

    def __init__(self, reader: ReplayConsumer, partitions: Sequence[Any]) -> None:
        self._last: dict[tuple[str, int], int] = {}
        for partition in partitions:
            low, high = reader.watermarks(partition)
            partition.offset = low
            if high > low:
                self._last[partition.topic, partition.partition] = high - 1

    def passed(self, message: ReceivedMessage) -> None:
        """A message was read."""
        partition, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        if offset >= self._last.get(partition, offset + 1):
            del self._last[partition]

    @property
    def none(self) -> bool:
        """Everything was read."""
        return not self._last
