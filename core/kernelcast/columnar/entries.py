"""The few compiled functions that Python calls."""

from kernelcast.columnar import intern, walk
from kernelcast.columnar.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.columnar.compiled import kernel, signed
from kernelcast.columnar.layout import UNUSED, USED, State, Store


@kernel
def batch(state: State, b: UInt8Array, ends: Int64Array, first: int) -> tuple[int, int]:
    """See `walk.batch`."""
    return walk.batch(state, b, ends, first)


@kernel
def roll_back(state: State) -> None:
    """See `walk.roll_back`."""
    walk.roll_back(state)


@kernel
def release(state: State, numbers: Int32Array) -> int:
    """Give numbers back; those that stand for nothing are passed over. Returns how many were given back."""
    released = 0
    for i in range(len(numbers)):
        number = signed(numbers[i])
        if 0 <= number < state.series.counters[USED] and state.series.entries[number].parent != UNUSED:
            intern.release_series(state, number)
            released += 1
    return released


@kernel
def compact(store: Store, arena: UInt8Array) -> None:
    """See `intern.compact`."""
    intern.compact(store, arena)


@kernel
def rehash(store: Store) -> None:
    """See `intern.rehash`."""
    intern.rehash(store)
