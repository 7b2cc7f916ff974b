"""The few compiled functions that Python calls."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from kernelcast.columnar import intern, walk
from kernelcast.columnar.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.columnar.compiled import entry, source_digest
from kernelcast.columnar.layout import UNUSED, USED, State, Store
from kernelcast.columnar.machine import signed


class Entries(NamedTuple):
    """The compiled functions.

    Attributes:
        batch: `walk.batch`.
        roll_back: `walk.roll_back`.
        release: Gives numbers back; those that stand for nothing are passed over. Returns how many were given back.
        compact: `intern.compact`.
        rehash: `intern.rehash`.
    """

    batch: Callable[[State, UInt8Array, Int64Array, int], tuple[int, int]]
    roll_back: Callable[[State], None]
    release: Callable[[State, Int32Array], int]
    compact: Callable[[Store, UInt8Array], None]
    rehash: Callable[[Store], None]


@cache
def entries() -> Entries:
    """The compiled functions, not yet compiled; each closes over the digest (see `compiled.entry`)."""
    digest = source_digest()

    @entry
    def batch(state: State, b: UInt8Array, ends: Int64Array, first: int) -> tuple[int, int]:
        _ = digest
        return walk.batch(state, b, ends, first)

    @entry
    def roll_back(state: State) -> None:
        _ = digest
        walk.roll_back(state)

    @entry
    def release(state: State, numbers: Int32Array) -> int:
        _ = digest
        released = 0
        for i in range(len(numbers)):
            number = signed(numbers[i])
            if 0 <= number < state.series.counters[USED] and state.series.entries[number].parent != UNUSED:
                intern.release_series(state, number)
                released += 1
        return released

    @entry
    def compact(store: Store, arena: UInt8Array) -> None:
        _ = digest
        intern.compact(store, arena)

    @entry
    def rehash(store: Store) -> None:
        _ = digest
        intern.rehash(store)

    return Entries(batch, roll_back, release, compact, rehash)
