"""Reads Kafka into the store: assignments, batches, and the expiry of series.

`Bridge` calls `step` in a loop on the consuming thread; Kafka's client calls `assigned` and `revoked` within it, or
`Discovery` without a group. A step: `consume` → `MessageBatch` → `decode` → `SeriesStore.apply`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from confluent_kafka import OFFSET_END, TopicPartition

from kernelcast.bridge.inputs import Input
from kernelcast.bridge.intake.batch import MessageBatch, decode
from kernelcast.bridge.intake.dead_letters import FirstTimeDeadLetters
from kernelcast.bridge.intake.freshness import Freshness
from kernelcast.bridge.intake.future_points import mark_future
from kernelcast.bridge.intake.inquiry import SILENT_SECONDS, Inquiry
from kernelcast.bridge.intake.membership import GroupMembership
from kernelcast.bridge.intake.parts import IntakeParts, IntakePolicy
from kernelcast.bridge.intake.skip import Skipper
from kernelcast.bridge.partitions.growth import EXPIRIES_PER_TTL
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.bridge.partitions.partition import Key, Partition, keys_of
from kernelcast.bridge.partitions.tombstones import Tombstone
from kernelcast.bridge.series.store import Forgotten
from kernelcast.bridge.tables.columns import DELTA, UNCHANGED
from kernelcast.columnar import Decoded
from kernelcast.runtime.kafka.clients import StampedMessage
from kernelcast.wire.errors import BrokerError, DeltaError

MESSAGES_AT_ONCE: Final = 200
"""At 512 KiB each, 100 MiB at most are in flight."""
POLL_SECONDS: Final = 0.05
"""Longest time that `consume` waits for a full batch, and so the longest delay of a point before it is stored."""
UPKEEP_SECONDS: Final = 1.0
"""Interval of everything that is not reading: queries to Kafka, snapshots, expiry, gauges."""
PAUSED_SECONDS: Final = 5.0
"""A process that was suspended for longer has not read the messages of that time yet: the periodic expiry waits for
this time, in which the consumer fetches the present ends of the partitions."""
ONE_PARTITION: Final = frozenset({0})
"""Partition numbers of a topic whose series cannot be in several partitions."""
DELTA_REMEDY: Final = (
    "the bridge reads cumulative points: have the producer send cumulative totals, or convert the topic with an "
    "OpenTelemetry Collector (deploy/collector/delta.yaml) and read the topic that it writes"
)
COMMIT_SECONDS: Final = 5.0
"""Interval of commits; a restart reads one time-to-live again in any case."""


class Intake:
    """Reads Kafka into the store. All methods run on the consuming thread, including rebalances.

    Attributes:
        ownership: The assigned partitions.
        freshness: Measures the delays of points; the threads that answer scrapes call its `scraped`.
        skipper: Skips messages when reading is too far behind.
        membership: Decides whether the partitions may be exposed.
    """

    def __init__(self, parts: IntakeParts, policy: IntakePolicy) -> None:
        """Connect the parts."""
        self._source, self._selection, self._store = parts.source, parts.selection, parts.store
        self._instruments, self._clock = parts.instruments, parts.clock
        self._policy = policy
        self._ttl_ms = round(policy.ttl_seconds * 1000)
        self._log = structlog.stdlib.get_logger("bridge.consume")
        self._upkeep_due = self._commit_due = self._expiry_due = 0.0
        self._growth: dict[int, int] = {}
        self.ownership = Ownership(joint=not policy.grouped, ttl_seconds=policy.ttl_seconds)
        self.membership = GroupMembership(parts.clock, grouped=policy.grouped, session_seconds=policy.session_seconds)
        self.freshness = Freshness(parts.instruments, parts.clock)
        self._dead_letters = FirstTimeDeadLetters(parts.dead_letters, self.ownership, parts.instruments)
        self._inquiry = Inquiry(parts.source, self.ownership, parts.instruments, parts.clock, ttl_ms=self._ttl_ms)
        self.skipper = Skipper(parts.source, self._inquiry.bounds, parts.instruments, parts.clock)

    def assigned(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Take partitions over; they are read from one time-to-live ago and hidden until they have caught up."""
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
        self._inquiry.learn_partitions(topics)
        for key, offset in self._inquiry.bounds.committed(keys, self.ownership.topic_ids).items():
            self.ownership.judged_before(key, offset)
        self.ownership.stable = True
        self._note_growth()
        self._open_gates()
        self._log.info("partitions assigned", partitions=len(keys), now_owned=len(self.ownership.owned()))
        return [TopicPartition(*key, starts.get(key, OFFSET_END)) for key in keys]

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Drop the series of partitions at once: another member exposes them.

        After a pause, librdkafka may not know yet that the group has removed us, and revoke in good order.
        """
        if not lost and self.membership.doubtful:
            self._confirm_membership()
            lost = self.membership.doubtful
        self.membership.confirmed()
        self._instruments.rebalances.labels("lost" if lost else "revoked").inc()
        self.ownership.stable = False
        gone = self.ownership.revoke(keys_of(partitions))
        for partition in gone:
            removed, forgotten = self._store.drop_partition(partition.number)
            self._instruments.removed.labels("revoked").inc(removed)
            self._forget(forgotten)
            self._instruments.part_from(*partition.key)
        self._note_growth()
        if not lost:
            self._commit(gone)
        self._log.info("partitions revoked", partitions=len(partitions), lost=lost)

    def readiness(self) -> tuple[bool, str]:
        """Return whether every partition has caught up and is certainly ours; if not, the reason."""
        confirmed = self.membership.readiness()
        return self.ownership.readiness() if confirmed[0] else confirmed

    def step(self) -> int:
        """Read and store one batch; returns how many messages it had.

        Raises:
            BrokerError: A permanent error.
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

    def _store_batch(self, received: Sequence[StampedMessage]) -> None:
        now_ms = self._clock.now_ns() // 1_000_000
        batch = MessageBatch.of(received, self.ownership, now_ms, keyed=self._needs_keys)
        for reached in batch.partitions:
            if self.ownership.start_over(reached.partition, reached.first):
                self._inquiry.note_restart(reached.partition, reached.first)
                self._upkeep_due = min(self._upkeep_due, self._clock.monotonic())
        exposed = frozenset(partition.number for partition in self.ownership.owned() if partition.passed)
        for segment, tombstones in batch.segments():
            self._store_points(segment, exposed)
            if tombstones:
                self._end(tombstones)
        now_seconds = self._clock.monotonic()
        for reached in batch.partitions:
            position, append_ms = reached.position, reached.append_ms
            self.ownership.advance(reached.partition, position=position, append_ms=append_ms, now_seconds=now_seconds)
        self.ownership.note_appends(batch.columns.append_ms)
        self._inquiry.note_append_time(batch.append_time)
        for topic, available in batch.append_time.items():
            self._instruments.append_time.labels(topic).set(available)
        for (topic, kind), count in batch.tombstones.counts.items():
            self._instruments.tombstones.labels(topic, kind).inc(count)
        self._refuse_unkeyed(batch)
        self._open_gates()

    def _store_points(self, batch: MessageBatch, exposed: frozenset[int]) -> None:
        for part, decoded, source in decode(batch, self._selection, self._dead_letters, self._instruments):
            mark_future(decoded, part.columns.append_ms, self._policy.tolerance_ns)
            outcomes = self._store.apply(decoded, part.columns, source)
            if outcomes[DELTA]:
                self._refuse_deltas(part, decoded, source)
            self._instruments.count_points(outcomes, decoded.unsupported)
            self.freshness.note(part, decoded, exposed)

    def _refuse_deltas(self, batch: MessageBatch, decoded: Decoded, source: Input) -> None:
        """Send the messages with points of delta series to the dead letters; their other points are stored."""
        refused = Counter[int]()
        for points in (decoded.numbers, decoded.histograms):
            refused.update(points.message[self._store.are_refused(points.series, source, DELTA)].tolist())
        for index, count in sorted(refused.items()):
            message, error = batch.messages[index], DeltaError(f"{count} points are delta points; {DELTA_REMEDY}")
            self._instruments.decode_failures.labels(message.topic() or "", type(error).__name__).inc()
            self._dead_letters.send(message, error)

    def _end(self, tombstones: Sequence[Tombstone]) -> None:
        """Remove the series of keys that have ended; later messages with these keys make new series."""
        removed, forgotten = self._store.end_keys([one.key_hash for one in tombstones])
        self._instruments.removed.labels("tombstone").inc(removed)
        self._forget(forgotten)

    def _needs_keys(self, topic: str) -> bool:
        """Whether messages without a key are refused: in a group, where Kafka has listed several partitions."""
        return self._policy.grouped and self._inquiry.growth.known(topic) not in (None, ONE_PARTITION)

    def _refuse_unkeyed(self, batch: MessageBatch) -> None:
        for topic, count in batch.unkeyed.items():
            self._instruments.unkeyed.labels(topic).inc(count)
            self._log.error(
                "messages without a key are not exposed: their topic has several partitions, and the replicas of a "
                "group would each show a part of a series; set bridge.mode to replica, or have their writer set a key",
                topic=topic,
                count=count,
            )

    def _upkeep(self) -> None:
        now_seconds = self._clock.monotonic()
        if now_seconds - self._upkeep_due > PAUSED_SECONDS:
            self._expiry_due = max(self._expiry_due, now_seconds + PAUSED_SECONDS)
        self._upkeep_due = now_seconds + UPKEEP_SECONDS
        owned = self.ownership.owned()
        doubtful = self.membership.doubtful
        for partition in owned:
            self._look_ahead(partition)
        self._inquiry.ask_again([partition for partition in owned if partition.waits or partition.gate is None])
        self._inquiry.ask_for_ids(owned)
        self.ownership.stable = self.ownership.stable or self._source.settled()
        self._note_growth()
        self._release()
        self._open_gates()
        self._instruments.count_conflicts(self._store.take_conflicts())
        for producer, count in self._store.take_ahead():
            self._instruments.clamped.count(producer, "", count)
        self._store.judge_producers(self.ownership.ages.reference_ms(now_seconds))
        if now_seconds >= self._expiry_due:
            self._expiry_due = now_seconds + self._policy.ttl_seconds / EXPIRIES_PER_TTL
            self._inquiry.ask_for_time(owned)
            self._expire(owned)
        if now_seconds >= self._commit_due and not doubtful:
            self._commit_due = now_seconds + COMMIT_SECONDS
            self._commit(owned)
        self._report()

    def _expire(self, partitions: Sequence[Partition]) -> None:
        """Remove the series that have expired in some partitions."""
        numbers = {partition.number for partition in partitions}
        now_seconds = self._clock.monotonic()
        oldest_ms = _restricted_to(numbers, self.ownership.ages.oldest_ms(self._ttl_ms, now_seconds))
        heard_ms = _restricted_to(numbers, self.ownership.ages.heard_ms(now_seconds))
        removed, forgotten = self._store.expire(oldest_ms, heard_ms, self.ownership.ages.outages())
        self._instruments.removed.labels("expired").inc(removed)
        self._forget(forgotten)

    def _note_growth(self) -> None:
        """Note which of our partitions were added recently; does nothing without a consumer group."""
        owned = self.ownership.owned() if self._policy.grouped else []
        keys = [partition.key for partition in owned]
        caught_up = [partition.key for partition in owned if partition.passed]
        growth, known = self._inquiry.growth, self._growth
        self._growth = self._numbered(growth.states(keys, caught_up))
        self.ownership.ages.moving = frozenset(self._growth)
        if self._growth != known:
            self._store.note_growth(self._growth)
            self._release(holding=True)

    def _numbered(self, states: Mapping[Key, int]) -> dict[int, int]:
        """Return the states of partitions of topics that have grown, by partition number."""
        return {self.ownership.number(key): state for key, state in states.items() if state != UNCHANGED}

    def _release(self, *, holding: bool = False) -> None:
        """Expose series that other replicas have withdrawn."""
        if self._growth or holding:
            period_seconds = self._policy.ttl_seconds / EXPIRIES_PER_TTL
            margin_seconds = period_seconds + SILENT_SECONDS + 2 * UPKEEP_SECONDS
            heard_ms = self.ownership.ages.heard_ms(self._clock.monotonic())
            taken_at, outages = self.ownership.taken_at(), self.ownership.ages.outages()
            margin_ms = round(margin_seconds * 1000)
            self._store.release(heard_ms, taken_at, outages, ttl_ms=self._ttl_ms, margin_ms=margin_ms)

    def _look_ahead(self, partition: Partition) -> None:
        """Update the known end of a partition, and skip messages if it is too far ahead."""
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
            self.skipper.skip_if_behind(self.ownership, partition, max_seconds=most, back_seconds=back)
        except BrokerError as error:
            self._log.warning("messages not skipped", topic=partition.key[0], reason=str(error))

    def _report(self) -> None:
        instruments, owned = self._instruments, self.ownership.owned()
        passed = sum(partition.passed for partition in owned)
        instruments.partitions.labels("exposed").set(passed)
        instruments.partitions.labels("catching_up").set(len(owned) - passed)
        instruments.count_partitions(self._inquiry.growth.counts(self._policy.topics))
        instruments.ready.set(self.ownership.readiness()[0])
        instruments.kafka_outage.set(self.ownership.outage_seconds(self._clock.monotonic()))
        instruments.lines.set(self._store.lines)
        for state, count in self._store.states().items():
            instruments.series.labels(state).set(count)

    def _open_gates(self) -> None:
        """Expose partitions that have caught up.

        Expired series are removed first, because they may continue in other partitions.
        """
        ready = self.ownership.ready_to_open(self._clock.monotonic())
        if ready:  # queried before they are marked as passed, or /-/ready would succeed before the series are exposed
            self._inquiry.ask_for_time_again(ready)
        opened = self.ownership.opened(self._clock.monotonic()) if ready else []
        if opened:
            self._expire(opened)
            self._release()
        for partition in opened:
            self._store.expose(partition.number, exposed=True)
        if opened:
            self._note_growth()

    def _commit(self, partitions: Sequence[Partition]) -> None:
        """Commit positions, for lag monitors and so that no dead letter is sent twice.

        A restart rereads one time-to-live in any case.
        """
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


def _restricted_to(numbers: set[int], by_number: Mapping[int, int]) -> dict[int, int]:
    return {number: value for number, value in by_number.items() if number in numbers}
