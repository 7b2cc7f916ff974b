"""The assigned partitions: how far each has been read, and the time at which it may be exposed.

`Intake` notes each batch here, and gives the store the limits of `ages`.

A partition is exposed after all messages have been read that it had at assignment. A scrape before that would see
counters fall, and `increase()` would count everything again. Without a consumer group one series may be in several
partitions, so all partitions that were assigned together are exposed together. The partitions of a topic that has grown
within one time-to-live are exposed together, too, and an added one not before those that were assigned earlier.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from kernelcast.bridge.partitions.broker_clock import BrokerClock
from kernelcast.bridge.partitions.contact import Contact
from kernelcast.bridge.partitions.gates import openable
from kernelcast.bridge.partitions.partition import UNKNOWN_OFFSET, Key, Partition
from kernelcast.bridge.partitions.series_ages import SeriesAges
from kernelcast.bridge.tables.columns import Int64Array

NO_OFFSET: Final = 2**62
"""`taken_at` of a partition whose end is not known yet: no message counts as written after the takeover."""


class Ownership:
    """State of the assigned partitions. Only the consuming thread changes it.

    Attributes:
        stable: Whether the group has answered since the last change; an empty assignment is an answer.
        read_at_seconds: When a message was last read, by a monotonic clock.
        topic_ids: Kafka's ids of topics, where it has them.
        clock: Kafka's, from the messages read.
        ages: Limits of the ages of series.
    """

    def __init__(self, *, joint: bool = False, ttl_seconds: float = 300.0) -> None:
        """Start without partitions.

        Args:
            joint: Whether a series may be in several partitions, so that they are exposed together.
            ttl_seconds: How long an outage of Kafka counts after its end.
        """
        self._joint, self._ttl_seconds = joint, ttl_seconds
        self._partitions: dict[Key, Partition] = {}
        self._numbers: dict[Key, int] = {}
        self._judged_to: dict[Key, int] = {}
        self.topic_ids: dict[str, str] = {}
        self.clock = BrokerClock()
        self.ages = SeriesAges(self._partitions, self.clock, joint=joint, ttl_seconds=ttl_seconds)
        self._cohort = 0
        self.read_at_seconds = 0.0
        self.stable = False
        self._cluster_answered_at: float | None = None
        self._cluster_is_away = False

    def number(self, key: Key) -> int:
        """Return a partition's number in the store; it never changes."""
        return self._numbers.setdefault(key, len(self._numbers))

    def get(self, key: Key) -> Partition | None:
        """Return the state of a partition; None if it is not assigned."""
        return self._partitions.get(key)

    def owned(self) -> list[Partition]:
        """Return all assigned partitions."""
        return list(self._partitions.values())

    def next_cohort(self) -> None:
        """Start a new assignment: its partitions are exposed independently of earlier ones."""
        self._cohort += 1

    def assign(self, key: Key, *, start: int | None, gate: int | None, now_seconds: float = 0.0) -> Partition:
        """Take a partition over.

        Args:
            key: Topic and partition.
            start: The first offset to be read; negative for the beginning, None if Kafka has not answered yet.
            gate: The high watermark; None if Kafka has not answered yet.
            now_seconds: Time of a monotonic clock.
        """
        partition = Partition(key, self.number(key), UNKNOWN_OFFSET if start is None else start, gate)
        partition.waits, partition.cohort, partition.moved_at_seconds = start is None, self._cohort, now_seconds
        partition.judged_to = self._judged_to.get(key, 0)
        self._partitions[key] = partition
        self.learn_gate(partition, gate)
        return partition

    def learn_gate(self, partition: Partition, gate: int | None) -> None:
        """Note the end of a partition.

        If we have read beyond that end, our offset belongs to a deleted log and all messages of the present log are
        new. If Kafka's topic id has not changed, the end of the log was lost instead (an unclean leader election).
        """
        partition.gate = gate
        if gate is not None and partition.judged_to > gate:
            partition.judged_to = gate if partition.key[0] in self.topic_ids else 0

    def identify(self, topic_ids: Mapping[str, str]) -> set[str]:
        """Note the ids of topics; returns the topics that were created again, and forgets their offsets."""
        created = {topic for topic, known in self.topic_ids.items() if topic_ids.get(topic, known) != known}
        self.topic_ids.update(topic_ids)
        self._judged_to = {key: offset for key, offset in self._judged_to.items() if key[0] not in created}
        return created

    def revoke(self, keys: Iterable[Key]) -> list[Partition]:
        """Remove partitions; returns the state of those that were assigned."""
        gone = [partition for key in keys if (partition := self._partitions.pop(key, None)) is not None]
        self._judged_to |= {partition.key: partition.judged_to for partition in gone}
        return gone

    def judged_before(self, key: Key, offset: int) -> None:
        """Note that a former owner has processed all messages before an offset."""
        partition = self._partitions.get(key)
        if partition is not None:
            partition.judged_to = max(partition.judged_to, offset)
            self.learn_gate(partition, partition.gate)

    def start_over(self, partition: Partition, first: int) -> bool:
        """Compare the first offset of a batch with the position; a lower offset means that the topic was created again.

        Returns:
            Whether it was created again; all offsets of the old log have been forgotten then.
        """
        if partition.waits or first >= partition.position:
            return False
        self.restart(partition, first)
        return True

    def restart(self, partition: Partition, first: int) -> None:
        """Forget the offsets of a deleted log; the new log is read from its first message."""
        partition.position = partition.high = first
        partition.gate = 0 if partition.passed else None
        partition.judged_to, partition.held_until = 0, UNKNOWN_OFFSET

    def advance(self, partition: Partition, *, position: int, append_ms: int, now_seconds: float) -> None:
        """Note the messages that were read.

        Args:
            partition: Their partition.
            position: The offset after the last message.
            append_ms: The newest append time of the batch.
            now_seconds: Time of a monotonic clock.
        """
        was_at_end = partition.at_end  # a partition that lagged shows by how much, not how its broker's clock differs
        partition.position = max(partition.position, position)
        partition.high = max(partition.high, partition.position)
        if not partition.waits:  # else they are read again from its start, and processed then
            partition.judged_to = max(partition.judged_to, partition.position)
        partition.newest_append_ms = max(partition.newest_append_ms, append_ms)
        partition.moved_at_seconds = self.read_at_seconds = now_seconds
        self.answered(partition, now_seconds)
        if partition.position >= partition.held_until:
            partition.held_until = UNKNOWN_OFFSET
        self.clock.note_read(append_ms, now_seconds)
        if was_at_end and partition.at_end:
            partition.behind_ms = self.clock.newest_append_ms - partition.newest_append_ms

    def note_newest(self, newest_ms: Mapping[Key, int]) -> None:
        """Note the newest append times of partitions, ours and those of others, from Kafka's answer.

        Kafka's clock advances by this even if nothing is read, because all of our series have moved to another replica.
        """
        for key, append_ms in newest_ms.items():
            partition = self._partitions.get(key)
            if partition is not None:
                partition.named_ms = append_ms
        self.clock.note(max(newest_ms.values(), default=0))
        self.note_appends(np.array(list(newest_ms.values()), np.int64))

    def note_appends(self, append_ms: Int64Array) -> None:
        """Note append times of messages, of any partition: Kafka takes messages again."""
        for partition in self._partitions.values():
            partition.contact.note_appends(append_ms)

    def answered(self, partition: Partition, now_seconds: float) -> None:
        """Note that Kafka has answered a fetch or a query for a partition."""
        partition.contact.answered(now_seconds, self._ttl_seconds)

    def refused(self, partition: Partition, now_seconds: float) -> None:
        """Note that Kafka has not answered a query for a partition."""
        began_ms, now_ms = self.clock.at(partition.contact.answered_at_seconds), self.clock.at(now_seconds)
        partition.contact.unanswered(began_ms=began_ms or 0.0, noticed_ms=now_ms or 0.0)

    def unanswered(self, now_seconds: float, max_seconds: float) -> list[Partition]:
        """Return exposed, non-empty partitions for which Kafka has not answered for at least some seconds."""
        return [
            partition
            for partition in self._partitions.values()
            if partition.passed
            and partition.newest_append_ms
            and now_seconds - partition.contact.answered_at_seconds >= max_seconds
        ]

    def note_cluster(self, now_seconds: float, *, answered: bool) -> None:
        """Note whether any broker has answered, which shows an outage to a bridge that has no partitions.

        A member of a consumer group loses its partitions in an outage that is longer than its session: it cannot know
        whether other members still reach Kafka and have taken them.
        """
        self._cluster_is_away = not answered
        if answered or self._cluster_answered_at is None:
            self._cluster_answered_at = now_seconds

    def outage_seconds(self, now_seconds: float) -> float:
        """Return the longest time for which Kafka has not answered for one of our partitions; 0 while it answers.

        Without partitions it is the time for which no broker has answered.
        """
        if not self._partitions and self._cluster_is_away and self._cluster_answered_at is not None:
            return now_seconds - self._cluster_answered_at
        return max((one.contact.outage_seconds(now_seconds) for one in self._partitions.values()), default=0.0)

    def jump(self, partition: Partition, *, to: int, high: int) -> None:
        """Note that messages are skipped.

        An exposed partition stays exposed. A hidden one waits for the present end, because its values may be older than
        those that Prometheus has seen from a former owner. No series expires before that end is reached: its next
        points come only now.

        Args:
            partition: The partition.
            to: The next offset to be read.
            high: The present end.
        """
        if partition.held_until < 0:
            partition.held_ms = partition.newest_append_ms
        partition.position, partition.high, partition.held_until = to, max(partition.high, high), high
        if not partition.passed:
            partition.gate = high

    def reached_end(self, key: Key, offset: int, now_seconds: float) -> None:
        """Note that a partition has been read to its end; a partition that is not assigned is ignored.

        The last message may be well before the end offset: transaction markers use offsets, and retention and
        compaction remove messages. So this opens the gate as well: everything that was there at assignment has been
        read.
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
        """Return the partitions that have caught up since the last call, and mark them as passed."""
        ready = self.ready_to_open(now_seconds)
        for partition in ready:
            partition.passed, partition.contact = True, Contact(now_seconds)
        return ready

    def ready_to_open(self, now_seconds: float) -> list[Partition]:
        """Return the partitions that have caught up since the last call of `opened`; see `openable`."""
        return openable(self._partitions.values(), now_seconds, joint=self._joint)

    def taken_at(self) -> dict[int, int]:
        """Return, by partition number, the offset of the first message that was written after its assignment."""
        return {one.number: NO_OFFSET if one.gate is None else one.gate for one in self._partitions.values()}

    def readiness(self) -> tuple[bool, str]:
        """Return whether membership is stable and every partition has caught up; if not, the reason."""
        if not self.stable:
            away = self._cluster_is_away and not self._partitions
            return False, "Kafka does not answer" if away else "partitions have not been assigned yet"
        behind = [partition for partition in self._partitions.values() if not partition.passed]
        if behind:
            messages = sum(partition.lag for partition in behind)
            total = len(self._partitions)
            return False, f"{len(behind)} of {total} partitions are catching up, about {messages} messages to go"
        return True, ""
