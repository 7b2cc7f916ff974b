"""From Kafka into the store: partitions that come and go, batches, ages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import structlog
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from kernelcast.bridge.batch import Aside, Batch, Message, MetricsDecoder, decode
from kernelcast.bridge.clock import Clock
from kernelcast.bridge.instruments import Instruments, last_of_each
from kernelcast.bridge.ownership import Ownership, Partition, keys_of
from kernelcast.bridge.store import SeriesStore
from kernelcast.columnar import Decoded
from kernelcast.wire.errors import BrokerError

MESSAGES_AT_ONCE: Final = 200
"""At 512 KiB each, 100 MiB at most are in flight."""
POLL_SECONDS: Final = 0.05
"""`consume` waits this long for a full batch: what a point waits at most before it is stored."""
UPKEEP_SECONDS: Final = 1.0
COMMIT_SECONDS: Final = 5.0
REWIND_MARGIN_SECONDS: Final = 5.0
"""How much more than a time-to-live is read again, for messages that were on their way."""
EXPIRIES_PER_TTL: Final = 30
GATE_PAUSE_SECONDS: Final = 1.0
LONGEST_GATE_PAUSE_SECONDS: Final = 60.0


class Source(Protocol):
    """The part of a Kafka consumer that is needed here: `runtime.kafka.Consumer`."""

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        """Read messages, and errors apart from them."""

    def ends(self) -> list[TopicPartition]:
        """Partitions read to their end since the last call, with the offset after it."""

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset kept, and the next to be written."""

    def known_high(self, partition: TopicPartition) -> int:
        """The next offset to be written as far as is known; asks nobody."""

    def offsets_for_time(self, partitions: Sequence[TopicPartition], time_ns: int) -> list[TopicPartition]:
        """Where each partition stood at a time."""

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Commit the offsets of the next messages to be read."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What an intake works with."""

    source: Source
    decoder: MetricsDecoder
    store: SeriesStore
    aside: Aside
    instruments: Instruments
    clock: Clock


