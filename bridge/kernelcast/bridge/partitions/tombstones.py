"""Tombstones, messages with a key and no value that end the series of the key; and the hash of keys."""

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from kernelcast.bridge.tables.columns import NO_KEY

TOMBSTONE_KINDS: Final = ("keyed", "unkeyed")
"""Kinds of tombstones; one without a key has no effect."""

REMEMBERED_KEYS: Final = 65_536
"""Size of the cache of key hashes; hashing a key takes ten times as long as a look-up."""
LONGEST_REMEMBERED_BYTES: Final = 256
"""Longer keys are hashed each time: the cache would keep up to 64 GiB of them."""


class Tombstone(NamedTuple):
    """A message without a value.

    Attributes:
        before: Number of messages with a value that precede it in its batch.
        partition: Number of its partition.
        offset: Its offset.
        key_hash: Hash of its key, see the function `key_hash`.
    """

    before: int
    partition: int
    offset: int
    key_hash: int


WHOLE_TOPIC: Final = -1
"""In place of a partition's number, where messages without a key lie in any."""


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Tombstones of a batch.

    Attributes:
        keyed: Tombstones with a key, in the order of the batch.
        counts: Number of tombstones by topic and kind.
    """

    keyed: list[Tombstone] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, topic: str, tombstone: Tombstone) -> None:
        """Add a tombstone."""
        keyed, unkeyed = TOMBSTONE_KINDS
        kind = unkeyed if tombstone.key_hash == NO_KEY else keyed
        self.counts[topic, kind] = self.counts.get((topic, kind), 0) + 1
        if kind == keyed:
            self.keyed.append(tombstone)


def key_hash(topic: str, partition: int, key: bytes | None) -> int:
    """A signed 64-bit hash of a key in a partition.

    Args:
        topic: The topic.
        partition: The partition's number in the topic; a key in two partitions ends in each of them separately.
        key: The message's key; NO_KEY without one.
    """
    if key is None:
        return NO_KEY
    hashed = _remembered if len(key) <= LONGEST_REMEMBERED_BYTES else _hash
    return hashed(topic, partition, key)


def hash_without_key(topic: str) -> int:
    """The hash that a series' messages without a key have, in whatever partition: it changes with the topic only."""
    return _remembered(topic, WHOLE_TOPIC, b"")


def _hash(topic: str, partition: int, key: bytes) -> int:
    digest = blake2b(f"{topic}/{partition}\0".encode(), digest_size=8)  # neither has a zero byte
    digest.update(key)
    return int.from_bytes(digest.digest(), "little", signed=True)


_remembered = lru_cache(maxsize=REMEMBERED_KEYS)(_hash)
