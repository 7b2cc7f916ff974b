"""Snapshots of running totals on `kernelcast.state`: `Deltas` writes them, `Beginnings` and `Adoption` read them.

The key of a part is `bridge/<owner>/<what>/<writer>/<slot>/<number>`, for example
`bridge/kernelcast-bridge/kernelcast.metrics/3/a91f.../1/0`. A writer has two slots and alternates between them, so that
an unfinished snapshot never destroys the one before. Each process is one writer, so that two processes that both
believe to own a partition never mix their parts. When a topic is deleted and created again, a writer takes two other
slots: a replica that lags needs the totals of the deleted log, which are kept for `RECENT_SECONDS`. All keys with one
prefix `bridge/<owner>/<what>` are in one partition of the topic, so a restart reads only that partition.
"""

import secrets
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

import structlog
from confluent_kafka import OFFSET_BEGINNING

from kernelcast.bridge.delta.persistence.snapshot import Key, SnapshotPart, TotalsSnapshot, load
from kernelcast.runtime.kafka.producer import DeliveryListener
from kernelcast.runtime.kafka.replay import ReplayConsumer, to_end
from kernelcast.wire.errors import WireError
from kernelcast.wire.topics import STATE

RECENT_SECONDS: Final = 600.0
"""Period that is read first: the topic may hold hours of snapshots that Kafka has not compacted yet. Snapshots of a
deleted log are kept equally long."""
KEPT_NS: Final = round(RECENT_SECONDS * 1e9)
IDENTITY_BYTES: Final = 8
LOG_APPEND_TIME: Final = 2
"""confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: Kafka stamped the message, not its producer."""


class _Stored(NamedTuple):
    """A part of a snapshot as read from Kafka; `append_ms` is 0 if Kafka does not stamp messages."""

    body: bytes
    append_ms: int


_Slots = dict[bytes, dict[int, _Stored]]
"""Parts by number, by the slot's key."""


class StateProducer(Protocol):
    """The part of a Kafka producer that is needed here."""

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        on_delivery: DeliveryListener | None = None,
        partition: int | None = None,
    ) -> None:
        """Queue a message."""

    def flush(self, timeout_seconds: float) -> int:
        """Wait for acknowledgements."""


class StateConsumer(ReplayConsumer, Protocol):
    """A consumer that also finds offsets by time."""

    def offsets_for_time(self, partitions: Any, time_ns: int) -> list[Any]:
        """Return the first offset at or after a time, for each partition."""


