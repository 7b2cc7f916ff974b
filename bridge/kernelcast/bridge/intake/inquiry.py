"""Questions to Kafka beside reading: where partitions begin and end, its time, the ids of topics, the group's state."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.delta.beginning import Surroundings
from kernelcast.bridge.delta.deltas import Deltas
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.partitions.bounds import Answering, Bounds
from kernelcast.bridge.partitions.growth import PartitionGrowth
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.bridge.partitions.partition import Key, Partition
from kernelcast.wire.errors import BrokerError

REWIND_MARGIN_SECONDS: Final = 5.0
"""How much more than a time-to-live is read again, for messages that were on their way."""
IDS_SECONDS: Final = 10.0
"""Interval of the question for the ids of topics."""
SILENT_SECONDS: Final = 5.0
"""Time without a message after which Kafka is asked for its newest append time."""
STALE_SECONDS: Final = 1.0
"""Age of the newest append time at which it is asked for again before partitions are exposed."""
SHARE_OF_TIME_FOR_QUESTIONS: Final = 0.1
"""A broker that hangs takes seconds to be given up; whatever can be read is to be read meanwhile."""


class OffsetConsumer(Answering, Protocol):
    """The part of a Kafka consumer that is needed here."""

    def settled(self) -> bool:
        """Whether the group has given this member just what it has; False where it will say so unasked."""

    def seek(self, partition: TopicPartition) -> None:
        """Go on reading an assigned partition at another offset."""


class Inquiry:
    """Asks Kafka, and notes its answers in the ownership and the totals; for the consuming thread.

    While Kafka does not answer, questions take a bounded share of the time.

    Attributes:
        bounds: Where partitions begin and end.
        growth: Which partitions were added to topics.
    """

    def __init__(
        self,
        source: OffsetConsumer,
        ownership: Ownership,
        deltas: Deltas,
        instruments: Instruments,
        clock: Clock,
        *,
        ttl_ms: int,
    ) -> None:
        self._source, self._ownership, self._deltas = source, ownership, deltas
        self._instruments, self._clock, self._ttl_ms = instruments, clock, ttl_ms
        self._questions_due = self._ids_due = self._time_due = self._time_asked_at = 0.0
        self._stamped: set[str] = set()
        self._log = structlog.stdlib.get_logger("bridge.inquiry")
        self.bounds = Bounds(source)
        self.growth = PartitionGrowth()

    def starts(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Where one time-to-live ago was, by Kafka's clock where that is known, else by ours."""
        broker_ms = self._ownership.broker_ms(self._clock.monotonic())
        now_ns = self._clock.now_ns() if broker_ms is None else round(broker_ms * 1e6)
        return self.bounds.starts(keys, now_ns - self._ttl_ms * 1_000_000 - round(REWIND_MARGIN_SECONDS * 1e9))

    def offsets_since(self, keys: Sequence[Key], since_ms: int) -> dict[Key, int]:
        """The first offset of each partition at or after a time; negative where there is none or Kafka cannot say."""
        return self.bounds.starts(keys, since_ms * 1_000_000)

    def surroundings(self, topics: set[str]) -> Surroundings:
        """What is known of topics when some of their partitions are assigned."""
        numbers = {topic: self.growth.known(topic) or frozenset() for topic in topics}
        return Surroundings(self._ownership.newest_append_ms, numbers, self.offsets_since)

    def note_append_time(self, available: Mapping[str, bool]) -> None:
        """Note by topic whether Kafka stamps its messages, as they were read."""
        for topic, stamped in available.items():
            (self._stamped.add if stamped else self._stamped.discard)(topic)

    def learn_time(self, topics: set[str]) -> set[Key]:
        """Learn Kafka's newest append time of some topics; a producer's time from the future counts as now.

        The clock of this machine may be behind Kafka's, so it is not compared with times that Kafka has stamped.

        Returns:
            Partitions, ours and others, of which Kafka has named it.
        """
        self._time_asked_at, now_ms = self._clock.monotonic(), self._clock.now_ns() // 1_000_000
        newest_ms = self.bounds.newest_ms(topics) if topics else {}
        self._ownership.note_newest(
            {
                key: append_ms if key[0] in self._stamped else min(append_ms, now_ms)
                for key, append_ms in newest_ms.items()
            }
        )
        return set(newest_ms)

    def ask_for_time(self, owned: Sequence[Partition]) -> None:
        """Ask for the newest append time where nothing is read, so that what has moved to other replicas ends here.

        It also shows whether Kafka answers at all: without an answer nothing ends. This question has a share of the
        time of its own, so that others cannot keep it from being asked.
        """
        began_seconds = self._clock.monotonic()
        silent = began_seconds - self._ownership.read_at_seconds >= SILENT_SECONDS
        unanswered = self._ownership.unanswered(began_seconds, SILENT_SECONDS)
        if not (silent or unanswered) or began_seconds < self._time_due:
            return
        named = self.learn_time({partition.key[0] for partition in owned if partition.newest_append_ms})
        self._note_answers(unanswered, named)
        self._time_due = self._due_after(began_seconds)

    def ask_for_time_again(self, opened: Sequence[Partition]) -> None:
        """Ask for the newest append time right before partitions are exposed that took a while to catch up.

        The answer at their assignment is older than that, and this bridge may have read nothing but old messages.
        """
        began_seconds = self._clock.monotonic()
        stale = began_seconds - self._time_asked_at >= STALE_SECONDS
        if stale and began_seconds >= self._time_due:
            self.learn_time({partition.key[0] for partition in opened if partition.newest_append_ms})
            self._time_due = self._due_after(began_seconds)

    def _note_answers(self, asked: Sequence[Partition], named: set[Key]) -> None:
        """Note for which partitions Kafka has answered; those that have no newest append time are asked for their end.

        Brokers before Kafka 3.0 name none, and none is named of a partition that retention has emptied.
        """
        ends = self.bounds.gates([partition.key for partition in asked if partition.key not in named])
        now_seconds = self._clock.monotonic()
        for partition in asked:
            if partition.key in named or partition.key in ends:
                partition.high = max(partition.high, ends.get(partition.key, 0))
                self._ownership.answered(partition, now_seconds)
            else:
                partition.contact.failed = True

    def ask_again(self, partitions: Sequence[Partition]) -> None:
        """Ask again where that failed before; a partition that is read to its end needs no gate.

        Until Kafka has said where a partition is to be read from, it is read from its end, hidden.
        """
        began_seconds = self._clock.monotonic()
        if not partitions or began_seconds < self._questions_due:
            return
        starts = self.starts([partition.key for partition in partitions if partition.waits])
        gates = self.bounds.gates([p.key for p in partitions if not p.waits or p.key in starts])
        for partition in partitions:
            if partition.waits and partition.key in starts and partition.key in gates:
                self._begin(partition, starts[partition.key])
            self._ownership.learn_gate(partition, gates.get(partition.key))
            self._deltas.clamp(partition)
        self._budget(began_seconds)

    def ask_for_ids(self, owned: Sequence[Partition]) -> None:
        """Find out now and then whether topics have been deleted and created again: the offset need not show it."""
        began_seconds = self._clock.monotonic()
        if began_seconds >= max(self._ids_due, self._questions_due):
            self._ids_due = began_seconds + IDS_SECONDS
            self.identify({partition.key[0] for partition in owned})
            self.learn_partitions({partition.key[0] for partition in owned})
            self._budget(began_seconds)

    def identify(self, topics: set[str]) -> None:
        """Learn the ids of topics; one that was deleted and created again is read from its beginning."""
        topic_ids = self.bounds.topic_ids(topics)
        created = self._ownership.identify(topic_ids)
        self._deltas.identify(topic_ids)
        self.growth.forget(created)
        for partition in self._ownership.owned():
            if partition.key[0] in created:
                self._read_new_log(partition)

    def learn_partitions(self, topics: set[str]) -> None:
        """Find out whether partitions were added to some topics, of which we read a part."""
        partitions, now_seconds = self.bounds.partitions(), self._clock.monotonic()
        if not partitions:
            return
        unknown = [topic for topic in topics if self.growth.known(topic) is None]
        added = self.growth.note(partitions, now_seconds)
        for topic in unknown:
            keys = [key for key in partitions if key[0] == topic]
            if any(self._ownership.get(key) is None for key in keys):
                added += self.growth.note_starts(self.starts(keys), now_seconds)
        for key in added:
            if key[0] in topics:
                self._log.info("series that are new in an added partition are held", topic=key[0], partition=key[1])

    def _read_new_log(self, partition: Partition) -> None:
        topic, number = partition.key
        try:
            self._source.seek(TopicPartition(topic, number, OFFSET_BEGINNING))
        except BrokerError as error:
            self._log.warning("not read from its beginning", topic=topic, partition=number, reason=str(error))
        self._ownership.restart(partition, 0)
        self._deltas.start_over(partition, 0)
        self.note_restart(partition, 0)

    def note_restart(self, partition: Partition, first: int) -> None:
        """Count and log that a partition is of another log; the topic's id is asked for as soon as possible.

        Until it is known, snapshots would say that their totals are of the topic that has gone.
        """
        self._ids_due = 0.0
        topic, number = partition.key
        self._instruments.offset_restarts.labels(topic).inc()
        self._log.warning("offsets begin anew", topic=topic, partition=number, offset=first)

    def ask_whether_settled(self) -> None:
        """Ask the group where its protocol does not say that there is nothing (more) for this member."""
        began_seconds = self._clock.monotonic()
        if self._ownership.stable or began_seconds < self._questions_due:
            return
        try:
            self._ownership.stable = self._source.settled()
        except BrokerError as error:
            self._log.warning("the group's state is unknown", reason=str(error))
        self._budget(began_seconds)

    def _budget(self, began_seconds: float) -> None:
        """Ask nothing for a while: as many times as long as the question took."""
        self._questions_due = self._due_after(began_seconds)

    def _due_after(self, began_seconds: float) -> float:
        """When questions may be asked again after one that has just ended."""
        spent_seconds = self._clock.monotonic() - began_seconds
        return began_seconds + spent_seconds / SHARE_OF_TIME_FOR_QUESTIONS

    def _begin(self, partition: Partition, start: int) -> None:
        """Read a partition from where it should have been read from when it was assigned."""
        partition.young = start == 0
        start = self._deltas.begun(partition, start)
        try:
            self._source.seek(TopicPartition(*partition.key, start))
        except BrokerError as error:
            self._log.warning("not begun yet", topic=partition.key[0], reason=str(error))
            return
        partition.waits, partition.position = False, max(start, -1)
        partition.moved_at_seconds = self._clock.monotonic()
