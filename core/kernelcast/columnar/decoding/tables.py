"""Creates and enlarges the arrays of the compiled decoder, and copies its output out of them.

The `Decoder` alone calls it, between calls of compiled functions, which cannot allocate. Nothing here keeps state.
"""

import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelcast.columnar.columns import (
    IS_INTEGER,
    ExemplarColumns,
    HistogramColumns,
    Int32Array,
    Int64Array,
    NumberColumns,
)
from kernelcast.columnar.walk.entries import compact, group, rehash
from kernelcast.columnar.walk.layout import (
    ABSENT,
    ARENA,
    ARENA_USED,
    BOUNDS,
    BUCKETS,
    ENTRY,
    EXEMPLAR_ROW,
    HASH_MASK,
    HISTOGRAM_ROW,
    NEGATIVE,
    NUMBER_ROW,
    POSITIVE,
    SEED,
    STORE_COUNTERS,
    UNUSED,
    WASTE,
    RecordArray,
    Store,
    UInt64Matrix,
    WalkState,
)

# Sizes at the start; each array doubles when it is full.
INITIAL_ENTRIES = 1024
INITIAL_ARENA_BYTES = 64 * 1024
INITIAL_ROWS = 4096
INITIAL_BUCKETS = 4096
INITIAL_EXEMPLARS = 256

KEPT_BYTES = 64 * 1024 * 1024
"""An output array up to this size stays between batches: a million and a half number points."""

A = TypeVar("A", bound=NDArray[Any])


def doubled(array: A) -> A:
    """A copy twice as long along its last axis, filled up with zeros."""
    longer = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer  # type: ignore[return-value]  # the same kind of array as the one given


def new_numbers() -> RecordArray:
    """Rows for number points."""
    return np.zeros(INITIAL_ROWS, NUMBER_ROW)


def new_histograms() -> RecordArray:
    """Rows for histogram points."""
    return np.zeros(INITIAL_ROWS, HISTOGRAM_ROW)


def new_exemplars() -> RecordArray:
    """Rows for points that have exemplars."""
    return np.zeros(INITIAL_EXEMPLARS, EXEMPLAR_ROW)


def new_data() -> UInt64Matrix:
    """CSR data for the four parts of histogram points."""
    return np.zeros((4, INITIAL_BUCKETS), np.uint64)


def without_excess(state: WalkState) -> WalkState:
    """Replace output arrays that one batch has enlarged beyond `KEPT_BYTES` by new ones."""
    if state.numbers.nbytes > KEPT_BYTES:
        state = state._replace(numbers=new_numbers())
    if state.histograms.nbytes > KEPT_BYTES:
        state = state._replace(histograms=new_histograms())
    if state.exemplars.nbytes > KEPT_BYTES:
        state = state._replace(exemplars=new_exemplars())
    if state.data.nbytes > KEPT_BYTES:
        state = state._replace(data=new_data())
    return state


def new_store() -> Store:
    """Make an empty store; its hash has a random seed, so that no producer can prepare colliding names."""
    counters = np.zeros(STORE_COUNTERS, np.int64)
    counters[SEED] = secrets.randbits(63)
    counters[HASH_MASK] = -1
    entries = np.zeros(INITIAL_ENTRIES, ENTRY)
    entries["parent"] = UNUSED
    return Store(
        slots=np.full(2 * INITIAL_ENTRIES, ABSENT, np.int32),
        entries=entries,
        arena=np.zeros(INITIAL_ARENA_BYTES, np.uint8),
        counters=counters,
    )


def grown_store(store: Store, short_of: int) -> Store:
    """The store with twice the arena, or with room for twice the entries and a table that stays at most half full."""
    if short_of == ARENA:
        return store._replace(arena=doubled(store.arena))
    longer = doubled(store.entries)
    longer["parent"][len(store.entries) :] = UNUSED
    store = store._replace(slots=np.full(2 * len(longer), ABSENT, np.int32), entries=longer)
    rehash(store)
    return store


def compacted_store(store: Store) -> Store:
    """The store without the waste in its arena, once more than half of it is waste."""
    used = int(store.counters[ARENA_USED])
    waste = int(store.counters[WASTE])
    if used <= INITIAL_ARENA_BYTES or 2 * waste <= used:
        return store
    arena = np.zeros(max(INITIAL_ARENA_BYTES, 2 * (used - waste)), np.uint8)
    compact(store, arena)
    return store._replace(arena=arena)


def grouped(store: Store, numbers: Int32Array) -> tuple[Int32Array, Int32Array]:
    """Group entries that have the same bytes.

    Args:
        store: Has the entries.
        numbers: Shape (k,), the entries.

    Returns:
        Shape (k,), each entry's group; shape (g,), the first row of each group.
    """
    table: Int32Array = np.full(1 << (2 * len(numbers)).bit_length(), ABSENT, np.int32)
    groups: Int32Array = np.empty(len(numbers), np.int32)
    first: Int32Array = np.empty(len(numbers), np.int32)
    found = group(store, np.ascontiguousarray(numbers, np.int32), table, groups, first)
    return groups, first[:found]


def cut_numbers(rows: RecordArray) -> NumberColumns:
    """Copy the rows of number points to columns."""
    bits = rows["bits"].copy()
    flags = rows["flags"].copy()
    value = bits.view(np.float64)
    integer = np.zeros(len(rows), np.int64)
    is_integer = (flags & IS_INTEGER) != 0
    if is_integer.any():
        integer = np.where(is_integer, bits.view(np.int64), 0)
        value = np.where(is_integer, integer.astype(np.float64), value)
    return NumberColumns(
        series=rows["series"].copy(),
        message=rows["message"].copy(),
        start_ns=rows["start_ns"].copy(),
        time_ns=rows["time_ns"].copy(),
        value=value,
        integer=integer,
        flags=flags,
    )


def cut_histograms(rows: RecordArray, data: UInt64Matrix) -> HistogramColumns:
    """Copy the rows of histogram points, and their CSR data, to columns."""
    indptr = {name: _indptr(rows[f"{name}_end"]) for name in ("positive", "negative", "bounds", "buckets")}

    def cut(slot: int, name: str) -> NDArray[np.uint64]:
        return data[slot - POSITIVE, : indptr[name][-1]].copy()

    return HistogramColumns(
        series=rows["series"].copy(),
        message=rows["message"].copy(),
        start_ns=rows["start_ns"].copy(),
        time_ns=rows["time_ns"].copy(),
        flags=rows["flags"].copy(),
        count=rows["count"].copy(),
        total=rows["total"].copy().view(np.float64),
        zero_count=rows["zero_count"].copy(),
        zero_threshold=rows["zero_threshold"].copy().view(np.float64),
        scale=rows["scale"].copy(),
        positive_offset=rows["positive_offset"].copy(),
        positive_indptr=indptr["positive"],
        positive=cut(POSITIVE, "positive"),
        negative_offset=rows["negative_offset"].copy(),
        negative_indptr=indptr["negative"],
        negative=cut(NEGATIVE, "negative"),
        bounds_indptr=indptr["bounds"],
        bounds=cut(BOUNDS, "bounds").view(np.float64),
        bucket_indptr=indptr["buckets"],
        buckets=cut(BUCKETS, "buckets"),
    )


def cut_exemplars(rows: RecordArray, raw: Sequence[bytes]) -> ExemplarColumns:
    """Copy the rows of points with exemplars to columns, with the exemplars' bytes."""
    return ExemplarColumns(rows["row"].copy(), rows["histogram"].copy(), tuple(raw))


def _indptr(ends: Int64Array) -> Int64Array:
    return np.concatenate((np.zeros(1, np.int64), ends))
