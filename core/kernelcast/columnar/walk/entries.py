"""Entry points of the compiled decoder: the functions that `Decoder` and `decoding.tables` call from Python."""

import numpy as np

from kernelcast.columnar.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.columnar.compiled import kernel, signed
from kernelcast.columnar.walk import intern
from kernelcast.columnar.walk import messages as walk
from kernelcast.columnar.walk.layout import SEED, UNUSED, USED, Store, WalkState
from kernelcast.columnar.walk.stream import equal, hash_bytes


@kernel
def batch(state: WalkState, b: UInt8Array, ends: Int64Array, first: int) -> tuple[int, int]:
    """Read messages that lie end to end; see `messages.batch`."""
    return walk.batch(state, b, ends, first)


@kernel
def roll_back(state: WalkState) -> None:
    """Take back the message that the last `batch` stopped at; see `messages.roll_back`."""
    walk.roll_back(state)


@kernel
def release(state: WalkState, numbers: Int32Array) -> int:
    """Free series numbers; those not in use are ignored. Returns how many were freed."""
    released = 0
    for i in range(len(numbers)):
        number = signed(numbers[i])
        if 0 <= number < state.series.counters[USED] and state.series.entries[number].parent != UNUSED:
            intern.release_series(state, number)
            released += 1
    return released


@kernel
def compact(store: Store, arena: UInt8Array) -> None:
    """Copy the entries in use to a new arena; see `intern.compact`."""
    intern.compact(store, arena)


@kernel
def relocate(series: Store, contexts: Store) -> None:
    """Update the positions of the series' bytes after `compact`; see `intern.relocate`."""
    intern.relocate(series, contexts)


@kernel
def rehash(store: Store) -> None:
    """Fill an empty table of slots from the entries; see `intern.rehash`."""
    intern.rehash(store)


@kernel
def group(store: Store, numbers: Int32Array, table: Int32Array, groups: Int32Array, first: Int32Array) -> int:
    """Number the distinct byte strings of some entries, whatever their parents, in the order of their first entries.

    Both the bytes of an identity and those after them count.

    Args:
        store: Has the entries.
        numbers: Shape (k,), the entries.
        table: Scratch: all -1, a power of two long, at most half full of k.
        groups: Shape (k,), output: each entry's group.
        first: Shape (k,), output: the first row of each group.

    Returns:
        The number of groups.
    """
    # `table` is a hash table with linear probing: slot to group. Two entries with equal bytes end in one slot.
    found, mask = 0, len(table) - 1
    seed = np.uint64(store.counters[SEED])
    for i in range(len(numbers)):
        start, length = store.entries[numbers[i]].offset, signed(store.entries[numbers[i]].length)
        extra = signed(store.entries[numbers[i]].extra)
        slot = signed(hash_bytes(store.arena, start, length + extra, seed) & np.uint64(mask))
        while True:
            known = signed(table[slot])
            if known < 0:
                table[slot] = known = found
                first[found] = i
                found += 1
                break
            other = numbers[first[known]]
            if (
                store.entries[other].length == length
                and store.entries[other].extra == extra
                and equal(store.arena, start, store.arena, store.entries[other].offset, length + extra)
            ):
                break
            slot = (slot + 1) & mask
        groups[i] = known
    return found
