"""Reads packed arrays of buckets and bounds into CSR data, within limits; `histograms` calls it for each point."""

import numpy as np

from kernelcast.columnar.columns import UInt8Array
from kernelcast.columnar.compiled import as_double, load64, routine
from kernelcast.columnar.walk.layout import (
    BOUNDS,
    GROW_BUCKETS,
    MAX_BUCKETS,
    ODD,
    OK,
    POSITIVE,
    TOO_MANY_BUCKETS,
    WalkState,
)
from kernelcast.columnar.walk.stream import varint


@routine
def fixed64_run(state: WalkState, slot: int, b: UInt8Array, run: tuple[int, int]) -> int:
    """Append a packed run of fixed64, b[run[0]:run[1]], to the CSR data whose length is in `control[slot]`.

    The row of `data` is `slot - POSITIVE`. Returns OK or a status; with a status, the length is as before.
    """
    length = (run[1] - run[0]) // 8
    position = state.control[slot]
    if length > state.control[MAX_BUCKETS]:
        return TOO_MANY_BUCKETS
    if position + length > state.data.shape[1]:
        return GROW_BUCKETS
    for i in range(length):
        state.data[slot - POSITIVE, position + i] = load64(b, run[0] + 8 * i)
    state.control[slot] = position + length
    return OK


@routine
def varint_run(state: WalkState, slot: int, b: UInt8Array, run: tuple[int, int]) -> int:
    """Append a packed run of varints; otherwise the same as `fixed64_run`."""
    p, end = run
    first = state.control[slot]
    position = first
    while p < end:
        if position - first >= state.control[MAX_BUCKETS]:
            return TOO_MANY_BUCKETS
        if position >= state.data.shape[1]:
            return GROW_BUCKETS
        word, p = varint(b, p, end)
        if p < 0:
            return ODD
        state.data[slot - POSITIVE, position] = word
        position += 1
    state.control[slot] = position
    return OK


@routine
def bounds_sorted(state: WalkState, start: int, stop: int) -> bool:
    """Whether the bounds from start to stop rise strictly, without NaN."""
    previous = -np.inf
    for i in range(start, stop):
        bound = as_double(state.data[BOUNDS - POSITIVE, i])
        if np.isnan(bound) or (i > start and bound <= previous):
            return False
        previous = bound
    return True
