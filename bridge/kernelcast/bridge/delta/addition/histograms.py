"""Compiled functions that add delta histograms, explicit and exponential, to running totals.

`Accumulator` and `joining` call `add_histograms`; `merging` describes the layout of a total's buckets, `columns` the
outcomes. `sound_histograms` has bounded every count by int64 before.
"""

import numpy as np

from kernelcast.bridge.delta.addition.incoming import BOUNDS, BUCKETS, NEGATIVE, POSITIVE, DeltaHistogramPoints
from kernelcast.bridge.delta.addition.merging import NO_BUCKETS, merge_explicit, merge_exponential, same_bounds
from kernelcast.bridge.delta.addition.sums import UNKNOWN_TIME_NS
from kernelcast.bridge.delta.columns import (
    BOUNDS_CHANGED,
    EXPLICIT,
    FILLED,
    FIRST,
    HAS_SUM,
    LAST_ADDED,
    NO_VALUE,
    NOTHING,
    OLDER,
    OVERFLOW,
    PASSED,
    SPREAD,
    DeltaColumns,
)
from kernelcast.bridge.tables.columns import Int64Array, UInt8Array
from kernelcast.bridge.tables.exponential import (
    HEADER_WORDS,
    NEGATIVE_LENGTH_WORD,
    NEGATIVE_OFFSET_WORD,
    POSITIVE_LENGTH_WORD,
    POSITIVE_OFFSET_WORD,
    SCALE_WORD,
    ZERO_COUNT_WORD,
    ZERO_THRESHOLD_WORD,
)
from kernelcast.columnar import EXPLICIT as POINT_EXPLICIT
from kernelcast.columnar import HAS_SUM as POINT_HAS_SUM
from kernelcast.columnar import NO_RECORDED_VALUE
from kernelcast.columnar.compiled import inlined, kernel, routine

LARGEST_COUNT = 2**63 - 1
"""A total's count is an int64; beyond it the total restarts (OVERFLOW)."""


@routine
def restart_reason(columns: DeltaColumns, row: int, points: DeltaHistogramPoints, i: int, words: Int64Array) -> int:
    """Return BOUNDS_CHANGED or OVERFLOW if a total must restart for a point; else 0, which is ADDED."""
    if np.int64(points.rows[i].count) > LARGEST_COUNT - columns.integer[row]:
        return OVERFLOW
    if columns.kind[row] != EXPLICIT:
        return 0  # exponential histograms of any two scales can be added
    low, high = points.ends[BOUNDS, i], points.ends[BOUNDS, i + 1]
    bounds = high - low if points.ends[BUCKETS, i + 1] - points.ends[BUCKETS, i] > 1 else NO_BUCKETS
    block = columns.block[row]
    if words[block] != bounds or not same_bounds(words, block + 1, points.data, low, low + bounds):
        return BOUNDS_CHANGED
    return 0


@routine
def finalise_outcome(
    columns: DeltaColumns, row: int, outcome: int, points: DeltaHistogramPoints, i: int, words: Int64Array
) -> int:
    """Return the final outcome of a point: FILLED may become OLDER, and a total that cannot take it restarts here."""
    start_ns = points.rows[i].start_ns
    if outcome == FILLED and start_ns < columns.start_ns[row]:
        return OLDER
    if outcome not in (FIRST, BOUNDS_CHANGED, OVERFLOW):
        restart = restart_reason(columns, row, points, i, words)
        if restart and outcome == FILLED:
            return OLDER
        if restart:
            columns.start_ns[row] = start_ns if start_ns > 0 else points.rows[i].time_ns
            return restart
    return outcome


