"""Running totals of the assigned partitions: restored at assignment, updated while owned, written at revocation.

`Intake` calls `assigned`, then `accumulate` and `advance` for each batch, `upkeep` once a second, and `revoked`.
The totals of a partition and the offset up to which they are valid are kept together, so that a message that is read
twice is added once. `beginning` determines where a partition without a snapshot is read from; `adoption` moves totals
between replicas.

A total outlives its series: after the series has ended, the total rests, and continues if the series returns.

If all replicas read everything, a series may come from any partition. Its points are then added to one total. One
snapshot covers all partitions, and all replicas share it; its offsets say how far each partition is included.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.delta.accumulate import Accumulator, named
from kernelcast.bridge.delta.adoption import READ_SECONDS, Adoption, OffsetsSince
from kernelcast.bridge.delta.beginning import ALL, AssignmentFacts, Beginnings
from kernelcast.bridge.delta.columns import GROWN_TOPIC, OUTCOMES, OVERLAP, PART_OF_TOPIC, WHOLE_TOPIC
from kernelcast.bridge.delta.instruments import DeltaInstruments
from kernelcast.bridge.delta.joining import put_back_reserved
from kernelcast.bridge.delta.persistence.background import SnapshotReads, Starter, run_at_once
from kernelcast.bridge.delta.persistence.freeze import freeze, reserved_totals
from kernelcast.bridge.delta.persistence.snapshot import TotalsSnapshot
from kernelcast.bridge.delta.persistence.state import IDENTITY_BYTES, StateTopic, name_of
from kernelcast.bridge.delta.sequence import Order
from kernelcast.bridge.delta.settings import DeltaPolicy
from kernelcast.bridge.inputs import IdentitySource
from kernelcast.bridge.partitions.partition import Key, Partition
from kernelcast.bridge.partitions.tombstones import Tombstone
from kernelcast.bridge.tables.columns import MessageColumns
from kernelcast.bridge.tables.producers import Conflicts
from kernelcast.columnar import Decoded
from kernelcast.wire.errors import BrokerError

MAX_GAPS_PER_SERIES: Final = 128
"""Beyond it the oldest gap of a series is forgotten, and points that would fill it are OLDER."""
HELD: Final = 2**62
"""Position of a partition whose start offset is not known yet: none of its points is added."""
FLUSH_SECONDS: Final = 5.0
"""Longest wait for Kafka to acknowledge snapshots at a revocation or stop."""


class Deltas:
    """Running totals of the partitions that this replica owns. Only the consuming thread uses it.

    Attributes:
        topics: Topics that have had delta points; no message of them may be skipped.
    """

    def __init__(
        self,
        policy: DeltaPolicy,
        state: StateTopic,
        instruments: DeltaInstruments,
        clock: Clock,
        *,
        starter: Starter = run_at_once,
    ) -> None:
        """Start without partitions.

        Args:
            policy: How totals are kept.
            state: The topic of snapshots.
            instruments: Metrics of delta points and snapshots.
            clock: Schedules snapshots.
            starter: Runs reads of other replicas' snapshots.
        """
        settle_ms = round(policy.ttl_seconds * 1e3) if policy.by_partition else 0
        self._policy, self._state, self._instruments, self._clock = policy, state, instruments, clock
        self._totals = Accumulator(
            Order(policy.tolerance_ns, settle_ms, MAX_GAPS_PER_SERIES),
            max_series=policy.settings.max_series,
            away_ms=round((policy.hold_seconds + READ_SECONDS) * 1e3),
        )
        self._beginnings = Beginnings(
            self._totals.rows,
            state,
            instruments,
            clock,
            by_partition=policy.by_partition,
            most_age_seconds=policy.settings.snapshot_max_age_seconds,
        )
        self._kept_ms = max(0, round((policy.settings.snapshot_max_age_seconds - policy.ttl_seconds) * 1e3))
        reads = SnapshotReads(state.for_other_thread(), starter)
        self._adoption = Adoption(
            self._totals.rows, reads, clock, hold_seconds=policy.hold_seconds, ttl_seconds=policy.ttl_seconds
        )
        self._others: frozenset[Key] = frozenset()  # partitions of our topics that other replicas read
        self._grown: frozenset[int] = frozenset()  # numbers of our partitions of topics that have grown
        self._owned: dict[Key, int] = {}  # our partitions, and their numbers
        self._waiting: dict[Key, int] = {}  # partitions whose start offset is not known: where their totals end
        self._due: dict[str, float] = {}  # by snapshot name, the monotonic time of the next write
        self._written: set[str] = set()  # names of snapshots that exist on Kafka
        self._torn = False  # a batch is half accumulated: totals match no offset, and must not be written
        self._in_new_log = False  # a topic was created again: write its totals soon
        self._forgotten_gaps = self._newest_append_ms = 0
        self._overlaps: Conflicts = []
        self._log = structlog.stdlib.get_logger("bridge.delta")
        self.topics: set[str] = set()

    def assigned(self, partitions: Sequence[Partition], facts: AssignmentFacts) -> dict[Key, int]:
        """Take partitions over, and restore their totals from snapshots.

        Args:
            partitions: The new partitions, with their start offsets and the offsets up to which others have read them.
            facts: Facts that Kafka gives beside the assignment.

        Returns:
            The latest offset at which reading may start, for partitions of topics with delta points.
        """
        begun = self._beginnings.begin(partitions, facts, self._bringing())
        self._written |= {name_of(key) if self._policy.by_partition else ALL for key in begun.restored}
        begins = begun.unread | begun.restored
        self._in_new_log |= any(partition.key in self._owned for partition in partitions)
        for partition in partitions:
            number, key = partition.number, partition.key
            self._owned[key] = number
            position = begins.get(key, partition.judged_to)
            if partition.gate == 0 and partition.position >= 0:  # an empty partition: its first offset is its end
                position = min(position, partition.position)
            self._totals.at(number, HELD if partition.waits else position)
            if partition.waits:
                self._waiting[key] = position
        return begins

    def identify(self, topic_ids: Mapping[str, str]) -> None:
        """Note Kafka's ids of topics. A snapshot is used only for the topic with the same id."""
        known = self._beginnings.topic_ids
        for topic in [topic for topic, written in topic_ids.items() if known.get(topic, written) != written]:
            self.leave_log(topic)
        known.update(topic_ids)

    def leave_log(self, topic: str) -> None:
        """Note that a topic was deleted, before its new id or the offsets of a new topic are noted.

        A replica that lags cannot read the last messages of the deleted log. It finds their totals in our snapshot.
        """
        if not self._beginnings.shares(topic):
            return
        for name, keys in self._snapshots().items():
            self._write(name, keys)
        positions = self._totals.positions
        reached = {
            key: (number, self._waiting.get(key, int(positions[number])))
            for key, number in self._owned.items()
            if key[0] == topic
        }
        self._beginnings.leave_log(topic, reached)

    def note_sharing(self, others: Iterable[Key], grown: Iterable[int]) -> None:
        """Note the partitions of our topics that other replicas read, and those of ours in a topic that has grown."""
        self._others, lately = frozenset(others), frozenset(grown)
        shared = {topic for topic, _ in self._others}
        self._grown = lately
        for (topic, _), number in self._owned.items():
            scope = PART_OF_TOPIC if topic in shared else WHOLE_TOPIC
            before = self._totals.set_scope(number, GROWN_TOPIC if number in lately else scope)
            ours = scope == WHOLE_TOPIC and self._totals.rows.reserved
            if number not in lately and (before == GROWN_TOPIC or ours):
                self._adoption.give_up(self._totals.rows.of_partition(number))
        self._totals.follow_explained_moves()

    def clamp(self, partition: Partition) -> None:
        """Note the end of a partition; totals that are valid beyond it belong to another log and are dropped."""
        gate, key, number = partition.gate, partition.key, partition.number
        position = self._waiting.get(key, int(self._totals.positions[number]))
        if not gate or position <= gate:
            return
        if self._policy.by_partition:
            self._totals.free(self._totals.rows.of_partition(number))
        self.start_over(partition, partition.judged_to)

    def beginning(self, partition: Partition, start: int) -> int:
        """Return the offset to read a waiting partition from, of which the start offset is known now."""
        position = self._waiting.get(partition.key)
        return start if position is None or partition.key[0] not in self._bringing() else min(start, position)

    def begun(self, partition: Partition) -> None:
        """Note that a waiting partition will be read from its beginning: its points count from now on."""
        position = self._waiting.pop(partition.key, None)
        if position is not None:
            self._totals.at(partition.number, position)
            self._in_new_log = True

    def accumulate(self, decoded: Decoded, messages: MessageColumns, source: IdentitySource) -> Decoded:
        """Return a batch with totals in place of deltas; see `Accumulator.accumulate`."""
        self._torn = True
        cumulative, counts = self._totals.accumulate(decoded, messages, source)
        for outcome, count in named(counts):
            self._instruments.points.labels(outcome).inc(count)
        return cumulative

    def advance(self, reached: Iterable[tuple[Partition, int]]) -> None:
        """Note that a whole batch has been accumulated.

        Args:
            reached: Partitions in the batch, with the offset after the last message of each.
        """
        for partition, position in reached:
            if partition.key not in self._waiting:
                self._totals.at(partition.number, max(position, int(self._totals.positions[partition.number])))
        self._torn = False

    def start_over(self, partition: Partition, first: int) -> None:
        """Note that a partition's offsets have restarted: its topic was deleted and created again.

        Totals go on, but those of series without a recent point are dropped where other replicas read the topic, too:
        one of them may have continued such a total, and its snapshot is one of the deleted topic. Totals that had not
        been read as far as they were exposed before are dropped, too.
        """
        self._in_new_log = True
        if not partition.passed:
            self._totals.free(self._totals.rows.of_partition(partition.number))
        elif self._totals.scopes[partition.number] != WHOLE_TOPIC:
            self._totals.free(self._totals.quiet(partition.number, self._newest_append_ms))
        if partition.key in self._waiting:
            self._waiting[partition.key] = first
        else:
            self._totals.at(partition.number, first)

    def wait(self, partition: Partition) -> None:
        """Count no points of a partition before it is read from where its totals end."""
        if partition.key not in self._waiting:
            self._waiting[partition.key] = int(self._totals.positions[partition.number])
            self._totals.at(partition.number, HELD)

    def forget(self, source: IdentitySource, numbers: NDArray[np.int32]) -> None:
        """Forget series numbers: the input may give them to other series from now on."""
        self._totals.forget(source, numbers)

    def end(self, tombstones: Sequence[Tombstone]) -> None:
        """Drop the totals of series whose message key has ended, also the reserved ones.

        A tombstone below the offset up to which totals are valid has been applied already: any total of its key began
        after it.
        """
        self._torn = True
        fresh = {one.key_hash for one in tombstones if one.offset >= self._totals.positions[one.partition]}
        rows = self._totals.rows
        ended = rows.seen_under(np.array(list(fresh), np.int64))
        reserved = [digest for digest, one in rows.reserved.items() if int(one["key_hash"][0]) in fresh]
        for digest in [*map(bytes, rows.columns.digest[ended]), *reserved]:
            rows.reserved.pop(digest, None)
        self._totals.free(ended)

    def expire(self, oldest_ms: Mapping[int, int]) -> None:
        """Mark totals as resting that were last seen before their partition's limit.

        A resting total is dropped once it is older than the oldest snapshot that would be used.
        """
        self._totals.free(self._totals.expired(oldest_ms, self._kept_ms))

    def upkeep(self, newest_append_ms: int, offsets_since: OffsetsSince, *, doubtful: bool) -> None:
        """Continue totals of other replicas, write the snapshots that are due, and report.

        Args:
            newest_append_ms: The newest append time known.
            offsets_since: Finds offsets by time.
            doubtful: Whether another replica may own the partitions. Then nothing is written: the snapshot could
                replace one of the new owner that is behind it, but has totals that were added from elsewhere.
        """
        now_seconds = self._clock.monotonic()
        topic_ids, self._newest_append_ms = self._beginnings.topic_ids, newest_append_ms
        self._adoption.continue_totals(
            self._owned, self._others, topic_ids, newest_append_ms, self._grown, offsets_since
        )
        self.topics = self._bringing()
        if not doubtful:
            self._write_due(now_seconds)
            self._state.drop_replaced()
        self._count_by_producer()
        self._instruments.series.set(len(self._totals.rows))
        self._instruments.forgotten_gaps.inc(self._totals.forgotten_gaps - self._forgotten_gaps)
        self._forgotten_gaps = self._totals.forgotten_gaps

    def write_in_new_log(self) -> None:
        """Write the totals that go on in a new log, soon after the log was noticed.

        After a crash the snapshots of the deleted log are refused. Without one of the new log its totals would begin at
        0, and `increase()` would count all its points again that had been exposed on top of the former totals.
        """
        if self._in_new_log and not self._torn:
            self._in_new_log = False
            self._due.clear()
            self._write_due(self._clock.monotonic())

    def take_conflicts(self) -> Conflicts:
        """Return the conflicts since the last call: overlapping points show that live producers share an identity."""
        conflicts, self._overlaps = self._overlaps, []
        return conflicts

    def revoked(self, partitions: Sequence[Partition], *, lost: bool) -> None:
        """Write the totals of partitions, unless other replicas own them already, and drop the totals.

        The totals of their topics that stay are written, too: one may have left a revoked partition, see `_write_due`.

        If all replicas read everything, a partition is revoked only when its topic is deleted. Its totals then stay in
        the snapshot. They show that the topic contains delta points, all of which are read if it is created again.
        """
        if not lost:
            topics = {partition.key[0] for partition in partitions}
            self._write_all({name: keys for name, keys in self._snapshots().items() if topics & _topics_of(keys)})
        for partition in partitions:
            unread = self._waiting.pop(partition.key, None) is not None
            if self._policy.by_partition or unread:
                self._owned.pop(partition.key, None)
            if self._policy.by_partition:
                self._totals.free(self._totals.rows.of_partition(partition.number))
                self._written.discard(name_of(partition.key))
                self._due.pop(name_of(partition.key), None)
        put_back_reserved(self._totals.rows, {partition.number for partition in partitions})

    def close(self) -> None:
        """Write the totals of all owned partitions."""
        self._write_all(self._snapshots())

    def _bringing(self) -> set[str]:
        """Return the topics that have totals."""
        rows = self._totals.rows
        brought = set(np.unique(rows.columns.partition[rows.in_use()]).tolist())
        return {topic for (topic, _), number in self._owned.items() if number in brought}

    def _count_by_producer(self) -> None:
        for producer, outcome, count in self._totals.producers.take():
            if outcome == OVERLAP:
                self._overlaps.append((producer, {OUTCOMES[OVERLAP]: count}))
            else:
                self._instruments.lost.count(producer, OUTCOMES[outcome], count)

    def _snapshots(self) -> dict[str, list[Key]]:
        """Return the snapshots to write, by name, with the partitions in each; waiting partitions are left out."""
        keys = [key for key in self._owned if key not in self._waiting]
        if self._policy.by_partition:
            return {name_of(key): [key] for key in keys}
        return {ALL: keys} if keys and not self._waiting else {}

    def _write_due(self, now_seconds: float) -> None:
        """Write all snapshots when one of them is due.

        A series may have moved between two of our partitions. If only the former one's snapshot were written, its total
        would be in none.
        """
        snapshots = self._snapshots()
        due = {name for name in snapshots if now_seconds >= self._due.get(name, now_seconds)}
        if sum(self._write(name, snapshots[name]) for name in sorted(due)):
            for name in snapshots.keys() - due:
                self._write(name, snapshots[name])
            max_seconds = self._policy.settings.snapshot_seconds
            next_seconds = now_seconds + (min(max_seconds, READ_SECONDS) if self._grown else max_seconds)
            self._due = dict.fromkeys(snapshots.keys() & self._written, next_seconds)

    def _write_all(self, snapshots: Mapping[str, list[Key]]) -> None:
        self.topics = self._bringing()
        written = [name for name, keys in snapshots.items() if self._write(name, keys)]
        if written:
            self._state.flush(FLUSH_SECONDS)

    def _write(self, name: str, keys: list[Key]) -> bool:
        """Write a snapshot, or remove the last one if its topics have no totals; returns whether one was written.

        A partition whose totals have all moved to others has a snapshot, for its offset: it is where the points end
        that those totals include. The committed offset may be further.
        After a batch that failed half-way nothing is written, because the totals would match no offset.
        """
        if self._torn:
            return False
        rows, number_of = self._totals.rows, {self._owned[key]: number for number, key in enumerate(keys)}
        chosen = np.concatenate([rows.with_total(rows.of_partition(number)) for number in number_of])
        reserved = reserved_totals(rows, number_of)
        if not len(chosen) + len(reserved) and not self.topics & _topics_of(keys):
            if name in self._written:
                self._written.discard(name)
                self._state.remove(name)
            return False
        positions = tuple((key, int(self._totals.positions[self._owned[key]])) for key in keys)
        columns = freeze(rows, chosen, number_of, reserved)
        known = self._beginnings.topic_ids
        topic_ids = {topic: known[topic] for topic, _ in keys if topic in known}
        snapshot = TotalsSnapshot(
            secrets.token_bytes(IDENTITY_BYTES), self._clock.now_ns(), positions, columns, topic_ids
        )
        try:
            self._instruments.snapshot_bytes.inc(self._state.write(name, snapshot, self._note_result))
        except BrokerError as error:
            self._note_result(str(error))
        self._written.add(name)
        return True

    def _note_result(self, trouble: str | None) -> None:
        self._instruments.snapshots.labels("failed" if trouble else "written").inc()
        if trouble:
            self._log.warning("totals of delta series not written; after a restart now they begin at 0", reason=trouble)


def _topics_of(keys: Iterable[Key]) -> set[str]:
    return {topic for topic, _ in keys}
