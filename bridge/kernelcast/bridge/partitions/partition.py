"""State of one assigned partition: its position, its end, and the time of its messages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kernelcast.bridge.partitions.contact import Contact

UNKNOWN_OFFSET: Final = -1
ANSWER_SLACK_MS: Final = 5_000
"""Kafka's newest append time may belong to a transaction marker, a little after the last message."""

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class Partition:
    """State of one assigned partition. Only the consuming thread changes it.

    Attributes:
        key: Topic and partition.
        number: Its number in the store.
        position: The next offset to be read.
        gate: The high watermark seen at assignment; None while it is not known.
        cohort: Number of its assignment; partitions that were assigned together have the same one.
        moved_at_seconds: When it was assigned or last read, by a monotonic clock.
        judged_to: Messages before this offset have been processed already, here or by a former owner.
        waits: Whether its start offset is not known yet, because Kafka has not answered; it is read from its end then.
        high: The newest high watermark seen.
        newest_append_ms: Newest append time of all messages read.
        passed: Whether it has passed the gate: its series are exposed.
        held_ms: Append time used for the age of series until `held_until` is reached, after messages were skipped.
        held_until: Offset at which skipping ends; negative if nothing was skipped.
        young: Whether its whole log is younger than one time-to-live, like that of an added partition.
        behind_ms: Difference between its newest append time and the newest of all partitions, caused by its broker's
            clock; measured with the messages that are read while it is exposed.
        named_ms: Its newest append time by Kafka's last answer; 0 before the first.
        contact: Outages of Kafka for this partition.
    """

    key: Key
    number: int
    position: int
    gate: int | None
    cohort: int = 0
    moved_at_seconds: float = 0.0
    judged_to: int = 0
    waits: bool = False
    high: int = UNKNOWN_OFFSET
    newest_append_ms: int = 0
    passed: bool = False
    held_ms: int = 0
    held_until: int = UNKNOWN_OFFSET
    young: bool = False
    behind_ms: int = 0
    named_ms: int = 0
    contact: Contact = field(default_factory=Contact)

    @property
    def lag(self) -> int:
        """Known number of messages that have not been read yet."""
        return (
            max(0, max(self.high, self.gate or 0) - max(self.position, 0)) if self.position >= 0 else max(self.high, 0)
        )

    @property
    def at_end(self) -> bool:
        """Whether all known messages have been read."""
        return self.passed and self.position >= self.high

    @property
    def caught_up(self) -> bool:
        """Whether all messages have been read that were there at assignment."""
        return not self.waits and self.gate is not None and self.position >= self.gate

    @property
    def silent(self) -> bool:
        """Whether its series age although no message comes, because all of its messages have been read."""
        return self.at_end and self.named_ms <= self.newest_append_ms + ANSWER_SLACK_MS


def keys_of(partitions: Sequence[object]) -> list[Key]:
    """Return topic and partition of each of confluent_kafka's TopicPartitions."""
    return [(str(getattr(item, "topic")), int(getattr(item, "partition"))) for item in partitions]  # noqa: B009  untyped library
