"""Reads hints from Kafka and delivers them to the programs of this node; the loop also reads orders, alerts and policy.

Every exporter reads all partitions from their beginning and commits no offset: the topic is compacted, so its content
is the set of current hints. Hints that were superseded before this exporter started are skipped: delivery begins once
the reader has come to the end that it saw at its start.

`assembly.py` runs two `HintReader`s, each on a thread of its own: one for hints, one for orders, alerts and policy.
An inbox is used by its reader's thread only.
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
"""Results under which messages are counted."""
FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 30.0
"""The wait after a failure doubles from the first to the longest; missing topics are looked up at the longest."""
READ_SECONDS: Final = 1.0
"""Longest wait of one call of `consume`, and so for a stop request."""
MAX_MESSAGES: Final = 500
"""Messages of one call of `consume`."""

_log = get_logger(__name__)


class Programs(Protocol):
    """The node's processes; `programs.server.ProbeServer` in the daemon."""

    def deliver(self, hint: Hint) -> int:
        """Queue a hint for the matching processes, now and until it expires; return the number of those now."""
        ...

    def withdraw(self, key: str) -> None:
        """Remove the hint with this key, so that no process that connects later receives it."""
        ...


class Inbox(Protocol):
    """Processes the messages of one topic."""

    def receive(self, message: ReceivedMessage) -> None:
        """Process one message."""
        ...

    def caught_up(self) -> None:
        """Note that every message that was there at the start has been read."""
        ...


class HintInbox:
    """Decodes hints and delivers them.

    Until the topic has been read to its end (`caught_up`), the newest hint of each key is kept, and none is delivered.

    Args:
        programs: Receive the hints.
        dead_letters: Receives messages that cannot be decoded.
        count: Called with one of `OUTCOMES` for each message.
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

    def receive(self, message: ReceivedMessage) -> None:
        """Process one message; a message without a value withdraws the hint of its key."""
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
            self._deliver(hint)
        else:
            self._waiting[key or hint.key.encode(errors="replace")] = hint

    def caught_up(self) -> None:
        """Deliver the kept hints, and from now on each hint at once."""
        waiting, self._waiting = self._waiting or {}, None
        for hint in waiting.values():
            self._deliver(hint)

    def _deliver(self, hint: Hint) -> None:
        if hint.expires_at_ns <= self._clock():
            self._count("expired")
            return
        self._count("delivered" if self._programs.deliver(hint) else "elsewhere")


class InboxByTopic:
    """Passes each message to the inbox of its topic.

    Args:
        inboxes: Inbox by topic name.
    """

    def __init__(self, inboxes: Mapping[str, Inbox]) -> None:
        self._inboxes = dict(inboxes)

    def receive(self, message: ReceivedMessage) -> None:
        """Pass one message on."""
        self._inboxes[message.topic() or ""].receive(message)

    def caught_up(self) -> None:
        """Note that every message that was there at the start has been read."""
        for inbox in self._inboxes.values():
            inbox.caught_up()


class HintReader:
    """Reads topics until it is stopped; an unreachable broker is tried again at growing intervals.

    One thread calls `run`; the web server's threads call `ready`.

    Args:
        connect: Makes a consumer.
        inbox: Makes the inbox for the messages, a new one for each connection, because reading starts again at the
            topics' beginning.
        shutdown: `run` returns once a stop is requested.
        topics: Names of the topics; a topic that does not exist is looked up again.
        monotonic: Monotonic seconds.
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
        """Return whether the last connection to Kafka worked, and the reason if not."""
        trouble = self._trouble
        return not trouble, trouble

    def run(self) -> None:
        """Read until a stop is requested; failures are logged and retried."""
        while not self._shutdown.requested:
            reader: ReplayConsumer | None = None
            try:
                reader = self._connect()
                self._read(reader)
            except BrokerError as error:
                self._trouble = str(error)
                _log.warning(
                    "hints cannot be read", topics=self._topics, reason=str(error), retry_seconds=self._wait_seconds
                )
            except Exception as error:  # noqa: BLE001  one bad hint or file must not end all hints unnoticed
                self._trouble = f"reading hints failed: {error!r}"
                _log.error(
                    "reading hints failed", topics=self._topics, error=repr(error), retry_seconds=self._wait_seconds
                )
            finally:
                if reader is not None:
                    reader.close()
            self._shutdown.wait(self._wait_seconds)
            self._wait_seconds = min(self._wait_seconds * 2, LONGEST_RETRY_SECONDS)

    def _read(self, reader: ReplayConsumer) -> None:
        """Read until a stop is requested, a topic exists that was missing at the start, or a partition became shorter.

        Raises:
            BrokerError: Kafka does not answer.
        """
        found = {topic: reader.partitions(topic) for topic in self._topics}
        missing = [topic for topic, partitions in found.items() if not partitions]
        partitions = [partition for topic in found.values() for partition in topic]
        self._trouble = ""
        if not partitions:
            return
        backlog = UnreadBacklog(reader, partitions)
        reader.assign(partitions)
        inbox, is_open = self._inbox(), False
        lookup_at = self._monotonic() + LONGEST_RETRY_SECONDS
        while not self._shutdown.requested:
            if self._monotonic() >= lookup_at:
                lookup_at = self._monotonic() + LONGEST_RETRY_SECONDS
                if backlog.is_cut or any(reader.partitions(topic) for topic in missing):
                    return
            messages, _ = reader.consume(MAX_MESSAGES, READ_SECONDS)
            for message in messages:
                inbox.receive(message)
                backlog.mark_read(message)
            for end in reader.ends():
                backlog.mark_end(end)
            if not is_open and backlog.is_empty:
                is_open = True
                self._wait_seconds = FIRST_RETRY_SECONDS
                inbox.caught_up()


class UnreadBacklog:
    """Tracks which partitions are still behind the end that they had when reading began.

    It also sets each partition's offset to its first message. Example: low 3, high 7: reading starts at offset 3, and
    the partition has caught up once offset 6 was read.
    """

    def __init__(self, reader: ReplayConsumer, partitions: Sequence[Any]) -> None:
        self._last: dict[tuple[str, int], int] = {}
        self._cut: set[tuple[str, int]] = set()  # ended before that end, at the last time
        for partition in partitions:
            low, high = reader.watermarks(partition)
            partition.offset = low
            if high > low:
                self._last[partition.topic, partition.partition] = high - 1

    def mark_read(self, message: ReceivedMessage) -> None:
        """Record that a message was read."""
        partition, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        if offset >= self._last.get(partition, offset + 1):
            del self._last[partition]

    def mark_end(self, end: Any) -> None:
        """Record that a partition was read to an end; a new leader may report one before that of the start."""
        partition = end.topic, end.partition
        if end.offset > self._last.get(partition, end.offset):
            del self._last[partition]
        elif partition in self._last:
            self._cut.add(partition)

    @property
    def is_empty(self) -> bool:
        """Whether all partitions have caught up."""
        return not self._last

    @property
    def is_cut(self) -> bool:
        """Whether a partition has ended before: a new leader is behind for now, or the topic was made again."""
        return not self._cut.isdisjoint(self._last)