class Intake:
    """Reads Kafka into the store; everything here runs on one thread, rebalancing included.

    Attributes:
        ownership: The partitions that are ours.
    """

    def __init__(self, parts: Parts, *, ttl_seconds: float) -> None:
        """Connect the parts.

        Args:
            parts: What to work with.
            ttl_seconds: How long a series stays after its last point, by Kafka's clock.
        """
        self._source, self._decoder, self._store = parts.source, parts.decoder, parts.store
        self._aside, self._instruments, self._clock = parts.aside, parts.instruments, parts.clock
        self._ttl_ms = round(ttl_seconds * 1000)
        self._log = structlog.stdlib.get_logger("bridge.consume")
        self._upkeep_due = self._commit_due = self._expiry_due = self._gate_due = 0.0
        self._gate_pause_seconds = GATE_PAUSE_SECONDS
        self.ownership = Ownership()

    def assigned(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Start reading partitions one time-to-live ago, hidden until they have caught up."""
        self._instruments.rebalances.labels("assigned").inc()
        starts = self._starts(partitions)
        for start, gate in zip(starts, self._gates(starts), strict=True):
            key = (start.topic, start.partition)
            known_start = start.offset if start.offset >= 0 else -1
            taken = self.ownership.assign(key, start=known_start, gate=gate)
            self._store.expose(taken.number, exposed=False)
            self._instruments.expect(start.topic)
        self.ownership.stable = True
        self._open_gates()
        self._log.info("partitions assigned", partitions=len(starts), now_owned=len(self.ownership.owned()))
        return starts

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Drop the series of partitions at once: another member exposes them."""
        self._instruments.rebalances.labels("lost" if lost else "revoked").inc()
        self.ownership.stable = False
        for partition in self.ownership.revoke(keys_of(partitions)):
            removed, numbers = self._store.drop_partition(partition.number)
            self._instruments.removed.labels("revoked").inc(removed)
            self._forget(numbers)
            topic, number = partition.key
            self._instruments.lag.remove(topic, str(number))
        self._log.info("partitions revoked", partitions=len(partitions), lost=lost)

    def step(self) -> int:
        """Read and store one batch; returns how many messages it had.

        Raises:
            BrokerError: An error that will not pass.
        """
        received, _errors = self._source.consume(MESSAGES_AT_ONCE, POLL_SECONDS)
        if received:
            self._store_batch(received)
        ends = self._source.ends()
        for end in ends:
            self.ownership.reached_end((end.topic, end.partition), end.offset)
        if ends:
            self._open_gates()
        if self._clock.monotonic() >= self._upkeep_due:
            self._upkeep()
        return len(received)

    def _store_batch(self, received: Sequence[Message]) -> None:
        batch = Batch.of(received, self.ownership, self._clock.now_ns() // 1_000_000)
        for part, decoded in decode(batch, self._decoder, self._aside, self._instruments):
            outcomes = self._store.apply(decoded, part.columns, self._decoder.identity)
            self._instruments.count_points(outcomes, decoded.unsupported)
            self._observe(part, decoded)
        now_seconds = self._clock.monotonic()
        for partition, position, append_ms in batch.partitions:
            self.ownership.advance(partition, position=position, append_ms=append_ms, now_seconds=now_seconds)
        for topic, available in batch.append_time.items():
            self._instruments.append_time.labels(topic).set(available)
        self._open_gates()

    def _observe(self, batch: Batch, decoded: Decoded) -> None:
        """Count messages and points by topic, and how old the newest points were."""
        now_ns = self._clock.now_ns()
        topics = [message.topic() or "" for message in batch.messages]
        for topic in set(topics):
            self._instruments.messages.labels(topic).inc(topics.count(topic))
        ahead: dict[str, float] = {}
        for columns in (decoded.numbers, decoded.histograms):
            points = np.bincount(columns.message, minlength=len(topics))
            for index in last_of_each(columns.message).tolist():
                message = int(columns.message[index])
                topic, time_ns = topics[message], int(columns.time_ns[index])
                self._instruments.points.labels(topic).inc(int(points[message]))
                self._instruments.freshness.labels(topic).observe(max(0, now_ns - time_ns) / 1e9)
                ahead_seconds = time_ns / 1e9 - int(batch.columns.append_ms[message]) / 1e3
                ahead[topic] = max(ahead.get(topic, ahead_seconds), ahead_seconds)
        for topic, seconds in ahead.items():
            self._instruments.clock_ahead.labels(topic).set(seconds)

    def _upkeep(self) -> None:
        now_seconds = self._clock.monotonic()
        self._upkeep_due = now_seconds + UPKEEP_SECONDS
        owned = self.ownership.owned()
        for partition in owned:
            self._look_ahead(partition)
        self._ask_for_gates([partition for partition in owned if partition.gate is None])
        self._open_gates()
        if now_seconds >= self._expiry_due:
            self._expiry_due = now_seconds + self._ttl_ms / 1000 / EXPIRIES_PER_TTL
            removed, numbers = self._store.expire(self.ownership.oldest_ms(self._ttl_ms, now_seconds))
            self._instruments.removed.labels("expired").inc(removed)
            self._forget(numbers)
        if now_seconds >= self._commit_due:
            self._commit_due = now_seconds + COMMIT_SECONDS
            self._commit()
        self._report()

    def _look_ahead(self, partition: Partition) -> None:
        """Learn where a partition ends now."""
        topic, number = partition.key
        partition.high = max(partition.high, self._source.known_high(TopicPartition(topic, number)))
        self._instruments.lag.labels(topic, str(number)).set(partition.lag)

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
        for partition in self.ownership.opened():
            self._store.expose(partition.number, exposed=True)

    def _forget(self, numbers: np.ndarray[tuple[int], np.dtype[np.intp]]) -> None:
        if len(numbers):
            self._decoder.forget(numbers.astype(np.int32))

    def _starts(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """One time-to-live ago by Kafka's clock where that is known, else by ours; or the beginning."""
        broker_ms = self.ownership.broker_ms(self._clock.monotonic())
        now_ns = self._clock.now_ns() if broker_ms is None else round(broker_ms * 1e6)
        time_ns = now_ns - self._ttl_ms * 1_000_000 - round(REWIND_MARGIN_SECONDS * 1e9)
        try:
            return self._source.offsets_for_time(partitions, time_ns)
        except BrokerError as error:
            self._log.warning("reading partitions from their beginning", reason=str(error))
            return [TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions]

    def _ask_for_gates(self, partitions: Sequence[Partition]) -> None:
        """Ask again where that failed before, ever more rarely: a partition without a leader takes seconds to say so.

        Meanwhile whatever can be read is; a partition that is read to its end needs no gate.
        """
        now_seconds = self._clock.monotonic()
        if not partitions:
            self._gate_pause_seconds = GATE_PAUSE_SECONDS
        elif now_seconds >= self._gate_due:
            gates = self._gates([TopicPartition(*partition.key) for partition in partitions])
            for partition, gate in zip(partitions, gates, strict=True):
                partition.gate = gate
            self._gate_due = now_seconds + self._gate_pause_seconds
            self._gate_pause_seconds = min(self._gate_pause_seconds * 2, LONGEST_GATE_PAUSE_SECONDS)

    def _gates(self, partitions: Sequence[TopicPartition]) -> list[int | None]:
        """Where partitions must be read to before they are exposed; None from the first that Kafka says nothing of."""
        gates: list[int | None] = []
        for partition in partitions:
            try:
                low, high = self._source.watermarks(TopicPartition(partition.topic, partition.partition))
            except BrokerError as error:
                self._log.warning("high watermark unknown", topic=partition.topic, reason=str(error))
                break
            gates.append(high if high > low else 0)
        return gates + [None] * (len(partitions) - len(gates))

    def _commit(self) -> None:
        """For lag monitors only: a restart reads one time-to-live again anyway."""
        offsets = [
            TopicPartition(*partition.key, partition.position)
            for partition in self.ownership.owned()
            if partition.position >= 0
        ]
        try:
            self._source.commit(offsets)
        except BrokerError as error:
            self._log.warning("offsets not committed", reason=str(error))