@routine
def add_point(  # noqa: PLR0913, PLR0917  an object in place of scalars would cost time at each call
    columns: DeltaColumns,
    row: int,
    is_new: bool,  # noqa: FBT001  compiled
    points: DeltaHistogramPoints,
    i: int,
    words: Int64Array,
    scratch: Int64Array,
) -> int:
    """Add a point to its total, which may be new. Returns 0, or the words needed if its block is too small."""
    block, capacity = columns.block[row], columns.capacity[row]
    if columns.kind[row] == EXPLICIT:
        buckets = points.ends[BUCKETS, i + 1] - points.ends[BUCKETS, i]
        needed = 2 * buckets if buckets > 1 else 1
        if needed > capacity:
            return needed
        merge_explicit(block, is_new, points, i, words)
    else:
        needed = merge_exponential(block, capacity, is_new, points, i, words, scratch)
        if needed:
            return needed
    has_sum = points.rows[i].flags & POINT_HAS_SUM
    if is_new:
        columns.total[row], columns.integer[row] = 0.0, 0
        columns.flags[row] |= np.uint8(HAS_SUM)
    if not has_sum:
        columns.flags[row] &= np.uint8(255 - HAS_SUM)
    columns.total[row] += points.rows[i].total if has_sum else 0.0
    columns.integer[row] += np.int64(points.rows[i].count)
    return 0


@routine
def has_room(
    columns: DeltaColumns, row: int, outcome: int, points: DeltaHistogramPoints, i: int, out: DeltaHistogramPoints
) -> bool:
    """Whether the output has room for a point: its own buckets if it is PASSED, else those of its total."""
    most = np.int64(columns.capacity[row]) if row >= 0 else 0
    if outcome == PASSED:
        most = points.ends[BUCKETS, i + 1] - points.ends[BUCKETS, i]
        most = max(most, points.ends[POSITIVE, i + 1] - points.ends[POSITIVE, i])
        most = max(most, points.ends[NEGATIVE, i + 1] - points.ends[NEGATIVE, i])
    at = max(out.ends[POSITIVE, i], out.ends[NEGATIVE, i], out.ends[BOUNDS, i], out.ends[BUCKETS, i])
    return bool(at + most <= out.data.shape[1])


@routine
def copy_buckets(points: DeltaHistogramPoints, out: DeltaHistogramPoints, i: int) -> None:
    """Copy a point's buckets to the output unchanged."""
    for k in range(4):
        start, at = points.ends[k, i], out.ends[k, i]
        length = points.ends[k, i + 1] - start
        for j in range(length):
            out.data[k, at + j] = points.data[k, start + j]
        out.ends[k, i + 1] = at + length


@inlined
def no_buckets(out: DeltaHistogramPoints, i: int) -> None:
    """Give a point of the output no buckets."""
    for k in range(4):
        out.ends[k, i + 1] = out.ends[k, i]


@routine
def write_total(columns: DeltaColumns, row: int, words: Int64Array, out: DeltaHistogramPoints, i: int) -> None:
    """Write a total's buckets to the output; `no_buckets` must have been called for the point."""
    block, doubles = columns.block[row], words.view(np.float64)
    data = out.data
    out.rows[i].count, out.rows[i].total = np.uint64(columns.integer[row]), columns.total[row]
    summed = POINT_HAS_SUM if columns.flags[row] & HAS_SUM else 0
    if columns.kind[row] == EXPLICIT:
        out.rows[i].flags = np.uint8(POINT_EXPLICIT | summed)
        bounds = words[block]
        at, counts = out.ends[BOUNDS, i], out.ends[BUCKETS, i]
        for j in range(bounds):
            data[BOUNDS, at + j] = np.uint64(words[block + 1 + j])
        for j in range(bounds + 1):
            data[BUCKETS, counts + j] = np.uint64(words[block + 1 + bounds + j])
        out.ends[BOUNDS, i + 1] = at + max(bounds, 0)
        out.ends[BUCKETS, i + 1] = counts + bounds + 1
        return
    out.rows[i].flags = np.uint8(summed)
    out.rows[i].scale = np.int32(words[block + SCALE_WORD])
    out.rows[i].zero_threshold = doubles[block + ZERO_THRESHOLD_WORD]
    out.rows[i].zero_count = np.uint64(words[block + ZERO_COUNT_WORD])
    out.rows[i].positive_offset = np.int32(words[block + POSITIVE_OFFSET_WORD])
    out.rows[i].negative_offset = np.int32(words[block + NEGATIVE_OFFSET_WORD])
    length, negative_length = words[block + POSITIVE_LENGTH_WORD], words[block + NEGATIVE_LENGTH_WORD]
    at, negative_at = out.ends[POSITIVE, i], out.ends[NEGATIVE, i]
    for j in range(length):
        data[POSITIVE, at + j] = np.uint64(words[block + HEADER_WORDS + j])
    for j in range(negative_length):
        data[NEGATIVE, negative_at + j] = np.uint64(words[block + HEADER_WORDS + length + j])
    out.ends[POSITIVE, i + 1] = at + length
    out.ends[NEGATIVE, i + 1] = negative_at + negative_length


