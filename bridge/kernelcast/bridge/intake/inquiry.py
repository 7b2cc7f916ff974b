"""Queries to Kafka besides reading: begin and end of partitions, its time, the ids of topics, the group's state.

`Intake` calls `starts` and the `learn_` methods at an assignment, and the `ask_` methods once a second.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.partitions.bounds import Answering, Bounds
from kernelcast.bridge.partitions.growth import PartitionGrowth
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.bridge.partitions.partition import Key, Partition
from kernelcast.wire.errors import BrokerError

REWIND_MARGIN_SECONDS: Final = 5.0
"""Time that is read again beyond a time-to-live, for messages that were in transit."""
IDS_SECONDS: Final = 10.0
"""Interval between queries for the ids of topics."""
SILENT_SECONDS: Final = 5.0
"""Time without a message after which Kafka is queried for its newest append time."""
STALE_SECONDS: Final = 1.0
"""Age of the newest append time at which it is queried again before partitions are exposed."""
SHARE_OF_TIME_FOR_QUERIES: Final = 0.1
"""Largest share of the consuming thread's time for queries. A query to a hanging broker fails after seconds; reading
must go on meanwhile."""
LONGEST_QUERIES_SECONDS: Final = 20.0
"""Longest time that counts as spent with queries: four that fail. A longer one may be a suspension of the process."""


class OffsetConsumer(Answering, Protocol):
    """The part of a Kafka consumer that is needed here."""

    def settled(self) -> bool:
        """Return whether the group has answered since the last change of the assignment."""

    def seek(self, partition: TopicPartition) -> None:
        """Go on reading an assigned partition at another offset."""


class Inquiry:
    """Queries Kafka and passes the answers to the ownership. Only the consuming thread uses it.

    While Kafka does not answer, queries take a bounded share of the thread's time.

    Attributes:
        bounds: Queries for begin and end of partitions.
        growth: Partitions that were added to topics.
    """

    def __init__(
        self,
        source: OffsetConsumer,
        ownership: Ownership,
        instruments: Instruments,
        clock: Clock,
        *,
        ttl_ms: int,
    ) -> None:
        self._source, self._ownership = source, ownership
        self._instruments, self._clock, self._ttl_ms = instruments, clock, ttl_ms
        self._queries_due = self._ids_due = self._time_due = self._time_asked_at = 0.0
        self._stamped: set[str] = set()
        self._limited_ms: dict[Key, int] = {}
        self._log = structlog.stdlib.get_logger("bridge.inquiry")
        self.bounds = Bounds(source)
        self.growth = PartitionGrowth()

    def starts(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Return the offsets of one time-to-live ago, by Kafka's clock if it is known, else by ours."""
        broker_ms = self._ownership.clock.at(self._clock.monotonic())
        now_ns = self._clock.now_ns() if broker_ms is None else round(broker_ms * 1e6)
        return self.bounds.starts(keys, now_ns - self._ttl_ms * 1_000_000 - round(REWIND_MARGIN_SECONDS * 1e9))

    def note_append_time(self, available: Mapping[str, bool]) -> None:
        """Note by topic whether Kafka stamps its messages; answers that were limited without need are noted whole."""
        for topic, stamped in available.items():
            if stamped and topic not in self._stamped:
                self._ownership.note_newest({key: ms for key, ms in self._limited_ms.items() if key[0] == topic})
            (self._stamped.add if stamped else self._stamped.discard)(topic)
        if available and self._limited_ms:
            self._limited_ms = {key: ms for key, ms in self._limited_ms.items() if key[0] not in available}

    def learn_time(self, topics: set[str]) -> set[Key]:
        """Query the newest append times of some topics; a producer's time in the future counts as the present.

        The clock of this machine may be behind Kafka's, so times that Kafka has stamped are not limited by it. Whether
        it stamps a topic is known with the first message that is read: until then the answers are limited, and kept.

        Returns:
            The partitions, ours and those of others, for which Kafka has answered.
        """
        self._time_asked_at, now_ms = self._clock.monotonic(), self._clock.now_ns() // 1_000_000
        newest_ms = self.bounds.newest_ms(topics) if topics else {}
        future_ms = {key: ms for key, ms in newest_ms.items() if ms > now_ms and key[0] not in self._stamped}
        self._limited_ms = {key: ms for key, ms in self._limited_ms.items() if key not in newest_ms} | future_ms
        self._ownership.note_newest(newest_ms | dict.fromkeys(future_ms, now_ms))
        return set(newest_ms)

    def ask_for_time(self, owned: Sequence[Partition]) -> None:
        """Query the newest append time while nothing is read, so that series that moved to other replicas expire here.

        The query also shows whether Kafka answers at all: without an answer nothing expires. It has a separate time
        budget, so that other queries cannot prevent it.
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
        """Query the newest append time again right before partitions are exposed.

        The answer from their assignment may be old by then, and this bridge may have read only old messages.
        """
        began_seconds = self._clock.monotonic()
        stale = began_seconds - self._time_asked_at >= STALE_SECONDS
        if stale and began_seconds >= self._time_due:
            self.learn_time({partition.key[0] for partition in opened if partition.newest_append_ms})
            self._time_due = self._due_after(began_seconds)

    def _note_answers(self, asked: Sequence[Partition], named: set[Key]) -> None:
        """Note the partitions for which Kafka has answered; for those without a newest append time, query the end.

        Brokers before Kafka 3.0 do not answer with an append time, and a partition emptied by retention has none.
        """
        ends = self.bounds.gates([partition.key for partition in asked if partition.key not in named])
        now_seconds = self._clock.monotonic()
        for partition in asked:
            if partition.key in named or partition.key in ends:
                partition.high = max(partition.high, ends.get(partition.key, 0))
                self._ownership.answered(partition, now_seconds)
            else:
                self._ownership.refused(partition, now_seconds)

    def ask_again(self, partitions: Sequence[Partition]) -> None:
        """Repeat failed queries for start offsets and gates; a partition that is read to its end needs no gate.

        Until its start offset is known, a partition is read from its end and hidden.
        """
        began_seconds = self._clock.monotonic()
        if not partitions or began_seconds < self._queries_due:
            return
        starts = self.starts([partition.key for partition in partitions if partition.waits])
        gates = self.bounds.gates([p.key for p in partitions if not p.waits or p.key in starts])
        for partition in partitions:
            if partition.waits and partition.key in starts and partition.key in gates:
                self._begin(partition, starts[partition.key])
            self._ownership.learn_gate(partition, gates.get(partition.key))
        self._budget(began_seconds)

    def ask_for_ids(self, owned: Sequence[Partition]) -> None:
        """Check periodically whether topics were deleted and created again, which offsets do not always show."""
        began_seconds = self._clock.monotonic()
        if began_seconds >= max(self._ids_due, self._queries_due):
            self._ids_due = began_seconds + IDS_SECONDS
            self.identify({partition.key[0] for partition in owned})
            self.learn_partitions({partition.key[0] for partition in owned})
            self._budget(began_seconds)

    def identify(self, topics: set[str]) -> None:
        """Query the ids of topics; one that was deleted and created again is read from its beginning."""
        created = self._ownership.identify(self.bounds.topic_ids(topics))
        self.growth.look_again(created)
        for partition in self._ownership.owned():
            if partition.key[0] in created:
                self._read_new_log(partition)

    def learn_partitions(self, topics: set[str]) -> None:
        """Detect partitions that were added to some topics, of which we read partitions."""
        partitions, now_seconds = self.bounds.partitions(), self._clock.monotonic()
        self._ownership.note_cluster(now_seconds, answered=partitions is not None)
        if not partitions:
            self._ids_due = 0.0  # asks again as soon as possible
            return
        added = self.growth.note(partitions, now_seconds)
        for topic in topics - self.growth.examined:
            starts = self.starts([key for key in partitions if key[0] == topic])
            added += self.growth.note_starts(topic, starts, now_seconds)
        for key in added:
            if key[0] in topics:
                self._log.info("series that are new in an added partition are held", topic=key[0], partition=key[1])

    def _read_new_log(self, partition: Partition) -> None:
        """Read a partition from its first message; if the seek fails, it waits for the next one, as at assignment."""
        topic, number = partition.key
        self._ownership.restart(partition, 0)
        try:
            self._source.seek(TopicPartition(topic, number, OFFSET_BEGINNING))
        except BrokerError as error:
            self._log.warning("not read from its beginning yet", topic=topic, partition=number, reason=str(error))
            partition.waits = True
        self.note_restart(partition, 0)

    def note_restart(self, partition: Partition, first: int) -> None:
        """Count and log that a partition has a new log; the topic's id is queried as soon as possible."""
        self._ids_due = 0.0
        topic, number = partition.key
        self._instruments.offset_restarts.labels(topic).inc()
        self._log.warning("offsets restart; the topic was created again", topic=topic, partition=number, offset=first)

    def _budget(self, began_seconds: float) -> None:
        """Delay further queries in proportion to the time that this one took."""
        self._queries_due = self._due_after(began_seconds)

    def _due_after(self, began_seconds: float) -> float:
        """Return the time of the next query after one that has just ended."""
        ended_seconds = self._clock.monotonic()
        spent_seconds = min(ended_seconds - began_seconds, LONGEST_QUERIES_SECONDS)
        return ended_seconds + spent_seconds * (1 / SHARE_OF_TIME_FOR_QUERIES - 1)

    def _begin(self, partition: Partition, start: int) -> None:
        """Start reading a waiting partition at its start offset, which is known now."""
        partition.young = start == 0
        try:
            self._source.seek(TopicPartition(*partition.key, start))
        except BrokerError as error:
            self._log.warning("not begun yet", topic=partition.key[0], reason=str(error))
            return
        partition.waits, partition.position = False, max(start, -1)
        partition.moved_at_seconds = self._clock.monotonic()
