"""Compiled functions that store histogram points in slots and blocks; `SeriesStore` calls `store_histograms`."""

import numpy as np

from kernelcast.bridge.series.arrival import Tables, arrive
from kernelcast.bridge.series.judgement import judge
from kernelcast.bridge.series.recording import note, record
from kernelcast.bridge.tables.columns import (
    ABSENT,
    EXPONENTIAL,
    HAS_SUM,
    LIVE,
    MALFORMED_HISTOGRAM,
    MEMBERSHIP,
    NO_BOUNDS,
    STORED,
    FloatArray,
    Int64Array,
    MessageColumns,
    PointRules,
)
from kernelcast.bridge.tables.exponential import (
    CAPACITY_WORD,
    HEADER_WORDS,
    MAX_BUCKETS,
    MAX_SCALE,
    NEGATIVE_LENGTH_WORD,
    NEGATIVE_OFFSET_WORD,
    POSITIVE_LENGTH_WORD,
    POSITIVE_OFFSET_WORD,
    SCALE_WORD,
    ZERO_COUNT_WORD,
    ZERO_THRESHOLD_WORD,
    block_words,
)
from kernelcast.bridge.tables.points import HistogramPoints, UInt64Array
from kernelcast.columnar import EXPLICIT, NO_RECORDED_VALUE
from kernelcast.columnar import HAS_SUM as POINT_HAS_SUM
from kernelcast.columnar.compiled import inlined, kernel

LARGEST_COUNT = np.uint64(2**63 - 1)


@inlined
def adds_up(count: np.uint64, counts: UInt64Array, start: int, stop: int, total: np.uint64) -> np.uint64:
    """Add counts to a total; returns more than `count` if the sum exceeds it, and never wraps around."""
    for j in range(start, stop):
        if total > count or counts[j] > count - total:
            return count + np.uint64(1)
        total += counts[j]
    return total


@inlined
def rising(bounds: FloatArray, start: int, stop: int) -> bool:
    """Whether bounds are finite and strictly rising."""
    for j in range(start, stop):  # noqa: SIM110  numba has no generators here
        if not np.isfinite(bounds[j]) or (j > start and bounds[j] <= bounds[j - 1]):
            return False
    return True


@inlined
def adds_up_explicit(points: HistogramPoints, i: int) -> bool:
    """Whether an explicit point has one more count than bounds and its counts add up, or has neither."""
    first, last = points.bucket_indptr[i], points.bucket_indptr[i + 1]
    low, high = points.bounds_indptr[i], points.bounds_indptr[i + 1]
    count = points.observations[i]
    if last == first:
        return True
    if last - first != high - low + 1 or not rising(points.bounds, low, high):
        return False
    total = adds_up(count, points.buckets, first, last, np.uint64(0))
    return bool(total == count)


@inlined
def adds_up_exponential(points: HistogramPoints, i: int) -> bool:
    """Whether the counts of an exponential point add up."""
    count = points.observations[i]
    total = adds_up(
        count, points.positive, points.positive_indptr[i], points.positive_indptr[i + 1], points.zero_count[i]
    )
    total = adds_up(count, points.negative, points.negative_indptr[i], points.negative_indptr[i + 1], total)
    return bool(total == count)


@inlined
def same_bounds(
    bounds: FloatArray, start: int, stop: int, known: FloatArray, known_start: int, known_stop: int
) -> bool:
    """Whether two sets of bounds are equal."""
    if stop - start != known_stop - known_start:
        return False
    for j in range(stop - start):  # noqa: SIM110  numba has no generators here
        if bounds[start + j] != known[known_start + j]:
            return False
    return True


@inlined
def sound(points: HistogramPoints, i: int) -> bool:
    """Whether a point's counts add up and can be stored."""
    if points.observations[i] > LARGEST_COUNT:
        return False
    return adds_up_explicit(points, i) if points.flags[i] & EXPLICIT else adds_up_exponential(points, i)


@inlined
def has_bounds(points: HistogramPoints, i: int, schema: int, schemas: tuple[Int64Array, FloatArray]) -> bool:
    """Whether a histogram of this schema has an explicit point's bounds."""
    if points.bucket_indptr[i + 1] - points.bucket_indptr[i] <= 1:
        return schema == NO_BOUNDS
    low, high = points.bounds_indptr[i], points.bounds_indptr[i + 1]
    known_ends, known_bounds = schemas
    return schema > NO_BOUNDS and same_bounds(
        points.bounds, low, high, known_bounds, known_ends[schema], known_ends[schema + 1]
    )


@inlined
def fits(
    points: HistogramPoints,
    i: int,
    schema: int,
    schemas: tuple[Int64Array, FloatArray],
    blocks: Int64Array,
    block: int,
) -> bool:
    """Whether a histogram has a point's bounds, or an exponential one room for its buckets."""
    if points.flags[i] & EXPLICIT:
        return has_bounds(points, i, schema, schemas)
    positive = points.positive_indptr[i + 1] - points.positive_indptr[i]
    negative = points.negative_indptr[i + 1] - points.negative_indptr[i]
    words = HEADER_WORDS + min(positive, MAX_BUCKETS) + min(negative, MAX_BUCKETS)
    return schema == EXPONENTIAL and blocks[block + CAPACITY_WORD] >= words


@inlined
def span(offset: int, length: int, shift: int) -> int:
    """Return the number of buckets after merging every 2**shift of them."""
    return ((offset + length - 1) >> shift) - (offset >> shift) + 1 if length > 0 else 0


