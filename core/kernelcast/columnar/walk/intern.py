"""Interning of byte strings: a hash table over an arena that assigns, frees and reuses numbers.

`lookup` finds and adds entries with it, `messages` takes back those of a message that failed, `entries` frees series.
The slots are a linear-probing table of numbers. Example: in a table of 4 slots whose mask is 3, an entry with hash 6
lies in slot 2, or in the next free one after it (3, 0, 1).
"""

import numpy as np

from kernelcast.columnar.columns import UInt8Array
from kernelcast.columnar.compiled import copy_bytes, fold_multiply, routine, signed
from kernelcast.columnar.walk.layout import (
    ABSENT,
    ARENA,
    ARENA_MARK,
    ARENA_USED,
    ENTRIES,
    FREE,
    FRESH,
    HASH_MASK,
    SEED,
    STAMP,
    UNUSED,
    USED,
    WASTE,
    Store,
    WalkState,
)
from kernelcast.columnar.walk.stream import equal, hash_bytes

_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
"""An odd constant with as many ones as zeros, about: it spreads small numbers over 64 bits."""


@routine
def find(store: Store, parent: int, b: UInt8Array, p: int, length: int) -> tuple[int, np.uint64]:
    """Return the number of `length` bytes at b[p] under a parent, or ABSENT; and their hash."""
    seed = np.uint64(store.counters[SEED]) + np.uint64(parent + 1)
    hashed = hash_bytes(b, p, length, seed) & np.uint64(store.counters[HASH_MASK])
    mask = len(store.slots) - 1
    slot = signed(hashed & np.uint64(mask))
    while True:
        number = signed(store.slots[slot])
        if number < 0:
            return ABSENT, hashed
        if (
            store.entries[number].hash == hashed
            and store.entries[number].parent == parent
            and store.entries[number].length == length
            and equal(b, p, store.arena, store.entries[number].offset, length)
        ):
            return number, hashed
        slot = (slot + 1) & mask


@routine
def shortage(store: Store, length: int) -> int:
    """Return which array is too small for an entry of `length` bytes: ENTRIES, ARENA, or 0 for none."""
    counters = store.counters
    if counters[FREE] == 0 and counters[USED] >= len(store.entries):
        return ENTRIES
    if counters[ARENA_USED] + length > len(store.arena):
        return ARENA
    return 0


@routine
def assign_number(store: Store) -> int:
    """Return an unused number: the last freed one, else the next new one."""
    counters = store.counters
    if counters[FREE] > 0:
        counters[FREE] -= 1
        return signed(store.entries[counters[FREE]].free)
    counters[USED] += 1
    return signed(counters[USED] - 1)


@routine
def append(store: Store, b: UInt8Array, p: int, length: int) -> None:
    """Copy bytes to the arena's end, which has room."""
    copy_bytes(store.arena, store.counters[ARENA_USED], b, p, p + length)
    store.counters[ARENA_USED] += length


@routine
def new_entry(store: Store, parent: int, hashed: np.uint64) -> int:
    """Add an entry without bytes and return its number; it is not in the table, and `shortage` has found room."""
    counters = store.counters
    number = assign_number(store)
    store.entries[number].hash = hashed
    store.entries[number].parent = parent
    store.entries[number].extra = 0
    store.entries[number].refs = 0
    store.entries[number].successor = 0
    store.entries[number].stamp = counters[STAMP]
    counters[STAMP] += 1
    store.entries[counters[FRESH]].fresh = number
    counters[FRESH] += 1
    mask = len(store.slots) - 1
    slot = signed(hashed & np.uint64(mask))
    while store.slots[slot] >= 0:
        slot = (slot + 1) & mask
    store.slots[slot] = number
    return number


@routine
def add(store: Store, parent: int, hashed: np.uint64, b: UInt8Array, p: int, length: int) -> int:
    """Add an entry with its bytes and return its number; `find` has not found it, and `shortage` has found room."""
    number = new_entry(store, parent, hashed)
    store.entries[number].offset = store.counters[ARENA_USED]
    store.entries[number].length = length
    append(store, b, p, length)
    return number


@routine
def find_series(series: Store, metric: int, text: int) -> tuple[int, np.uint64]:
    """Return the number of the series with a metric and a text, or ABSENT; and their hash."""
    hashed = fold_multiply(
        np.uint64(series.counters[SEED]) ^ np.uint64(metric + 1), _MULTIPLIER ^ np.uint64(text + 1)
    ) & np.uint64(series.counters[HASH_MASK])
    mask = len(series.slots) - 1
    slot = signed(hashed & np.uint64(mask))
    while True:
        number = signed(series.slots[slot])
        if number < 0:
            return ABSENT, hashed
        if series.entries[number].parent == metric and series.entries[number].text == text:
            return number, hashed
        slot = (slot + 1) & mask


