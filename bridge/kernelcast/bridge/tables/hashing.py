"""The hash of a series that is equal in every process: it chooses the shard of a page.

Its values must never change: replicas of two versions run side by side during an upgrade.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.columnar.columns import UInt64Array
from kernelcast.columnar.compiled import copy_bytes, inlined, kernel, load64, routine, signed
from kernelcast.columnar.compiled.blake2b import (
    BLOCK_BYTES,
    INITIAL,
    LANES,
    MESSAGE_ROW,
    MESSAGE_WORDS,
    ORDERS,
    STATE_WORDS,
    WORK_ROWS,
    mix_round,
)

DIGEST_BYTES: Final = 8
SEPARATOR: Final = b"{"
"""Stands between name and labels: no name contains a brace."""
WORD_BYTES: Final = 8
ONES: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
PARAMETERS: Final = np.uint64(0x01010000 ^ DIGEST_BYTES)
"""Parameters in the first word of the state: no key, no tree, and the size of the digest."""
COUNT_WORD: Final = 12
"""The word that also counts the bytes of a text up to the end of a block."""
LAST_WORD: Final = 14
"""The word that is inverted for a text's last block."""


class Scratch(NamedTuple):
    """Arrays in which LANES texts are hashed side by side.

    Attributes:
        texts: Room for the texts, each in a multiple of BLOCK_BYTES.
        lengths: Shape (LANES,), lengths of the texts.
        states: Shape (STATE_WORDS * LANES,).
        work: Shape (WORK_ROWS * LANES,), see `mix_round`.
        initial: Shape (STATE_WORDS,), BLAKE2b's initial values.
        orders: ORDERS, end to end.
    """

    texts: UInt8Array
    lengths: Int64Array
    states: UInt64Array
    work: UInt64Array
    initial: UInt64Array
    orders: Int64Array

    @classmethod
    def of(cls, longest: int) -> "Scratch":
        """Make arrays for texts of at most `longest` bytes."""
        width = -(-longest // BLOCK_BYTES) * BLOCK_BYTES
        return cls(
            np.empty(LANES * width, np.uint8),
            np.empty(LANES, np.int64),
            np.empty(STATE_WORDS * LANES, np.uint64),
            np.empty(WORK_ROWS * LANES, np.uint64),
            np.array(INITIAL, np.uint64),
            np.array(ORDERS, np.int64).ravel(),
        )


def stable_hash(name: str, labels: bytes) -> int:
    """Return a signed 64-bit hash of a series, equal in every process.

    Args:
        name: Name of its family.
        labels: Its rendered labels.
    """
    digest = blake2b(name.encode() + SEPARATOR + labels, digest_size=DIGEST_BYTES)
    return int.from_bytes(digest.digest(), "little", signed=True)


def stable_hashes(names: Sequence[str], name: Int32Array, labels: Sequence[bytes], label_set: Int32Array) -> Int64Array:
    """Return `stable_hash` of many series.

    Args:
        names: Names of families.
        name: Shape (n,), index of each series' name.
        labels: Rendered labels.
        label_set: Shape (n,), index of each series' labels.

    Returns:
        Shape (n,).
    """
    hashes: Int64Array = np.empty(len(name), np.int64)
    if not len(name):
        return hashes
    prefixes = [one.encode() + SEPARATOR for one in names]
    scratch = Scratch.of(max(map(len, prefixes)) + max(map(len, labels)))
    _hash_all(*_packed(prefixes), name, *_packed(labels), label_set, scratch, hashes)
    return hashes


def _packed(texts: Sequence[bytes]) -> tuple[UInt8Array, Int64Array]:
    """Return texts in one array, and the index of each one's first byte, with the end of the last."""
    starts: Int64Array = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=starts[1:])
    return np.frombuffer(b"".join((*texts, b"\0")), np.uint8), starts  # numpy refuses an empty buffer


@inlined
def whole_blocks(length: int) -> int:
    """The bytes of the blocks that a text of this length fills."""
    return (length + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES


@routine
def _hash_block(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    texts: UInt8Array,
    lengths: Int64Array,
    block: int,
    orders: Int64Array,
    initial: UInt64Array,
    work: UInt64Array,
    states: UInt64Array,
) -> None:
    """Update the state of each text by one of its blocks; texts that ended before it keep their states."""
    width, done = len(texts) // LANES, block * BLOCK_BYTES
    for word in range(STATE_WORDS):
        for lane in range(LANES):
            work[word * LANES + lane] = states[word * LANES + lane]
            work[(STATE_WORDS + word) * LANES + lane] = initial[word]
    for lane in range(LANES):
        begin = lane * width + done
        for word in range(MESSAGE_WORDS):
            work[(MESSAGE_ROW + word) * LANES + lane] = load64(texts, begin + word * WORD_BYTES)
        work[COUNT_WORD * LANES + lane] ^= np.uint64(min(lengths[lane], done + BLOCK_BYTES))
        if lengths[lane] <= done + BLOCK_BYTES:
            work[LAST_WORD * LANES + lane] ^= ONES
    for first in range(0, len(orders), MESSAGE_WORDS):
        mix_round(work, orders, first)
    for lane in range(LANES):
        if lengths[lane] > done:
            for word in range(STATE_WORDS):
                half = work[word * LANES + lane] ^ work[(STATE_WORDS + word) * LANES + lane]
                states[word * LANES + lane] ^= half


@kernel
def _hash_all(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    names: UInt8Array,
    name_starts: Int64Array,
    name: Int32Array,
    labels: UInt8Array,
    label_starts: Int64Array,
    label_set: Int32Array,
    scratch: Scratch,
    hashes: Int64Array,
) -> None:
    """Hash series, LANES at a time.

    Args:
        names: The names, each with the separator, so that no text is empty.
        name_starts: Start of each name, and the end of the last one.
        name: Shape (n,), index of each series' name.
        labels: The labels.
        label_starts: Start of each label set, and the end of the last one.
        label_set: Shape (n,), index of each series' labels.
        scratch: Arrays for LANES texts.
        hashes: Shape (n,), output.
    """
    texts, lengths, states = scratch.texts, scratch.lengths, scratch.states
    width, last = len(texts) // LANES, len(name) - 1
    for first in range(0, len(name), LANES):
        longest = 0
        for lane in range(LANES):
            i = min(first + lane, last)  # the last series fills the lanes that are left
            begin = lane * width
            at = copy_bytes(texts, begin, names, name_starts[name[i]], name_starts[name[i] + 1])
            end = copy_bytes(texts, at, labels, label_starts[label_set[i]], label_starts[label_set[i] + 1])
            lengths[lane] = end - begin
            longest = max(longest, end - begin)
            for rest in range(end, begin + whole_blocks(end - begin)):
                texts[rest] = 0
        for word in range(STATE_WORDS * LANES):
            states[word] = scratch.initial[word // LANES]
        for lane in range(LANES):
            states[lane] ^= PARAMETERS
        for block in range(whole_blocks(longest) // BLOCK_BYTES):
            _hash_block(texts, lengths, block, scratch.orders, scratch.initial, scratch.work, states)
        for lane in range(min(LANES, len(name) - first)):
            hashes[first + lane] = signed(states[lane])
