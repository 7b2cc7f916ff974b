"""Which partitions are ours, how far each has been read, and when what it holds may be shown.

Nothing of a partition is exposed before everything has been read that it held when it was assigned: a scrape in the
middle would show counters falling, and `increase()` would count everything again. Without a consumer group one series
may lie in several partitions, so there all that were assigned together are exposed together.

Ages are told by Kafka's own clock. A partition that still lags is judged by the newest append time that was read from
it, so lag expires nothing. One that has been read to its end is judged by what Kafka's clock must show by now at least:
an append time, plus the time that has passed here since it was read. The local wall clock is never asked.

Series move between partitions when a topic gets more of them, or when a producer chooses them otherwise. The old
partition still holds the last values from before the move. A replica that reads it again must not expose them beside
the live ones, so the silence of a partition that has been read to its end is measured by append times alone: from its
own newest to the newest of all partitions, those of other replicas included. The partitions of a topic that has grown
within one time-to-live are exposed together.

Time in which Kafka does not answer for a partition is no silence of its series (`contact`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kernelcast.bridge.partitions.contact import Contact
from kernelcast.bridge.partitions.partition import UNKNOWN_OFFSET, Key, Partition

STUCK_SECONDS: Final = 60.0
"""So long the others wait for a partition of which nothing can be read. What was written meanwhile is newer than what
it holds, as long as writers export more often."""


class Ownership:
    """The assigned partitions.

    Attributes:
        stable: Whether the group has given an answer since the last change; an empty assignment is an answer.
        read_at_seconds: When a message was last read; a monotonic clock.
        topic_ids: Kafka's ids of topics, where it has them.
    """

    def __init__(self, *, joint: bool = False, ttl_seconds: float = 300.0) -> None:
        """Own nothing yet.

        Args:
            joint: Whether a series may lie in several partitions, so that they are exposed together.
            ttl_seconds: How long an outage of Kafka counts after it.
        """
        self._joint, self._ttl_seconds = joint, ttl_seconds
        self._partitions: dict[Key, Partition] = {}
        self._numbers: dict[Key, int] = {}
        self._judged_to: dict[Key, int] = {}
        self.topic_ids: dict[str, str] = {}
        self._cohort = 0
        self._broker_ms: float | None = None
        self._broker_seen_at_seconds = 0.0
        self._newest_append_ms = 0
        self.read_at_seconds = 0.0
        self.stable = False

    @property
    def newest_append_ms(self) -> int:
        """The newest append time known of any partition; 0 before the first."""
        return self._newest_append_ms

    def number(self, key: Key) -> int:
        """A partition's number in the store; the same for ever."""
        return self._numbers.setdefault(key, len(self._numbers))

    def get(self, key: Key) -> Partition | None:
        """A partition, if it is ours."""
        return self._partitions.get(key)

    def owned(self) -> list[Partition]:
        """All that are ours."""
        return list(self._partitions.values())

    def next_cohort(self) -> None:
        """Begin a new assignment: what is assigned from now on is exposed apart from what was before."""
        self._cohort += 1

    def assign(self, key: Key, *, start: int | None, gate: int | None, now_seconds: float = 0.0) -> Partition:
        """Take a partition over.

        Args:
            key: Topic and partition.
            start: The first offset to be read; negative for the beginning, None where Kafka has not said it yet.
            gate: The high watermark, None where it could not be asked for.
            now_seconds: A monotonic clock.
        """
        partition = Partition(key, self.number(key), UNKNOWN_OFFSET if start is None else start, gate)
        partition.waits, partition.cohort, partition.moved_at_seconds = start is None, self._cohort, now_seconds
        partition.judged_to = self._judged_to.get(key, 0)
        self._partitions[key] = partition
        self.learn_gate(partition, gate)
        return partition

    def learn_gate(self, partition: Partition, gate: int | None) -> None:
        """Note where a partition ends.

        An offset beyond that is of a log that has gone, and all of the present one is new; unless Kafka's id says that
        the topic is the same: then its end has been lost (an unclean leader election).
        """
        partition.gate = gate
        if gate is not None and partition.judged_to > gate:
            partition.judged_to = gate if partition.key[0] in self.topic_ids else 0

    def identify(self, topic_ids: Mapping[str, str]) -> set[str]:
        """Note the ids of topics; gives those that were created again, of which remembered offsets are forgotten."""
        created = {topic for topic, known in self.topic_ids.items() if topic_ids.get(topic, known) != known}
        self.topic_ids.update(topic_ids)
        self._judged_to = {key: offset for key, offset in self._judged_to.items() if key[0] not in created}
        return created

    def begin_at(self, key: Key, offset: int) -> int:
        """Have a partition that has not been read yet begin at another offset, which is given back."""
        self._partitions[key].position = offset
        return offset

    def revoke(self, keys: Iterable[Key]) -> list[Partition]:
        """Give partitions up; returns those that were ours."""
        gone = [partition for key in keys if (partition := self._partitions.pop(key, None)) is not None]
        self._judged_to.update({partition.key: partition.judged_to for partition in gone})
        return gone

    def judged_before(self, key: Key, offset: int) -> None:
        """Note that a former owner has judged all messages before an offset."""
        partition = self._partitions.get(key)
        if partition is not None:
            partition.judged_to = max(partition.judged_to, offset)
            self.learn_gate(partition, partition.gate)

    def start_over(self, partition: Partition, first: int) -> bool:
        """Note where a batch begins; before what was read already, the topic has been made anew.

        Returns:
            Whether it was: nothing that is known of the old one's offsets holds any more.
        """
        if partition.waits or first >= partition.position:
            return False
        self.restart(partition, first)
        return True

    def restart(self, partition: Partition, first: int) -> None:
        """Forget the offsets of a log that has gone; another one is read from its first message on."""
        partition.position = partition.high = first
        partition.gate = 0 if partition.passed else None
        partition.judged_to, partition.held_until = 0, UNKNOWN_OFFSET

    def advance(self, partition: Partition, *, position: int, append_ms: int, now_seconds: float) -> None:
        """Note what was read.

        Args:
            partition: From which partition.
            position: The offset after the last message.
            append_ms: The newest append time of the batch.
            now_seconds: A monotonic clock.
        """
        partition.position = max(partition.position, position)
        partition.high = max(partition.high, partition.position)
        partition.judged_to = max(partition.judged_to, partition.position)
        partition.newest_append_ms = max(partition.newest_append_ms, append_ms)
        partition.moved_at_seconds = self.read_at_seconds = now_seconds
        self.answered(partition, now_seconds)
        if partition.position >= partition.held_until:
            partition.held_until = UNKNOWN_OFFSET
        self._newest_append_ms = max(self._newest_append_ms, append_ms)
        if partition.at_end:
            partition.behind_ms = self._newest_append_ms - partition.newest_append_ms
        reading = self.broker_ms(now_seconds)
        if reading is None or self._newest_append_ms > reading:
            self._broker_ms, self._broker_seen_at_seconds = float(self._newest_append_ms), now_seconds

    def note_newest(self, newest_ms: Mapping[Key, int]) -> None:
        """Note the newest append times of partitions, ours and others, as Kafka names them.

        This gives the time where nothing is read: all series of our partitions may have moved to another replica's.
        """
        for key, append_ms in newest_ms.items():
            partition = self._partitions.get(key)
            if partition is not None:
                partition.named_ms = append_ms
        self._newest_append_ms = max(self._newest_append_ms, *newest_ms.values(), 0)

    def answered(self, partition: Partition, now_seconds: float) -> None:
        """Note that Kafka has answered for a partition, to a fetch or to a question."""
        partition.contact.answered(now_seconds, self._ttl_seconds)

    def unanswered(self, now_seconds: float, max_seconds: float) -> list[Partition]:
        """Exposed partitions of which messages have been read, without an answer for at least some seconds."""
        return [
            partition
            for partition in self._partitions.values()
            if partition.passed
            and partition.newest_append_ms
            and now_seconds - partition.contact.answered_at_seconds >= max_seconds
        ]

    def jump(self, partition: Partition, *, to: int, high: int) -> None:
        """Note that messages are skipped.

        What is exposed stays; what is not yet waits for the present end, as its values may be older than those that
        Prometheus has seen from a former owner. No series expires before that end: its next points come only now.

        Args:
            partition: Where.
            to: The next offset to be read.
            high: The present end.
        """
        if partition.held_until < 0:
            partition.held_ms = partition.newest_append_ms
        partition.position, partition.high, partition.held_until = to, max(partition.high, high), high
        if not partition.passed:
            partition.gate = high

    def reached_end(self, key: Key, offset: int, now_seconds: float) -> None:
        """Note that Kafka has nothing more in a partition; one that is not ours is passed over.

        The last message may stand well before the end: markers of transactions take offsets, retention and compaction
        take messages away. So this opens the gate, too: everything that was there at assignment has been read.
        """
        partition = self._partitions.get(key)
        if partition is not None and not partition.waits:
            partition.position = max(partition.position, offset)
            partition.high = max(partition.high, partition.position)
            self.answered(partition, now_seconds)
            partition.gate = partition.position if partition.gate is None else min(partition.gate, partition.position)
            if partition.position >= partition.held_until:
                partition.held_until = UNKNOWN_OFFSET

    def opened(self, now_seconds: float) -> list[Partition]:
        """Partitions that have caught up since the last call, now marked as passed."""
        ready = self.ready_to_open(now_seconds)
        for partition in ready:
            partition.passed, partition.contact = True, Contact(now_seconds)
        return ready

    def ready_to_open(self, now_seconds: float) -> list[Partition]:
        """Partitions that have caught up since the last call of `opened`."""
        hidden = [partition for partition in self._partitions.values() if not partition.passed]
        ready = [partition for partition in hidden if partition.caught_up]
        if ready:
            late = {
                self._together(partition)
                for partition in hidden
                if not partition.caught_up and now_seconds - partition.moved_at_seconds < STUCK_SECONDS
            }
            apart = set() if self._joint else late - self._grown()
            ready = [partition for partition in ready if self._together(partition) not in late - apart]
        return ready

    def _together(self, partition: Partition) -> tuple[int, str]:
        """What partitions that are exposed together have in common: their assignment, and in a group their topic."""
        return partition.cohort, "" if self._joint else partition.key[0]

    def _grown(self) -> set[tuple[int, str]]:
        """Assignments of topics that have grown within one time-to-live: their series may have moved."""
        return {self._together(partition) for partition in self._partitions.values() if partition.young}

    def broker_ms(self, now_seconds: float) -> float | None:
        """What Kafka's clock shows at least; None before the first message."""
        if self._broker_ms is None:
            return None
        return self._broker_ms + (now_seconds - self._broker_seen_at_seconds) * 1000.0

    def reference_ms(self, now_seconds: float) -> dict[int, int]:
        """By partition number, what Kafka's clock shows at least for what has been read of it."""
        broker_ms = self.broker_ms(now_seconds)
        references = {}
        for partition in self._partitions.values():
            reference = broker_ms if partition.at_end and broker_ms is not None else partition.newest_append_ms
            references[partition.number] = int(partition.held_ms if partition.held_until >= 0 else reference)
        return references

    def oldest_ms(self, ttl_ms: int, now_seconds: float) -> dict[int, int]:
        """By partition number, the append time before which a series has expired."""
        silent_ms = self._silent_ms(now_seconds)
        return {
            number: reference - silent_ms[number] - ttl_ms
            for number, reference in self.reference_ms(now_seconds).items()
        }

    def _silent_ms(self, now_seconds: float) -> dict[int, int]:
        """By partition number, for how long Kafka has not answered for it."""
        return {
            partition.number: partition.contact.silent_ms(now_seconds, self._ttl_seconds) if partition.passed else 0
            for partition in self._partitions.values()
        }

    def heard_ms(self, now_seconds: float) -> dict[int, int]:
        """By partition number, the append time up to which its series would have been heard if they had said anything.

        While a partition is read, that is its newest message. Once all of it is read, it is the newest append time of
        any partition: when all are silent, Kafka itself may be. When a partition was read does not count, as it may be
        read again long after. A broker's clock that is behind the others' is allowed for, once a message of its
        partition has shown that. Where a series may lie in several, it has been heard only up to where all have been
        read.
        """
        heard, silent_ms = {}, self._silent_ms(now_seconds)
        for partition in self._partitions.values():
            if partition.held_until >= 0:
                heard[partition.number] = partition.held_ms - silent_ms[partition.number]
            elif partition.newest_append_ms or not partition.at_end:
                elsewhere_ms = self._newest_append_ms - partition.behind_ms if partition.silent else 0
                newest_ms = max(partition.newest_append_ms, elsewhere_ms)
                heard[partition.number] = newest_ms - silent_ms[partition.number]
        return dict.fromkeys(heard, min(heard.values())) if self._joint and heard else heard

    def readiness(self) -> tuple[bool, str]:
        """Whether membership is stable and every partition has caught up; and what is missing."""
        if not self.stable:
            return False, "partitions have not been assigned yet"
        behind = [partition for partition in self._partitions.values() if not partition.passed]
        if behind:
            messages = sum(partition.lag for partition in behind)
            total = len(self._partitions)
            return False, f"{len(behind)} of {total} partitions are catching up, about {messages} messages to go"
        return True, ""


def keys_of(partitions: Sequence[object]) -> list[Key]:
    """Topic and partition of each of confluent_kafka's TopicPartitions."""
    return [(str(getattr(item, "topic")), int(getattr(item, "partition"))) for item in partitions]  # noqa: B009  untyped library