@routine
def add_series(state: WalkState, metric: int, text: int, hashed: np.uint64) -> int:
    """Add a series and return its number; `find_series` has not found it, and `shortage` has found room."""
    series, contexts = state.series, state.contexts
    contexts.entries[metric].refs += 1
    contexts.entries[text].refs += 1
    number = new_entry(series, metric, hashed)
    series.entries[number].text = text
    series.entries[number].offset = contexts.entries[text].offset
    series.entries[number].length = contexts.entries[text].length
    return number


@routine
def relocate(series: Store, contexts: Store) -> None:
    """Update where the bytes of series lie, after the arena of the contexts was compacted."""
    for number in range(series.counters[USED]):
        if series.entries[number].parent != UNUSED:
            series.entries[number].offset = contexts.entries[series.entries[number].text].offset


@routine
def remove(store: Store, number: int) -> None:
    """Remove an entry from the table.

    Entries after it move up, so that series that come and go leave no deleted slots behind. One moves into the hole
    unless its home slot lies after the hole, where `find` would then not reach it.
    """
    mask = len(store.slots) - 1
    hole = signed(store.entries[number].hash & np.uint64(mask))
    while store.slots[hole] != number:
        hole = (hole + 1) & mask
    slot = hole
    while True:
        slot = (slot + 1) & mask
        other = signed(store.slots[slot])
        if other < 0:
            break
        home = signed(store.entries[other].hash & np.uint64(mask))
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            store.slots[hole] = other
            hole = slot
    store.slots[hole] = ABSENT
    counters = store.counters
    counters[WASTE] += store.entries[number].length + store.entries[number].extra
    store.entries[number].parent = UNUSED
    store.entries[counters[FREE]].free = number
    counters[FREE] += 1


@routine
def release_context(contexts: Store, number: int) -> None:
    """Remove a context without references, and each parent that is left without a child."""
    while number >= 0 and contexts.entries[number].refs == 0:
        parent = signed(contexts.entries[number].parent)
        remove(contexts, number)
        if parent >= 0:
            contexts.entries[parent].refs -= 1
        number = parent


@routine
def release_series(state: WalkState, number: int) -> None:
    """Free a series' number, and the contexts that only it used."""
    series, contexts = state.series, state.contexts
    metric, text = signed(series.entries[number].parent), signed(series.entries[number].text)
    remove(series, number)
    series.counters[WASTE] = 0  # its bytes are those of its text
    contexts.entries[metric].refs -= 1
    release_context(contexts, metric)
    contexts.entries[text].refs -= 1
    release_context(contexts, text)


@routine
def begin_message(store: Store) -> None:
    """Record the state at the beginning of a message, for `undo_message`."""
    store.counters[FRESH] = 0
    store.counters[ARENA_MARK] = store.counters[ARENA_USED]


@routine
def undo_message(state: WalkState) -> None:
    """Remove every entry that the present message added."""
    series, contexts = state.series, state.contexts
    for i in range(series.counters[FRESH] - 1, -1, -1):
        release_series(state, signed(series.entries[i].fresh))
    for i in range(contexts.counters[FRESH] - 1, -1, -1):
        number = signed(contexts.entries[i].fresh)
        if contexts.entries[number].parent != UNUSED:
            release_context(contexts, number)
    for store in (series, contexts):
        # The bytes that the message appended are at the arena's end, so the end is moved back and nothing is wasted.
        store.counters[WASTE] -= store.counters[ARENA_USED] - store.counters[ARENA_MARK]
        store.counters[ARENA_USED] = store.counters[ARENA_MARK]
        store.counters[FRESH] = 0


@routine
def compact(store: Store, arena: UInt8Array) -> None:
    """Copy the entries in use to a new arena, which is large enough."""
    offset = 0
    for number in range(store.counters[USED]):
        if store.entries[number].parent != UNUSED:
            start = store.entries[number].offset
            length = store.entries[number].length + store.entries[number].extra
            copy_bytes(arena, offset, store.arena, start, start + length)
            store.entries[number].offset = offset
            offset += length
    store.counters[ARENA_USED] = offset
    store.counters[WASTE] = 0


@routine
def rehash(store: Store) -> None:
    """Fill an empty table of slots from the entries."""
    mask = len(store.slots) - 1
    for number in range(store.counters[USED]):
        if store.entries[number].parent != UNUSED:
            slot = signed(store.entries[number].hash & np.uint64(mask))
            while store.slots[slot] >= 0:
                slot = (slot + 1) & mask
            store.slots[slot] = number
