"""Keys that have ended: a message with a key and no value says so, as compaction means it; and keys as numbers."""

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from kernelcast.bridge.tables.columns import NO_KEY

TOMBSTONE_KINDS: Final = ("keyed", "unkeyed")
"""Those without a key mean nothing."""

REMEMBERED_KEYS: Final = 65_536
"""To hash a key takes ten times as long as to look it up."""


class Tombstone(NamedTuple):
    """A message without a value.

    Attributes:
        before: How many of its batch's messages stand before it.
        partition: Number of its partition.
        offset: Its offset.
        key_hash: As the function of that name makes it.
    """

    before: int
    partition: int
    offset: int
    key_hash: int


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Those of a batch.

    Attributes:
        keyed: Those that have a key, which ends there; in the order of their batch.
        counts: By topic and kind, how many there were.
    """

    keyed: list[Tombstone] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, topic: str, tombstone: Tombstone) -> None:
        """Note another one."""
        keyed, unkeyed = TOMBSTONE_KINDS
        kind = unkeyed if tombstone.key_hash == NO_KEY else keyed
        self.counts[topic, kind] = self.counts.get((topic, kind), 0) + 1
        if kind == keyed:
            self.keyed.append(tombstone)


@lru_cache(maxsize=REMEMBERED_KEYS)
def key_hash(topic: str, partition: int, key: bytes | None) -> int:
    """A signed 64-bit hash of a key in a partition, equal in every process: snapshots of running totals keep it.

    Args:
        topic: The topic.
        partition: The partition's number in it: a key that lies in two of them ends in each by itself.
        key: The message's key; NO_KEY without one.
    """
    if key is None:
        return NO_KEY
    digest = blake2b(f"{topic}/{partition}\0".encode(), digest_size=8)  # neither has a zero byte
    digest.update(key)
    return int.from_bytes(digest.digest(), "little", signed=True)
