"""Which partitions are ours, how far each has been read, and when what it holds may be shown.

Nothing of a partition is exposed before everything has been read that it held when it was assigned: a scrape in the
middle would show counters falling, and `increase()` would count everything again.

Ages are told by Kafka's own clock. A partition that still lags is judged by the newest append time that was read from
it, so lag expires nothing. One that has been read to its end is judged by what Kafka's clock must show by now at least:
an append time, plus the time that has passed here since it was read. The local wall clock is never asked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

UNKNOWN_OFFSET: Final = -1

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class Partition:
    """One assigned partition.

    Attributes:
        key: Topic and partition.
        number: Its number in the store.
        position: The next offset to be read.
        gate: The high watermark seen at assignment; None while it is not known.
        high: The newest high watermark seen.
        newest_append_ms: Of all messages read.
        passed: Whether its series are exposed.
    """

    key: Key
    number: int
    position: int
    gate: int | None
    high: int = UNKNOWN_OFFSET
    newest_append_ms: int = 0
    passed: bool = False

    @property
    def lag(self) -> int:
        """Messages not read yet, as far as is known."""
        return (
            max(0, max(self.high, self.gate or 0) - max(self.position, 0)) if self.position >= 0 else max(self.high, 0)
        )

    @property
    def at_end(self) -> bool:
        """Whether everything has been read that is known to be there."""
        return self.passed and self.position >= self.high


class Ownership:
    """The assigned partitions.

    Attributes:
        stable: Whether the group has given an answer since the last change; an empty assignment is an answer.
    """

    def __init__(self) -> None:
        self._partitions: dict[Key, Partition] = {}
        self._numbers: dict[Key, int] = {}
        self._broker_ms: float | None = None
        self._broker_seen_at_seconds = 0.0
        self.stable = False

    def number(self, key: Key) -> int:
        """A partition's number in the store; the same for ever."""
        return self._numbers.setdefault(key, len(self._numbers))

    def get(self, key: Key) -> Partition | None:
        """A partition, if it is ours."""
        return self._partitions.get(key)

    def owned(self) -> list[Partition]:
        """All that are ours."""
        return list(self._partitions.values())

    def assign(self, key: Key, *, start: int, gate: int | None) -> Partition:
        """Take a partition over.

        Args:
            key: Topic and partition.
            start: The first offset to be read; negative where it is not known.
            gate: The high watermark, None where it could not be asked for.
        """
        partition = Partition(key, self.number(key), start, gate)
        self._partitions[key] = partition
        return partition

    def revoke(self, keys: Iterable[Key]) -> list[Partition]:
        """Give partitions up; returns those that were ours."""
        return [partition for key in keys if (partition := self._partitions.pop(key, None)) is not None]

    def advance(self, partition: Partition, *, position: int, append_ms: int, now_seconds: float) -> None:
        """Note what was read.

        Args:
            partition: From which partition.
            position: The offset after the last message.
            append_ms: The newest append time of the batch.
            now_seconds: A monotonic clock.
        """
        partition.position = max(partition.position, position)
        partition.high = max(partition.high, partition.position)
        partition.newest_append_ms = max(partition.newest_append_ms, append_ms)
        reading = self.broker_ms(now_seconds)
        if reading is None or append_ms > reading:
            self._broker_ms, self._broker_seen_at_seconds = float(append_ms), now_seconds

    def reached_end(self, key: Key, offset: int) -> None:
        """Note that Kafka has nothing more in a partition; one that is not ours is passed over.

        The last message may stand well before the end: markers of transactions take offsets, retention and compaction
        take messages away. So this opens the gate, too: everything that was there at assignment has been read.
        """
        partition = self._partitions.get(key)
        if partition is not None:
            partition.position = max(partition.position, offset)
            partition.high = max(partition.high, partition.position)
            partition.gate = partition.position if partition.gate is None else min(partition.gate, partition.position)

    def opened(self) -> list[Partition]:
        """Partitions that have caught up since the last call, now marked as passed."""
        ready = [
            partition
            for partition in self._partitions.values()
            if not partition.passed and partition.gate is not None and partition.position >= partition.gate
        ]
        for partition in ready:
            partition.passed = True
        return ready

    def broker_ms(self, now_seconds: float) -> float | None:
        """What Kafka's clock shows at least; None before the first message."""
        if self._broker_ms is None:
            return None
        return self._broker_ms + (now_seconds - self._broker_seen_at_seconds) * 1000.0

    def oldest_ms(self, ttl_ms: int, now_seconds: float) -> dict[int, int]:
        """By partition number, the append time before which a series has expired."""
        broker_ms = self.broker_ms(now_seconds)
        limits = {}
        for partition in self._partitions.values():
            reference = broker_ms if partition.at_end and broker_ms is not None else partition.newest_append_ms
            limits[partition.number] = int(reference) - ttl_ms
        return limits

    def readiness(self) -> tuple[bool, str]:
        """Whether membership is stable and every partition has caught up; and what is missing."""
        if not self.stable:
            return False, "the consumer group has not assigned partitions yet"
        behind = [partition for partition in self._partitions.values() if not partition.passed]
        if behind:
            messages = sum(partition.lag for partition in behind)
            total = len(self._partitions)
            return False, f"{len(behind)} of {total} partitions are catching up, about {messages} messages to go"
        return True, ""


def keys_of(partitions: Sequence[object]) -> list[Key]:
    """Topic and partition of each of confluent_kafka's TopicPartitions."""
    return [(str(getattr(item, "topic")), int(getattr(item, "partition"))) for item in partitions]  # noqa: B009  untyped library