@inlined
def coarsening(scale: int, positive: tuple[int, int], negative: tuple[int, int]) -> int:
    """Return by how much the scale must be lowered so that both arrays, each (offset, length), fit."""
    # Example: scale 3 with the buckets 0..699. Shift 1 leaves 350, shift 2 leaves 175: the scale becomes 1.
    shift = max(scale - MAX_SCALE, 0)
    while max(span(positive[0], positive[1], shift), span(negative[0], negative[1], shift)) > MAX_BUCKETS:
        shift += 1
    return shift


@inlined
def write_buckets(
    blocks: Int64Array, at: int, counts: UInt64Array, start: int, buckets: tuple[int, int], shift: int
) -> int:
    """Write the counts of one side, (offset, length), merging every 2**shift of them; returns the index after them."""
    end = at + span(buckets[0], buckets[1], shift)
    blocks[at:end] = 0
    first = buckets[0] >> shift
    for j in range(buckets[1]):
        blocks[at + ((buckets[0] + j) >> shift) - first] += np.int64(counts[start + j])
    return end


@inlined
def write_exponential(points: HistogramPoints, i: int, blocks: Int64Array, block: int) -> None:
    """Write a point to its block, which must be large enough."""
    positive_start, negative_start = points.positive_indptr[i], points.negative_indptr[i]
    positive = (int(points.positive_offset[i]), points.positive_indptr[i + 1] - positive_start)
    negative = (int(points.negative_offset[i]), points.negative_indptr[i + 1] - negative_start)
    scale = int(points.scale[i])
    shift = coarsening(scale, positive, negative)
    blocks[block + SCALE_WORD] = scale - shift
    blocks[block + ZERO_THRESHOLD_WORD] = points.zero_threshold_bits[i]
    blocks[block + ZERO_COUNT_WORD] = np.int64(points.zero_count[i])
    blocks[block + POSITIVE_OFFSET_WORD] = positive[0] >> shift
    blocks[block + POSITIVE_LENGTH_WORD] = span(positive[0], positive[1], shift)
    blocks[block + NEGATIVE_OFFSET_WORD] = negative[0] >> shift
    blocks[block + NEGATIVE_LENGTH_WORD] = span(negative[0], negative[1], shift)
    at = write_buckets(blocks, block + HEADER_WORDS, points.positive, positive_start, positive, shift)
    write_buckets(blocks, at, points.negative, negative_start, negative, shift)


@inlined
def write_explicit(points: HistogramPoints, i: int, blocks: Int64Array, block: int) -> None:
    """Write a point's cumulative counts to its block."""
    first = points.bucket_indptr[i]
    running = np.int64(0)
    for j in range(points.bounds_indptr[i + 1] - points.bounds_indptr[i]):
        running += np.int64(points.buckets[first + j])
        blocks[block + j] = running


@inlined
def write(points: HistogramPoints, i: int, schema: int, blocks: Int64Array, block: int) -> None:
    """Write a point's buckets, if it has any, to its block."""
    if schema == EXPONENTIAL:
        write_exponential(points, i, blocks, block)
    elif schema != NO_BOUNDS:
        write_explicit(points, i, blocks, block)


@kernel
def store_histograms(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    tables: Tables,
    points: HistogramPoints,
    messages: MessageColumns,
    rules: PointRules,
    schemas: tuple[Int64Array, FloatArray],
    blocks: Int64Array,
    begin: int,
    counts: Int64Array,
) -> int:
    """Store histogram points from an index on.

    Args:
        tables: The columns to change.
        points: The points.
        messages: Origin of each message.
        rules: Rules for accepting points.
        schemas: The bounds of all schemas: row pointers, bounds.
        blocks: All blocks of buckets.
        begin: Index of the first point.
        counts: Shape (COUNTS,); the outcomes are added to it.

    Returns:
        The number of points if all are stored; else the index of a point whose series needs other bounds or a
        larger block first.
    """
    series, wires = tables.series, tables.wires
    # A point that is accepted but does not fit stops the loop before anything of it is recorded. The caller changes
    # bounds or block (`Slots.rebound`) and calls again with the same index; `arrive` then sees the point a second time,
    # which changes nothing more.
    for i in range(begin, len(points.series)):
        wire, flags = points.series[i], points.flags[i]
        point = arrive(wires, wire, messages, points.message[i], (points.start_ns[i], points.time_ns[i]), flags)
        verdict = judge(tables, wire, point, rules)
        slot, absent = wires.slot[wire], flags & NO_RECORDED_VALUE
        if verdict == STORED and not absent:
            if not sound(points, i):
                verdict = MALFORMED_HISTOGRAM
            elif not fits(points, i, series.schema[slot], schemas, blocks, series.block[slot]):
                return i
        note(tables, wire, point, verdict)
        counts[verdict] += 1
        if verdict != STORED:
            continue
        state = ABSENT if absent else LIVE
        counts[MEMBERSHIP] += record(tables, wire, point, state, rules)
        if absent:
            continue
        series.value[slot] = points.total[i]
        series.integer[slot] = np.int64(points.observations[i])
        series.flags[slot] |= HAS_SUM if flags & POINT_HAS_SUM else 0
        write(points, i, series.schema[slot], blocks, series.block[slot])
    return len(points.series)


def bounds_and_words(points: HistogramPoints, i: int) -> tuple[FloatArray | None, int]:
    """Return the finite bounds of a point, None for an exponential one; and the words that its block needs."""
    if not points.flags[i] & EXPLICIT:
        positive, negative = points.positive_indptr[i : i + 2], points.negative_indptr[i : i + 2]
        return None, block_words(int(positive[1] - positive[0]), int(negative[1] - negative[0]))
    if points.bucket_indptr[i + 1] - points.bucket_indptr[i] <= 1:
        return np.empty(0, np.float64), 0
    bounds = points.bounds[points.bounds_indptr[i] : points.bounds_indptr[i + 1]]
    return bounds, len(bounds)
