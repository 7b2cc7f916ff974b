"""Snapshots of running totals on `kernelcast.state`: `Deltas` writes them, `Beginnings` and `Adoption` read them.

The key of a part is `bridge/<owner>/<name>/<writer>/<slot>/<number>`, for example
`bridge/kernelcast-bridge/kernelcast.metrics/3/a91f.../1/0`. A writer has two slots: it writes to the one without its
last acknowledged snapshot. It drops other writers' snapshots after an acknowledgement. So a write that fails destroys
no snapshot. Each process is one writer: two that both believe to own a partition never mix their parts. When a topic is
deleted and created again, a writer takes two other slots: a replica that lags needs the totals of the deleted log,
which are kept for `RECENT_SECONDS`. All keys with one prefix `bridge/<owner>/<name>` are in one partition of the topic,
so a restart reads only that partition.
"""

import secrets
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

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
        """Return each partition's first offset at or after a time: its end if no message is that young.

        It is negative, for the beginning, where Kafka has no time index.
        """


class _Write:
    """One snapshot that is being written. The producer calls `count_answer` on any thread that sends, polls or flushes.

    Attributes:
        slot: The slot that it is written to.
        replaces: Keys to be dropped once it is acknowledged.
        acknowledged: Whether Kafka has all parts.
    """

    def __init__(self, slot: int, parts: int, replaces: set[bytes], on_result: Callable[[str | None], None]) -> None:
        self.slot, self.replaces, self.acknowledged = slot, replaces, False
        self._unanswered, self._on_result, self._error = parts, on_result, ""
        self._lock = threading.Lock()

    def count_answer(self, error: str | None) -> None:
        """Count the answer for one part; after the last one report the result."""
        with self._lock:
            self._unanswered -= 1
            self._error = self._error or (error or "")
            if self._unanswered:
                return
        self.acknowledged = not self._error
        self._on_result(self._error or None)


