"""One assigned partition: how far it has been read, and what is known of its end."""

from dataclasses import dataclass, field
from typing import Final

from kernelcast.bridge.partitions.contact import Contact

UNKNOWN_OFFSET: Final = -1
ANSWER_SLACK_MS: Final = 5_000
"""The newest append time that Kafka names may belong to a marker of a transaction, a little after the last message."""

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
        cohort: What was assigned together has the same.
        moved_at_seconds: When it was assigned, or last read; a monotonic clock.
        judged_to: Messages before this offset have been judged already, here or by a former owner.
        waits: Whether Kafka has not said yet where one time-to-live ago was, so that it is not read from there.
        high: The newest high watermark seen.
        newest_append_ms: Of all messages read.
        passed: Whether its series are exposed.
        held_ms: The append time by which series are judged until `held_until` is reached, after messages were skipped.
        held_until: Offset; negative where nothing was skipped.
        young: Whether its whole log is younger than one time-to-live, as that of an added partition is.
        behind_ms: By how much its append times are behind the newest of all partitions, because the clock of its broker
            is; measured by what is read while it is exposed.
        named_ms: Its newest append time as Kafka named it when asked; 0 before that.
        contact: Whether Kafka answers for it.
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
        """Messages not read yet, as far as is known."""
        return (
            max(0, max(self.high, self.gate or 0) - max(self.position, 0)) if self.position >= 0 else max(self.high, 0)
        )

    @property
    def at_end(self) -> bool:
        """Whether everything has been read that is known to be there."""
        return self.passed and self.position >= self.high

    @property
    def caught_up(self) -> bool:
        """Whether everything has been read that was there at assignment."""
        return not self.waits and self.gate is not None and self.position >= self.gate

    @property
    def silent(self) -> bool:
        """Whether time passes for its series although nothing comes: all of it has been read, as far as is known."""
        return self.at_end and self.named_ms <= self.newest_append_ms + ANSWER_SLACK_MS
