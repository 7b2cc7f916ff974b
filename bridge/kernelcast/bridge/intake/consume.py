"""From Kafka into the store: partitions that come and go, batches, ages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from confluent_kafka import OFFSET_END, TopicPartition

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.delta.deltas import Deltas
from kernelcast.bridge.inputs import Selection
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.intake.aside import FirstTime
from kernelcast.bridge.intake.batch import Aside, Message, MessageBatch, decode
from kernelcast.bridge.intake.freshness import Freshness
from kernelcast.bridge.intake.inquiry import SILENT_SECONDS, Inquiry, OffsetConsumer
from kernelcast.bridge.intake.membership import SESSION_SECONDS, GroupMembership
from kernelcast.bridge.intake.skip import Skipper
from kernelcast.bridge.partitions.ownership import Ownership, keys_of
from kernelcast.bridge.partitions.partition import Key, Partition
from kernelcast.bridge.partitions.tombstones import Tombstone
from kernelcast.bridge.series.store import Forgotten, SeriesStore
from kernelcast.bridge.tables.columns import UNCHANGED
from kernelcast.bridge.tables.share import Share
from kernelcast.wire.errors import BrokerError

MESSAGES_AT_ONCE: Final = 200
"""At 512 KiB each, 100 MiB at most are in flight."""
POLL_SECONDS: Final = 0.05
"""`consume` waits this long for a full batch: what a point waits at most before it is stored."""
UPKEEP_SECONDS: Final = 1.0
PAUSED_SECONDS: Final = 5.0
"""Whoever was stopped for longer, as a suspended machine is, does not know yet what has been written meanwhile: nothing
expires before as much time has passed again."""
COMMIT_SECONDS: Final = 5.0
EXPIRIES_PER_TTL: Final = 30


class IntakeConsumer(OffsetConsumer, Protocol):
    """The part of a Kafka consumer that is needed here: `runtime.kafka.Consumer`."""

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        """Read messages, and errors apart from them."""

    def ends(self) -> list[TopicPartition]:
        """Partitions read to their end since the last call, with the offset after it."""

    def known_high(self, partition: TopicPartition) -> int:
        """The next offset to be written as far as is known; asks nobody."""

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:
        """Commit the offsets of the next messages to be read; with `wait`, a refusal is raised."""


@dataclass(frozen=True, slots=True)
class IntakeParts:
    """What an intake works with."""

    source: IntakeConsumer
    selection: Selection
    store: SeriesStore
    aside: Aside
    instruments: Instruments
    clock: Clock
    deltas: Deltas


@dataclass(frozen=True, slots=True)
class Policy:
    """How an intake works.

    Attributes:
        ttl_seconds: How long a series stays after its last point, by Kafka's clock.
        max_lag_seconds: How far reading may fall behind before messages are skipped; 0 skips none.
        grouped: Whether a consumer group shares the partitions out, so that a series must stay in one.
        share: The part of the series that this replica keeps; None for all.
        session_seconds: After how long without a word from us the group gives our partitions to others.
    """

    ttl_seconds: float = 300.0
    max_lag_seconds: float = 0.0
    grouped: bool = True
    share: Share | None = None
    session_seconds: float = SESSION_SECONDS


class Intake:
    """Reads Kafka into the store; everything here runs on one thread, rebalancing included.

    Attributes:
        ownership: The partitions that are ours.
        freshness: Delays of points, told of every scrape.
        skipper: Jumps to the tail.
        membership: Whether what has been read may be exposed.
    """

    def __init__(self, parts: IntakeParts, policy: Policy) -> None:
        """Connect the parts."""
        self._source, self._selection, self._store = parts.source, parts.selection, parts.store
        self._instruments, self._clock = parts.instruments, parts.clock
        self._policy, self._deltas = policy, parts.deltas
        self._ttl_ms = round(policy.ttl_seconds * 1000)
        self._log = structlog.stdlib.get_logger("bridge.consume")
        self._has_begun = False
        self._upkeep_due = self._commit_due = self._expiry_due = 0.0
        self._growth: dict[int, int] = {}
        self.ownership = Ownership(joint=not policy.grouped, ttl_seconds=policy.ttl_seconds)
        self.membership = GroupMembership(parts.clock, grouped=policy.grouped, session_seconds=policy.session_seconds)
        self.freshness = Freshness(parts.instruments, parts.clock)
        self._aside = FirstTime(parts.aside, self.ownership, parts.instruments, share=policy.share)
        self._inquiry = Inquiry(
            parts.source, self.ownership, parts.deltas, parts.instruments, parts.clock, ttl_ms=self._ttl_ms
        )
        self.skipper = Skipper(parts.source, self._inquiry.bounds, parts.instruments, parts.clock)

    def assigned(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Start reading partitions one time-to-live ago, hidden until they have caught up."""
        self.membership.confirmed()
        self._instruments.rebalances.labels("assigned").inc()
        self.ownership.next_cohort()
        keys = keys_of(partitions)
        topics = {topic for topic, _ in keys}
        self._inquiry.identify(topics)
        starts = self._inquiry.starts(keys)
        gates = self._inquiry.bounds.gates([key for key in keys if key in starts])
        for key in keys:
            assigned = self.ownership.assign(
                key, start=starts.get(key), gate=gates.get(key), now_seconds=self._clock.monotonic()
            )
            assigned.young = starts.get(key) == 0
            self._store.expose(assigned.number, exposed=False)
            self._instruments.expect(key[0])
        self._inquiry.learn_time(topics)
        if self._policy.grouped:
            self._inquiry.learn_partitions(topics)
        self._learn_committed(keys)
        taken = [partition for key in keys if (partition := self.ownership.get(key)) is not None]
        for key, offset in self._deltas.assigned(taken, self._inquiry.surroundings(topics)).items():
            if key in starts and starts[key] > offset:
                starts[key] = self.ownership.begin_at(key, offset)
        self.ownership.stable = True
        self._note_growth()
        self._open_gates()
        self._log.info("partitions assigned", partitions=len(keys), now_owned=len(self.ownership.owned()))
        return [TopicPartition(*key, starts.get(key, OFFSET_END)) for key in keys]

    def _learn_committed(self, keys: Sequence[Key]) -> None:
        """Ask for the offsets that former owners of partitions have committed.

        In mode `replica` all replicas commit to one group. What another replica has read of a partition that has just
        come is in its own totals, not in ours, so only the first partitions of a process are asked for.
        """
        shared = not self._policy.grouped and self._policy.share is None
        if shared and self._has_begun:
            return
        self._has_begun |= bool(keys)
        for key, offset in self._inquiry.bounds.committed(keys, self.ownership.topic_ids).items():
            self.ownership.judged_before(key, offset)

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Drop the series of partitions at once: another member exposes them."""
        self.membership.confirmed()
        self._instruments.rebalances.labels("lost" if lost else "revoked").inc()
        self.ownership.stable = False
        gone = self.ownership.revoke(keys_of(partitions))
        self._deltas.revoked(gone, lost=lost)
        for partition in gone:
            removed, forgotten = self._store.drop_partition(partition.number)
            self._instruments.removed.labels("revoked").inc(removed)
            self._forget(forgotten)
            self._instruments.part_from(*partition.key)
        self._note_growth()
        if not lost:
            self._commit(gone)
        self._log.info("partitions revoked", partitions=len(partitions), lost=lost)

    def close(self) -> None:
        """Keep what a restart needs; where a group takes the partitions away, `revoked` has done so."""
        self._deltas.close()

    def readiness(self) -> tuple[bool, str]:
        """Whether every partition has caught up and is certainly ours; and what is missing."""
        confirmed = self.membership.readiness()
        return self.ownership.readiness() if confirmed[0] else confirmed

    def step(self) -> int:
        """Read and store one batch; returns how many messages it had.

        Raises:
            BrokerError: An error that will not pass.
        """
        self.membership.polling()
        received, _errors = self._source.consume(MESSAGES_AT_ONCE, POLL_SECONDS)
        self.membership.polling()
        if self.membership.confirmation_due:
            self._confirm_membership()
        if received:
            self._store_batch(received)
        ends = self._source.ends()
        for end in ends:
            self.ownership.reached_end((end.topic, end.partition), end.offset, self._clock.monotonic())
        if ends:
            self._open_gates()
        if self._clock.monotonic() >= self._upkeep_due:
            self._upkeep()
        return len(received)

    def _store_batch(self, received: Sequence[Message]) -> None:
        now_ms = self._clock.now_ns() // 1_000_000
        batch = MessageBatch.of(received, self.ownership, now_ms, keyed=self._policy.grouped)
        for reached in batch.partitions:
            if self.ownership.start_over(reached.partition, reached.first):
                self._deltas.start_over(reached.partition, reached.first)
                self._inquiry.note_restart(reached.partition, reached.first)
        exposed = frozenset(partition.number for partition in self.ownership.owned() if partition.passed)
        for segment, tombstones in batch.segments():
            self._store_points(segment, exposed)
            if tombstones:
                self._end(tombstones)
        self._deltas.advance((reached.partition, reached.position) for reached in batch.partitions)
        now_seconds = self._clock.monotonic()
        for reached in batch.partitions:
            position, append_ms = reached.position, reached.append_ms
            self.ownership.advance(reached.partition, position=position, append_ms=append_ms, now_seconds=now_seconds)
        self._inquiry.note_append_time(batch.append_time)
        for topic, available in batch.append_time.items():
            self._instruments.append_time.labels(topic).set(available)
        for (topic, kind), count in batch.tombstones.counts.items():
            self._instruments.tombstones.labels(topic, kind).inc(count)
        self._refuse_unkeyed(batch)
        self._open_gates()

    def _store_points(self, batch: MessageBatch, exposed: frozenset[int]) -> None:
        for part, decoded, source in decode(batch, self._selection, self._aside, self._instruments):
            cumulative = self._deltas.accumulate(decoded, part.columns, source)
            outcomes = self._store.apply(cumulative, part.columns, source)
            self._instruments.count_points(outcomes, decoded.unsupported)
            self.freshness.note(part, decoded, exposed)

    def _end(self, tombstones: Sequence[Tombstone]) -> None:
        """Remove the series of keys that have ended; what comes under them from now on makes new ones."""
        removed, forgotten = self._store.end_keys([one.key_hash for one in tombstones])
        self._deltas.end(tombstones)
        self._instruments.removed.labels("tombstone").inc(removed)
        self._forget(forgotten)

    def _refuse_unkeyed(self, batch: MessageBatch) -> None:
        for topic, count in batch.unkeyed.items():
            self._instruments.unkeyed.labels(topic).inc(count)
            self._log.error(
                "messages without a key are not exposed: their series lie in several partitions, and the replicas of a "
                "group would each show a part of them; set bridge.mode to sharded, or have their writer set a key",
                topic=topic,
                count=count,
            )

    def _upkeep(self) -> None:
        now_seconds = self._clock.monotonic()
        if now_seconds - self._upkeep_due > PAUSED_SECONDS:
            self._expiry_due = max(self._expiry_due, now_seconds + PAUSED_SECONDS)
        self._upkeep_due = now_seconds + UPKEEP_SECONDS
        owned = self.ownership.owned()
        self._deltas.upkeep(self.ownership.newest_append_ms)
        self.skipper.kept_whole |= self._deltas.topics
        for partition in owned:
            self._look_ahead(partition)
        self._inquiry.ask_again([partition for partition in owned if partition.waits or partition.gate is None])
        self._inquiry.ask_whether_settled()
        self._inquiry.ask_for_ids(owned)
        self._note_growth()
        self._release()
        self._open_gates()
        self._instruments.count_conflicts([*self._store.take_conflicts(), *self._deltas.take_conflicts()])
        self._store.judge_producers(self.ownership.reference_ms(now_seconds))
        if now_seconds >= self._expiry_due:
            self._expiry_due = now_seconds + self._policy.ttl_seconds / EXPIRIES_PER_TTL
            self._inquiry.ask_for_time(owned)
            self._expire(owned)
        if now_seconds >= self._commit_due:
            self._commit_due = now_seconds + COMMIT_SECONDS
            self._commit(owned)
        self._report()

    def _expire(self, partitions: Sequence[Partition]) -> None:
        """Remove what has ended in some partitions."""
        numbers = {partition.number for partition in partitions}
        now_seconds = self._clock.monotonic()
        oldest_ms = _of(numbers, self.ownership.oldest_ms(self._ttl_ms, now_seconds))
        removed, forgotten = self._store.expire(oldest_ms, _of(numbers, self.ownership.heard_ms(now_seconds)))
        self._deltas.expire(oldest_ms)
        self._instruments.removed.labels("expired").inc(removed)
        self._forget(forgotten)

    def _note_growth(self) -> None:
        """Note which of our partitions were added lately; a group's members alone have anything to note."""
        keys = [partition.key for partition in self.ownership.owned() if self._policy.grouped]
        states, known = self._inquiry.growth.states(keys), self._growth
        self._growth = {self.ownership.number(key): state for key, state in states.items() if state != UNCHANGED}
        self._deltas.note_sharing(self._inquiry.growth.others(keys), self._growth)
        if self._growth != known:
            self._store.note_growth(self._growth)
            self._release(holding=True)

    def _release(self, *, holding: bool = False) -> None:
        """Expose what other replicas have withdrawn."""
        if self._growth or holding:
            period_seconds = self._policy.ttl_seconds / EXPIRIES_PER_TTL
            margin_seconds = period_seconds + SILENT_SECONDS + 2 * UPKEEP_SECONDS
            heard_ms = self.ownership.heard_ms(self._clock.monotonic())
            self._store.release(heard_ms, ttl_ms=self._ttl_ms, margin_ms=round(margin_seconds * 1000))

    def _look_ahead(self, partition: Partition) -> None:
        """Learn where a partition ends now, and jump there if that is too far away."""
        topic, number = partition.key
        known = self._source.known_high(TopicPartition(topic, number))
        partition.high = max(partition.position, known if known >= 0 else partition.high)
        self._instruments.lag.labels(topic, str(number)).set(partition.lag)
        if not partition.lag or partition.newest_append_ms:
            lag_ms = self._clock.now_ns() // 1_000_000 - partition.newest_append_ms if partition.lag else 0
            self._instruments.lag_seconds.labels(topic, str(number)).set(max(0, lag_ms) / 1e3)
        if self._policy.max_lag_seconds:
            self._skip(partition)

    def _skip(self, partition: Partition) -> None:
        most, back = self._policy.max_lag_seconds, self._policy.ttl_seconds / 2
        try:
            self.skipper.look(self.ownership, partition, max_seconds=most, back_seconds=back)
        except BrokerError as error:
            self._log.warning("messages not skipped", topic=partition.key[0], reason=str(error))

    def _report(self) -> None:
        instruments, owned = self._instruments, self.ownership.owned()
        passed = sum(partition.passed for partition in owned)
        instruments.partitions.labels("exposed").set(passed)
        instruments.partitions.labels("catching_up").set(len(owned) - passed)
        instruments.ready.set(self.ownership.readiness()[0])
        instruments.lines.set(self._store.lines)
        for state, count in self._store.states().items():
            instruments.series.labels(state).set(count)

    def _open_gates(self) -> None:
        """Expose partitions that have caught up, without what has ended in them: it may live on in other partitions."""
        ready = self.ownership.ready_to_open(self._clock.monotonic())
        if ready:  # asked before they count as passed: readiness must not be seen before the series are
            self._inquiry.ask_for_time_again(ready)
        opened = self.ownership.opened(self._clock.monotonic()) if ready else []
        if opened:
            self._expire(opened)
            self._release()
        for partition in opened:
            self._store.expose(partition.number, exposed=True)

    def _commit(self, partitions: Sequence[Partition]) -> None:
        """For lag monitors, and so that no dead letter is sent twice; a restart reads one time-to-live again anyway."""
        try:
            self._source.commit(self._offsets(partitions))
        except BrokerError as error:
            self._log.warning("offsets not committed", reason=str(error))

    def _confirm_membership(self) -> None:
        """Commit and wait for the answer: Kafka refuses commits of a member that it has removed from the group."""
        try:
            self._source.commit(self._offsets(self.ownership.owned()), wait=True)
        except BrokerError as error:
            self._log.warning("membership of the group not confirmed; no series are exposed", reason=str(error))
        else:
            self.membership.confirmed()

    def _offsets(self, partitions: Sequence[Partition]) -> list[TopicPartition]:
        ids = self.ownership.topic_ids
        return [
            TopicPartition(*partition.key, partition.position, ids.get(partition.key[0], ""))
            for partition in partitions
            if partition.position >= 0
        ]

    def _forget(self, forgotten: Forgotten) -> None:
        for source, numbers in forgotten:
            source.forget(numbers)
            self._deltas.forget(source, numbers)


def _of(numbers: set[int], by_number: Mapping[int, int]) -> dict[int, int]:
    return {number: value for number, value in by_number.items() if number in numbers}