@dataclass
class _Writing:
    """Progress of writing one snapshot name (`what`).

    Attributes:
        slot: The slot that is written next; the other one is `slot ^ 1`.
        parts: Number of parts in each of this writer's slots.
        topic_ids: Kafka's ids of topics in the last snapshot.
        others: Keys of other writers and of deleted logs, with the time from which they are dropped.
    """

    slot: int = 0
    parts: dict[int, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    others: dict[bytes, int] = field(default_factory=dict)


def name_of(key: Key) -> str:
    """Return the name of the snapshot of one partition."""
    return f"{key[0]}/{key[1]}"


class StateTopic:
    """Writes and reads the snapshots of one owner: a consumer group, or all replicas of a mode without one.

    Only the consuming thread uses it.
    """

    def __init__(
        self,
        owner: str,
        producer: StateProducer,
        open_reader: Callable[[], StateConsumer],
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Prepare to write and read.

        Args:
            owner: Name of the consumer group, or of the set of replicas.
            producer: Sends the parts.
            open_reader: Returns a new consumer that reports the ends of partitions.
            now_ns: The wall clock.
        """
        self._owner, self._producer, self._open_reader, self._now_ns = owner, producer, open_reader, now_ns
        self._writer = secrets.token_hex(IDENTITY_BYTES)
        self._partitions = 0
        self._known: dict[str, _Writing] = {}
        self._log = structlog.stdlib.get_logger("bridge.delta.state")

    def apart(self) -> "StateTopic":
        """Return another object for the same snapshots, which another thread may use."""
        return StateTopic(self._owner, self._producer, self._open_reader, now_ns=self._now_ns)

    def write(self, what: str, snapshot: TotalsSnapshot, settled: Callable[[str | None], None]) -> int:
        """Queue a snapshot; it replaces the one before the last.

        Args:
            what: Name of the snapshot.
            snapshot: The totals.
            settled: Called once: with None when Kafka has acknowledged all parts, with the reason if it has not.

        Returns:
            Size in bytes; 0 if the topic does not exist.
        """
        partition = self._partition(what)
        if partition is None:
            settled(f"there is no topic {STATE.name}; make it with `kernelcast topics apply`")
            return 0
        writing, now_ns = self._known.setdefault(what, _Writing()), self._now_ns()
        if not snapshot.is_of(writing.topic_ids):
            writing.others |= dict.fromkeys(self._own(what, writing), now_ns + KEPT_NS)
            writing.slot, writing.parts = (writing.slot | 1) + 1, {}
        parts = snapshot.dump()
        tally = _Tally(len(parts), settled)
        for number, part in enumerate(parts):
            key = self._key(what, writing.slot, number)
            self._producer.send(STATE.name, key=key, value=part, partition=partition, on_delivery=tally.one)
        beyond = range(len(parts), writing.parts.get(writing.slot, 0))
        stale = {key for key, due_ns in writing.others.items() if due_ns <= now_ns}
        self._drop(stale | {self._key(what, writing.slot, number) for number in beyond}, partition)
        writing.parts[writing.slot], writing.topic_ids = len(parts), snapshot.topic_ids
        writing.slot ^= 1
        writing.others = {key: due_ns for key, due_ns in writing.others.items() if key not in stale}
        return sum(map(len, parts))

    def remove(self, what: str) -> None:
        """Delete all snapshots of one name, by tombstones."""
        partition, writing = self._partition(what), self._known.pop(what, None)
        if partition is not None and writing is not None:
            self._drop(self._own(what, writing) | writing.others.keys(), partition)

    def flush(self, timeout_seconds: float) -> None:
        """Wait until Kafka has acknowledged all written parts, or until the time-out."""
        self._producer.flush(timeout_seconds)

    def read(self, what: list[str], fits: Callable[[TotalsSnapshot], bool]) -> dict[str, TotalsSnapshot | WireError]:
        """Return the most advanced snapshot of each name, or the reason why none can be used.

        Names without a snapshot are absent. The next `write` drops the snapshots of other writers that fit, as the new
        one has their totals.

        Args:
            what: Names of snapshots.
            fits: Whether a snapshot is of the present log. One of an old log (the topic was deleted and created again)
                would win by its higher offsets, so it is returned only if there is no other.

        Raises:
            BrokerError: Kafka does not answer.
        """
        found: dict[str, TotalsSnapshot | WireError] = {}
        reader = self._open_reader()
        try:
            there = reader.partitions(STATE.name)
            self._partitions = len(there)
            by_partition: dict[int, list[str]] = {}
            for one in what:
                by_partition.setdefault(self._partition(one) or 0, []).append(one)
            for partition in there:
                wanted = by_partition.get(partition.partition, [])
                if wanted:
                    found |= self._read_partition(reader, partition, wanted, fits)
        finally:
            reader.close()
        return found

    def written(self, what: list[str]) -> set[str]:
        """Return the names for which there is a snapshot, without reading the contents.

        Raises:
            BrokerError: Kafka does not answer.
        """
        found: set[str] = set()
        reader = self._open_reader()
        try:
            there = reader.partitions(STATE.name)
            self._partitions = len(there)
            for partition in there:
                wanted = [one for one in what if self._partition(one) == partition.partition]
                if wanted:
                    partition.offset = OFFSET_BEGINNING
                    slots = self._slots(reader, partition, wanted)
                    found |= {one for one, by_slot in slots.items() if any(by_slot.values())}
        finally:
            reader.close()
        return found

    def _read_partition(
        self, reader: StateConsumer, partition: Any, what: list[str], fits: Callable[[TotalsSnapshot], bool]
    ) -> dict[str, TotalsSnapshot | WireError]:
        since_ns = self._now_ns() - round(RECENT_SECONDS * 1e9)
        (recent,) = reader.offsets_for_time([partition], since_ns)
        found = self._collect(reader, recent, what, fits)
        missing = [one for one in what if not isinstance(found.get(one), TotalsSnapshot)]
        if missing and recent.offset > 0:
            partition.offset = OFFSET_BEGINNING
            found |= self._collect(reader, partition, missing, fits)
        return found

    def _collect(
        self, reader: StateConsumer, partition: Any, what: list[str], fits: Callable[[TotalsSnapshot], bool]
    ) -> dict[str, TotalsSnapshot | WireError]:
        found = {}
        for one, by_slot in self._slots(reader, partition, what).items():
            writing = self._known.setdefault(one, _Writing())
            own = self._prefix(one) + f"/{self._writer}/".encode()
            snapshots = {slot: _stored(parts.values()) for slot, parts in by_slot.items() if parts}
            for slot, snapshot in snapshots.items():
                foreign = isinstance(snapshot, TotalsSnapshot) and not fits(snapshot)
                due_ns = self._now_ns() + KEPT_NS if foreign else 0
                keys = [] if slot.startswith(own) else [slot + f"/{number}".encode() for number in by_slot[slot]]
                writing.others |= {key: due_ns for key in keys if not (foreign and key in writing.others)}
            best = _best(snapshots.values(), fits)
            if best is not None:
                found[one] = best
        return found

    def _slots(self, reader: StateConsumer, partition: Any, what: list[str]) -> dict[str, _Slots]:
        """Read a partition from an offset to its end; return the slots by snapshot name."""
        prefixes = {self._prefix(one): one for one in what}
        slots: dict[str, _Slots] = {one: {} for one in what}
        for message in to_end(reader, [partition]):
            key = message.key() or b""
            slot, _, number = key.rpartition(b"/")
            one = prefixes.get(slot.rpartition(b"/")[0].rpartition(b"/")[0])
            if one is None or not number.isdigit():
                continue
            parts = slots[one].setdefault(slot, {})
            if message.value() is None:
                parts.pop(int(number), None)
            else:
                kind, append_ms = message.timestamp()
                parts[int(number)] = _Stored(message.value(), append_ms if kind == LOG_APPEND_TIME else 0)
        return slots

    def _partition(self, what: str) -> int | None:
        """Return the partition that holds a name's keys; None if the topic does not exist."""
        if not self._partitions:
            reader = self._open_reader()
            try:
                self._partitions = len(reader.partitions(STATE.name))
            finally:
                reader.close()
        return zlib.crc32(self._prefix(what)) % self._partitions if self._partitions else None

    def _drop(self, keys: set[bytes], partition: int) -> None:
        for key in sorted(keys):
            self._producer.send(STATE.name, key=key, value=None, partition=partition)

    def _own(self, what: str, writing: _Writing) -> set[bytes]:
        """Return the keys of this writer's parts in the present log."""
        return {self._key(what, slot, number) for slot, parts in writing.parts.items() for number in range(parts)}

    def _prefix(self, what: str) -> bytes:
        return f"bridge/{self._owner}/{what}".encode()

    def _key(self, what: str, slot: int, number: int) -> bytes:
        return self._prefix(what) + f"/{self._writer}/{slot}/{number}".encode()


class _Tally:
    """Reports once, after the last of several acknowledgements."""

    def __init__(self, parts: int, settled: Callable[[str | None], None]) -> None:
        self._left, self._settled, self._trouble = parts, settled, ""

    def one(self, trouble: str | None) -> None:
        self._left -= 1
        self._trouble = self._trouble or (trouble or "")
        if not self._left:
            self._settled(self._trouble or None)


def _best(
    read: Iterable[TotalsSnapshot | WireError], fits: Callable[[TotalsSnapshot], bool]
) -> TotalsSnapshot | WireError | None:
    """Return the most advanced snapshot that fits, the reason why none is usable, or None if there is none."""
    read = list(read)
    found = [one for one in read if isinstance(one, TotalsSnapshot)]
    trouble = next((one for one in reversed(read) if isinstance(one, WireError)), None)
    return max(found, key=lambda one: (fits(one), one.progress, one.written_ns), default=trouble)


def _stored(parts: Collection[_Stored]) -> TotalsSnapshot | WireError:
    """Return the snapshot in one slot, or the reason why it is unusable."""
    try:
        snapshot = _whole([SnapshotPart.of(one.body) for one in parts])
    except WireError as error:
        return error
    return replace(snapshot, append_ms=max(one.append_ms for one in parts))


def _whole(parts: list[SnapshotPart]) -> TotalsSnapshot:
    """Assemble the snapshot in one slot; parts that an earlier, longer snapshot left there are ignored."""
    newest = [part for part in parts if part.number == 0]
    identity = newest[0].identity if newest else b""
    return load([part for part in parts if part.identity == identity])