@routine
def write_point(  # noqa: PLR0913, PLR0917  one row's scalars, and where they go
    columns: DeltaColumns,
    row: int,
    outcome: int,
    points: DeltaHistogramPoints,
    i: int,
    time_ns: int,
    words: Int64Array,
    out: DeltaHistogramPoints,
) -> None:
    """Write a point of the output.

    A cumulative point (PASSED) is copied, any other one gets the total. Without a total, and after NO_VALUE and SPREAD,
    it is flagged as having no recorded value.
    """
    if outcome == PASSED:
        copy_buckets(points, out, i)
        return
    no_buckets(out, i)
    if time_ns != NOTHING and outcome not in (NO_VALUE, SPREAD):
        out.rows[i].start_ns, out.rows[i].time_ns = columns.start_ns[row], time_ns
        write_total(columns, row, words, out, i)
        return
    out.rows[i].flags = np.uint8(NO_RECORDED_VALUE | (points.rows[i].flags & POINT_EXPLICIT))
    if time_ns == NOTHING:
        out.rows[i].start_ns, out.rows[i].time_ns = 0, UNKNOWN_TIME_NS
    else:
        out.rows[i].start_ns, out.rows[i].time_ns = columns.start_ns[row], max(time_ns, points.rows[i].time_ns)


@kernel
def add_histograms(  # noqa: PLR0913, PLR0917  one loop over all columns, each a local
    columns: DeltaColumns,
    words: Int64Array,
    points: DeltaHistogramPoints,
    outcomes: UInt8Array,
    times: Int64Array,
    out: DeltaHistogramPoints,
    scratch: Int64Array,
    first: int,
) -> tuple[int, int]:
    """Add the points that `sequence` accepted and write totals in place of deltas, until a buffer is too small.

    Args:
        columns: The totals.
        words: Their blocks.
        points: The points.
        outcomes: Outcomes from `sequence`; FILLED, BOUNDS_CHANGED and OVERFLOW become final here.
        times: Times from `sequence`.
        out: The output: a copy of the points; their buckets are written here.
        scratch: Working space of shape (2 * MAX_BUCKETS,); its content does not matter.
        first: Index of the first point to add.

    Returns:
        The index at which it stopped, and the words that this point's block needs; 0 words if the output is too short.
    """
    # One point: outcome of `sequence` -> `finalise_outcome` -> `add_point` -> `write_point`.
    # The caller enlarges the buffer that was too small, and calls again with the index at which this stopped. By then
    # the outcome of that point may be final: `finalise_outcome` leaves it as it is. Its value has not been added.
    for i in range(first, len(points.rows)):
        row, outcome = points.rows[i].row, outcomes[i]
        if not has_room(columns, row, outcome, points, i, out):
            return i, 0
        if outcome <= LAST_ADDED:
            outcome = outcomes[i] = finalise_outcome(columns, row, outcome, points, i, words)
        if outcome <= LAST_ADDED:
            is_new = outcome in (FIRST, BOUNDS_CHANGED, OVERFLOW)
            needed = add_point(columns, row, is_new, points, i, words, scratch)
            if needed:
                return i, needed
        write_point(columns, row, outcome, points, i, times[i], words, out)
    return len(points.rows), 0
