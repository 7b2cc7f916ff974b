"""Restores totals from snapshots when partitions are assigned, and determines the offsets at which reading starts.

Every message of a topic with delta points counts, from the offset up to which the totals are valid. Reading starts one
time-to-live ago, as it does for cumulative series, unless one of these offsets is lower:

* the offset of the partition's snapshot, if the snapshot is used;
* without a usable snapshot, if each partition has its own: the group's committed offset, or the partition's first
  message if the group has never read it, as after partitions were added while no bridge ran;
* without a usable snapshot of all partitions: the partition's first message.

`snapshot_max_age_seconds` limits this. A snapshot older than it is refused, and its partitions are read from one
time-to-live ago; without a usable snapshot, messages older than it do not count. Ages are measured in Kafka's time,
from the append time of the snapshot or message to the newest append time of the topics. The clocks of the machines are
compared only for the age of a snapshot that Kafka did not stamp.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.delta.instruments import DeltaInstruments
from kernelcast.bridge.delta.joining import restore
from kernelcast.bridge.delta.persistence.snapshot import TotalsSnapshot
from kernelcast.bridge.delta.persistence.state import StateTopic, name_of
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.partitions.partition import Key, Partition
from kernelcast.wire.errors import BrokerError, WireError

ALL: Final = "all"
"""Name of the snapshot of all partitions."""


@dataclass(frozen=True, slots=True)
class AssignmentFacts:
    """Facts that Kafka gives beside the assignment itself.

    Attributes:
        newest_append_ms: The newest append time of the topics; 0 if Kafka does not know it.
        numbers: By topic, the numbers of all its partitions.
        offsets_since: Returns each partition's first offset at or after a time in milliseconds. If Kafka does not know
            it, the offset is negative or the partition is absent.
    """

    newest_append_ms: int = 0
    numbers: Mapping[str, Iterable[int]] = field(default_factory=dict)
    offsets_since: Callable[[Sequence[Key], int], Mapping[Key, int]] = lambda _keys, _since_ms: {}


@dataclass(frozen=True, slots=True)
class Begun:
    """Latest offsets at which the reading of some partitions may start.

    Other partitions are read from one time-to-live ago: those whose snapshot is too old, those of topics without delta
    points, and all of them if the snapshots cannot be read.

    Attributes:
        restored: By partition with restored totals, the offset up to which they are valid.
        unread: By partition without a usable snapshot, of topics that have delta points: the first offset that counts.
    """

    restored: dict[Key, int] = field(default_factory=dict)
    unread: dict[Key, int] = field(default_factory=dict)


class Beginnings:
    """Restores totals at an assignment. Only the consuming thread uses it.

    Attributes:
        topic_ids: Kafka's ids of topics. A snapshot is used only for the topic with the same id.
    """

    def __init__(
        self,
        rows: TotalRows,
        state: StateTopic,
        instruments: DeltaInstruments,
        clock: Clock,
        *,
        by_partition: bool,
        most_age_seconds: float,
    ) -> None:
        """Prepare; reads nothing yet.

        Args:
            rows: Receives the totals.
            state: The topic with the snapshots.
            instruments: Count used and refused snapshots.
            clock: Gives the age of a snapshot if Kafka does not stamp messages.
            by_partition: Whether each partition has its own snapshot. Otherwise one snapshot, ALL, covers all
                partitions; it is read once, at the first assignment.
            most_age_seconds: The setting `snapshot_max_age_seconds`.
        """
        self._rows, self._state, self._instruments, self._clock = rows, state, instruments, clock
        self._by_partition, self._most_age_seconds = by_partition, most_age_seconds
        self._read = False
        self._left: dict[str, str] = {}
        self._log = structlog.stdlib.get_logger("bridge.delta")
        self.topic_ids: dict[str, str] = {}

    def begin(self, partitions: Sequence[Partition], facts: AssignmentFacts, bringing: Iterable[str]) -> Begun:
        """Restore totals, and return the latest offsets at which reading may start.

        Args:
            partitions: The assigned partitions.
            facts: Facts that Kafka gives beside the assignment.
            bringing: Topics that are known to have delta points.
        """
        by_key = {partition.key: partition for partition in partitions}
        if self._by_partition:
            wanted = {name_of(key): [key] for key in by_key}
        else:
            wanted = {ALL: list(by_key)} if by_key and not self._read else {}
        self._read = self._read or bool(wanted)
        try:
            found = self._read_snapshots(list(wanted), by_key)
        except BrokerError as error:
            self._instruments.beginnings.labels("unread").inc(len(partitions))
            self._log.warning("totals of delta series not read", reason=str(error))
            return Begun()
        restored, too_old = dict[Key, int](), set[Key]()
        for name, keys in wanted.items():
            covered = {key: by_key[key] for key in keys}
            if self._age_seconds(found.get(name), facts) > self._most_age_seconds:
                too_old |= set(keys)
            restored |= self._restore(found.get(name), covered, facts)
        without = [partition for key, partition in by_key.items() if key not in restored and key not in too_old]
        topics = set(bringing) | self._topics_of(found)
        return Begun(restored, self._unread(without, facts, topics))

    def shares(self, topic: str) -> bool:
        """Return whether all replicas share the totals of a topic's log, and this one has not left that log yet."""
        log = self.topic_ids.get(topic)
        return not self._by_partition and log is not None and self._left.get(topic) != log

    def leave_log(self, topic: str, reached: Mapping[Key, tuple[int, int]]) -> None:
        """Restore totals that another replica has counted further in a topic's log, which has been deleted.

        Replicas that read everything share one snapshot. One that was suspended cannot read the deleted messages, and
        its snapshot of the new log is used by all replicas. Kafka is queried once for each log.

        Args:
            topic: A topic that `shares` accepts.
            reached: By partition, its number and the offset up to which its totals include all messages.
        """
        log = self._left[topic] = self.topic_ids[topic]
        try:
            # The state drops snapshots that it has read. Other replicas that lag need these, so another object reads.
            found = self._state.for_other_thread().read([ALL], lambda one: one.topic_ids.get(topic) == log).get(ALL)
            if isinstance(found, TotalsSnapshot) and found.topic_ids.get(topic) == log:
                further = {
                    i: reached[key][0]
                    for i, (key, offset) in enumerate(found.positions)
                    if key in reached and offset > reached[key][1]
                }
                series = restore(self._rows, found.columns, further)
                self._log.info("totals of a deleted topic restored from another replica", topic=topic, series=series)
        except (BrokerError, WireError) as error:
            self._log.warning("totals of a deleted topic not read", topic=topic, reason=str(error))

    def _read_snapshots(
        self, names: list[str], by_key: Mapping[Key, Partition]
    ) -> dict[str, TotalsSnapshot | WireError]:
        """Return the snapshots by name, or the reason why one is unusable; a name without a snapshot is absent."""
        found = self._state.read(names, lambda one: not self._foreign(one, by_key)) if names else {}
        if len(found) < len(names):
            self._log.info("no snapshot of delta totals found; totals start at 0", partitions=len(names) - len(found))
        return found

    def _topics_of(self, found: Mapping[str, TotalsSnapshot | WireError]) -> set[str]:
        """Return the topics that have a total in one of the snapshots."""
        topics = set()
        for snapshot in found.values():
            if isinstance(snapshot, TotalsSnapshot):
                topics |= {snapshot.positions[i][0][0] for i in set(snapshot.columns["partition"].tolist())}
        return topics

    def _unread(self, partitions: Sequence[Partition], facts: AssignmentFacts, topics: set[str]) -> dict[Key, int]:
        """Return the first offsets that count, of partitions without a usable snapshot whose topic has delta points."""
        if self._by_partition:
            topics = topics | self._topics_of_others(partitions, facts, topics)
        unread = {
            partition.key: partition.judged_to if self._by_partition else 0
            for partition in partitions
            if partition.key[0] in topics
        }
        if not unread or not facts.newest_append_ms:
            return unread
        since_ms = facts.newest_append_ms - round(self._most_age_seconds * 1e3)
        oldest = facts.offsets_since(list(unread), since_ms)
        return {key: max(offset, oldest.get(key, 0)) for key, offset in unread.items()}

    def _topics_of_others(self, partitions: Sequence[Partition], facts: AssignmentFacts, topics: set[str]) -> set[str]:
        """Return the topics of which another partition has a snapshot: they have delta points."""
        asked = {partition.key[0] for partition in partitions} - topics
        others = {name_of((topic, number)): topic for topic in asked for number in facts.numbers.get(topic, ())}
        try:
            return {others[name] for name in self._state.written(list(others))} if others else set()
        except BrokerError as error:
            self._log.warning("snapshots of other partitions not read", topics=len(asked), reason=str(error))
            return set()

    def _restore(
        self, found: TotalsSnapshot | WireError | None, partitions: Mapping[Key, Partition], facts: AssignmentFacts
    ) -> dict[Key, int]:
        """Restore the totals of partitions from their snapshot; returns the offset of each restored partition."""
        cause, reason = self._unfit(found, partitions, facts)
        if not cause and isinstance(found, TotalsSnapshot):
            foreign = self._foreign(found, partitions)
            self._refused("other_log", "; ".join(foreign.values()), foreign)
            partitions = {key: partition for key, partition in partitions.items() if key not in foreign}
            numbers = {i: partitions[key].number for i, (key, _) in enumerate(found.positions) if key in partitions}
            try:
                series = restore(self._rows, found.columns, numbers)
            except WireError as error:
                cause, reason = "unusable", str(error)
            else:
                self._instruments.beginnings.labels("restored").inc(len(partitions))
                self._log.info("totals of delta series restored", partitions=len(partitions), series=series)
                return {key: offset for key, offset in found.positions if key in partitions}
        self._refused(cause, reason, partitions)
        return {}

    def _refused(self, cause: str, reason: str, partitions: Mapping[Key, object]) -> None:
        self._instruments.beginnings.labels(cause).inc(len(partitions))
        if cause != "missing" and partitions:
            self._log.warning("totals of delta series restart at 0", cause=cause, reason=reason)

    def _foreign(self, found: TotalsSnapshot, partitions: Mapping[Key, Partition]) -> dict[Key, str]:
        """Return partitions whose totals in a snapshot belong to another log of the same name, with the evidence.

        A topic that was deleted and created again is recognised by its id, or because the partition ends before the
        snapshot's offset.
        """
        foreign = {}
        for key, offset in found.positions:
            ours, topic = partitions.get(key), key[0]
            known = self.topic_ids.get(topic, "")
            written = found.topic_ids.get(topic, known)
            if ours is not None and known and written != known:
                foreign[key] = f"the snapshot is of topic {topic} with id {written}, which now has id {known}"
            elif ours is not None and ours.gate and offset > ours.gate:
                foreign[key] = f"the snapshot is as of offset {offset}, {topic}/{key[1]} ends at {ours.gate}"
        return foreign

    def _unfit(
        self, found: TotalsSnapshot | WireError | None, partitions: Mapping[Key, Partition], facts: AssignmentFacts
    ) -> tuple[str, str]:
        """Return cause and reason why a snapshot cannot be used; both empty if it can."""
        if found is None:
            return "missing", ""
        if isinstance(found, WireError):
            return "unusable", str(found)
        age_seconds, longest_seconds = self._age_seconds(found, facts), self._most_age_seconds
        if age_seconds > longest_seconds:
            return "too_old", f"the snapshot is {age_seconds:.0f} s old; the limit is {longest_seconds:g} s"
        foreign = self._foreign(found, partitions)
        return ("other_log", "; ".join(foreign.values())) if len(foreign) == len(partitions) else ("", "")

    def _age_seconds(self, found: TotalsSnapshot | WireError | None, facts: AssignmentFacts) -> float:
        """Return the age of a snapshot; 0 if there is none, or if it cannot be used.

        The messages written after the snapshot are read again before the totals are exposed. The age is measured by
        Kafka's append times, or by the clocks of both bridges if Kafka does not stamp messages.
        """
        if not isinstance(found, TotalsSnapshot):
            return 0.0
        if facts.newest_append_ms and found.append_ms:
            return (facts.newest_append_ms - found.append_ms) / 1e3
        return (self._clock.now_ns() - found.written_ns) / 1e9