@dataclass
class _Writing:
    """Progress of writing the snapshots of one name.

    Attributes:
        slot: The slot that is written next; the other one, `slot ^ 1`, has the last acknowledged snapshot.
        parts: Number of parts in each of this writer's slots.
        topic_ids: Kafka's ids of topics in the last snapshot.
        to_drop: Keys of other writers and of deleted logs, with the time from which they are dropped.
        last: The last write, until `_finish` has dropped the snapshots that it replaces.
    """

    slot: int = 0
    parts: dict[int, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    to_drop: dict[bytes, int] = field(default_factory=dict)
    last: _Write | None = None


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

    def for_other_thread(self) -> "StateTopic":
        """Return another object for the same snapshots, which another thread may use."""
        return StateTopic(self._owner, self._producer, self._open_reader, now_ns=self._now_ns)

    def write(self, name: str, snapshot: TotalsSnapshot, on_result: Callable[[str | None], None]) -> int:
        """Queue a snapshot. It never overwrites the last one that Kafka has acknowledged.

        Args:
            name: Name of the snapshot.
            snapshot: The totals.
            on_result: Called once, on any thread that sends, polls or flushes: with None when Kafka has all parts, with
                the reason if it has not.

        Returns:
            Size in bytes; 0 if the snapshot cannot be written.
        """
        partition = self._partition(name)
        if partition is None:
            on_result(f"there is no topic {STATE.name}; make it with `kernelcast topics apply`")
            return 0
        try:
            parts = snapshot.dump()
        except WireError as error:
            on_result(str(error))
            return 0
        writing, now_ns = self._known.setdefault(name, _Writing()), self._now_ns()
        self._finish(writing, partition)
        if not snapshot.matches_topics(writing.topic_ids):
            writing.to_drop |= dict.fromkeys(self._own_keys(name, writing), now_ns + KEPT_NS)
            writing.slot, writing.parts = (writing.slot | 1) + 1, {}
        slot, replaced = writing.slot, {key for key, due_ns in writing.to_drop.items() if due_ns <= now_ns}
        writing.last = _Write(slot, len(parts), replaced, on_result)
        for number, part in enumerate(parts):
            key = self._key(name, slot, number)
            listener = writing.last.count_answer
            self._producer.send(STATE.name, key=key, value=part, partition=partition, on_delivery=listener)
        beyond = range(len(parts), writing.parts.get(slot, 0))
        self._drop({self._key(name, slot, number) for number in beyond}, partition)
        writing.parts[slot], writing.topic_ids = len(parts), snapshot.topic_ids
        return sum(map(len, parts))

    def drop_replaced(self) -> None:
        """Drop the snapshots that acknowledged ones replace; `Deltas.upkeep` calls it."""
        for name, writing in self._known.items():
            if writing.last is not None and writing.last.acknowledged:
                self._finish(writing, self._partition(name))

    def remove(self, name: str) -> None:
        """Delete the snapshots of one name that this object has written or read, by tombstones."""
        partition, writing = self._partition(name), self._known.pop(name, None)
        if partition is not None and writing is not None:
            self._drop(self._own_keys(name, writing) | writing.to_drop.keys(), partition)

    def flush(self, timeout_seconds: float) -> None:
        """Wait until Kafka has acknowledged all written parts, or until the time-out."""
        self._producer.flush(timeout_seconds)
        self.drop_replaced()

    def read(
        self, names: list[str], matches_log: Callable[[TotalsSnapshot], bool]
    ) -> dict[str, TotalsSnapshot | WireError]:
        """Return the most advanced snapshot of each name, or the reason why none can be used.

        Names without a snapshot are absent. The next `write` replaces the matching ones of other writers, as it has
        their totals; all others are kept for `RECENT_SECONDS`.

        Args:
            names: Names of snapshots.
            matches_log: Whether a snapshot is of the present log. One of another log (the topic was created again)
                would win by its higher offsets, so it is returned only if there is no other.

        Raises:
            BrokerError: Kafka does not answer.
        """
        found: dict[str, TotalsSnapshot | WireError] = {}
        reader = self._open_reader()
        try:
            for partition, wanted in self._names_by_partition(reader, names):
                found |= self._read_partition(reader, partition, wanted, matches_log)
        finally:
            reader.close()
        return found

    def written(self, names: list[str]) -> set[str]:
        """Return the names for which there is a snapshot, without reading the contents.

        Raises:
            BrokerError: Kafka does not answer.
        """
        found: set[str] = set()
        reader = self._open_reader()
        try:
            for partition, wanted in self._names_by_partition(reader, names):
                partition.offset = OFFSET_BEGINNING
                slots = self._slots(reader, partition, wanted)
                found |= {name for name, by_slot in slots.items() if any(by_slot.values())}
        finally:
            reader.close()
        return found

    def _names_by_partition(self, reader: StateConsumer, names: list[str]) -> list[tuple[Any, list[str]]]:
        """Return the topic's partitions with the names whose keys they hold, without partitions that hold none."""
        partitions = reader.partitions(STATE.name)
        self._partitions = len(partitions)
        by_number: dict[int | None, list[str]] = {}
        for name in names if partitions else ():
            by_number.setdefault(self._partition(name), []).append(name)
        return [(each, by_number[each.partition]) for each in partitions if each.partition in by_number]

    def _read_partition(
        self, reader: StateConsumer, partition: Any, names: list[str], matches_log: Callable[[TotalsSnapshot], bool]
    ) -> dict[str, TotalsSnapshot | WireError]:
        """Read recent messages; read all, if a name has no matching snapshot among them."""
        (recent,) = reader.offsets_for_time([partition], self._now_ns() - KEPT_NS)
        found = self._collect(reader, recent, names, matches_log)
        usable = {name for name, one in found.items() if isinstance(one, TotalsSnapshot) and matches_log(one)}
        missing = [name for name in names if name not in usable]
        if missing and recent.offset > 0:
            partition.offset = OFFSET_BEGINNING
            found |= self._collect(reader, partition, missing, matches_log)
        return found

    def _collect(
        self, reader: StateConsumer, partition: Any, names: list[str], matches_log: Callable[[TotalsSnapshot], bool]
    ) -> dict[str, TotalsSnapshot | WireError]:
        """Read from an offset to the end; return the best snapshot by name, and note which ones a write may drop."""
        found = {}
        for name, by_slot in self._slots(reader, partition, names).items():
            writing = self._known.setdefault(name, _Writing())
            own = self._prefix(name) + f"/{self._writer}/".encode()
            snapshots = {slot: _stored(parts.values()) for slot, parts in by_slot.items() if parts}
            for slot, snapshot in snapshots.items():
                # One that cannot be read may be half written, and whole a moment later.
                included = isinstance(snapshot, TotalsSnapshot) and matches_log(snapshot)
                due_ns = 0 if included else self._now_ns() + KEPT_NS
                keys = [] if slot.startswith(own) else [slot + f"/{number}".encode() for number in by_slot[slot]]
                writing.to_drop |= {key: due_ns for key in keys if included or key not in writing.to_drop}
            best = _best(snapshots.values(), matches_log)
            if best is not None:
                found[name] = best
        return found

    def _slots(self, reader: StateConsumer, partition: Any, names: list[str]) -> dict[str, _Slots]:
        """Read a partition from an offset to its end; return the slots by snapshot name."""
        prefixes = {self._prefix(name): name for name in names}
        slots: dict[str, _Slots] = {name: {} for name in names}
        for message in to_end(reader, [partition]):
            key = message.key() or b""
            slot, _, number = key.rpartition(b"/")
            name = prefixes.get(slot.rpartition(b"/")[0].rpartition(b"/")[0])
            if name is None or not number.isdigit():
                continue
            parts = slots[name].setdefault(slot, {})
            if message.value() is None:
                parts.pop(int(number), None)
            else:
                kind, append_ms = message.timestamp()
                parts[int(number)] = _Stored(message.value(), append_ms if kind == LOG_APPEND_TIME else 0)
        return slots

    def _partition(self, name: str) -> int | None:
        """Return the partition that holds a name's keys; None if the topic does not exist."""
        if not self._partitions:
            reader = self._open_reader()
            try:
                self._partitions = len(reader.partitions(STATE.name))
            finally:
                reader.close()
        return zlib.crc32(self._prefix(name)) % self._partitions if self._partitions else None

    def _finish(self, writing: _Writing, partition: int | None) -> None:
        """After an acknowledged write, drop the snapshots that it replaces; the next write goes to the other slot.

        Without an acknowledgement, the next write goes to the same slot and replaces the same snapshots.
        """
        last = writing.last
        if last is None or not last.acknowledged or partition is None:
            return
        writing.last, writing.slot = None, last.slot ^ 1
        self._drop(last.replaces, partition)
        writing.to_drop = {key: due_ns for key, due_ns in writing.to_drop.items() if key not in last.replaces}

    def _drop(self, keys: set[bytes], partition: int) -> None:
        for key in sorted(keys):
            self._producer.send(STATE.name, key=key, value=None, partition=partition)

    def _own_keys(self, name: str, writing: _Writing) -> set[bytes]:
        """Return the keys of this writer's parts in the present log."""
        return {self._key(name, slot, number) for slot, parts in writing.parts.items() for number in range(parts)}

    def _prefix(self, name: str) -> bytes:
        return f"bridge/{self._owner}/{name}".encode()

    def _key(self, name: str, slot: int, number: int) -> bytes:
        return self._prefix(name) + f"/{self._writer}/{slot}/{number}".encode()


def _best(
    read: Iterable[TotalsSnapshot | WireError], matches_log: Callable[[TotalsSnapshot], bool]
) -> TotalsSnapshot | WireError | None:
    """Return the most advanced matching snapshot, else the most advanced one of another log, else the last error."""
    read = list(read)
    snapshots = [one for one in read if isinstance(one, TotalsSnapshot)]
    error = next((one for one in reversed(read) if isinstance(one, WireError)), None)
    return max(snapshots, key=lambda one: (matches_log(one), one.progress, one.written_ns), default=error)


def _stored(parts: Collection[_Stored]) -> TotalsSnapshot | WireError:
    """Return the snapshot in one slot, or the reason why it is unusable."""
    try:
        snapshot = _assembled([SnapshotPart.of(part.body) for part in parts])
    except WireError as error:
        return error
    return replace(snapshot, append_ms=max(part.append_ms for part in parts))


def _assembled(parts: list[SnapshotPart]) -> TotalsSnapshot:
    """Assemble the snapshot in one slot; parts that an earlier, longer snapshot left there are ignored."""
    newest = [part for part in parts if part.number == 0]
    identity = newest[0].identity if newest else b""
    return load([part for part in parts if part.identity == identity])
