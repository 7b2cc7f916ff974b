"""Compiled functions, called by `histograms.add_point`, that add a delta histogram's buckets to its total.

A total is a block of 64-bit words. With explicit bounds: the number of bounds (NO_BUCKETS if there are only count and
sum), the bits of the bounds, then one more count than bounds. Two bounds 0.1 and 1.0 with counts 3, 4, 5 are

    [2, bits(0.1), bits(1.0), 3, 4, 5]

`tables.exponential` describes the layout of exponential histograms.

Exponential histograms are merged at the smaller scale: at one scale less, bucket i has the counts of buckets 2i and
2i+1. If zero thresholds differ, the larger one is used, widened to the end of any bucket that it cuts.
Source: opentelemetry-specification, metrics/data-model.md, "ExponentialHistogram", "Exponential Scale" and "Zero Count
and Zero Threshold".
"""

import numpy as np

from kernelcast.bridge.delta.addition.incoming import BOUNDS, BUCKETS, NEGATIVE, POSITIVE, DeltaHistogramPoints
from kernelcast.bridge.tables.columns import Int64Array
from kernelcast.bridge.tables.exponential import (
    CAPACITY_WORD,
    HEADER_WORDS,
    MAX_BUCKETS,
    NEGATIVE_LENGTH_WORD,
    NEGATIVE_OFFSET_WORD,
    POSITIVE_LENGTH_WORD,
    POSITIVE_OFFSET_WORD,
    SCALE_WORD,
    ZERO_COUNT_WORD,
    ZERO_THRESHOLD_WORD,
)
from kernelcast.bridge.tables.points import UInt64Array
from kernelcast.columnar.compiled import inlined, routine

NO_BUCKETS = -1
"""First word of a block without bounds and buckets, in place of the number of bounds. It must be -1: a block has one
bucket more than bounds, so it has none."""
LARGEST_DOUBLE = 1.7976931348623157e308


@inlined
def same_bounds(words: Int64Array, at: int, data: UInt64Array, low: int, high: int) -> bool:
    """Whether a block and a point have the same bounds."""
    for j in range(high - low):  # noqa: SIM110  numba has no generators here
        if words[at + j] != np.int64(data[BOUNDS, low + j]):
            return False
    return True


@routine
def merge_explicit(
    block: int,
    is_new: bool,  # noqa: FBT001  compiled
    points: DeltaHistogramPoints,
    i: int,
    words: Int64Array,
) -> None:
    """Add a point's buckets to a block with the same bounds, or to a new one."""
    low, high = points.ends[BOUNDS, i], points.ends[BOUNDS, i + 1]
    first, last = points.ends[BUCKETS, i], points.ends[BUCKETS, i + 1]
    bounds = high - low if last - first > 1 else NO_BUCKETS
    data = points.data
    if is_new:
        words[block] = bounds
        for j in range(bounds):
            words[block + 1 + j] = np.int64(data[BOUNDS, low + j])
        for j in range(bounds + 1):
            words[block + 1 + bounds + j] = 0
    for j in range(bounds + 1):
        words[block + 1 + bounds + j] += np.int64(data[BUCKETS, first + j])


@routine
def used_range(counts: UInt64Array, start: int, stop: int) -> tuple[int, int]:
    """Return the first and last non-empty bucket, counted from `start`; (0, -1) if all are empty."""
    while start < stop and counts[stop - 1] == 0:
        stop -= 1
    first = start
    while first < stop and counts[first] == 0:
        first += 1
    return (first - start, stop - 1 - start) if first < stop else (0, -1)


@inlined
def union(low: int, high: int, other_low: int, other_high: int) -> tuple[int, int]:
    """Return the smallest range that contains two ranges; either may be empty (high < low)."""
    if high < low:
        return other_low, other_high
    if other_high < other_low:
        return low, high
    return min(low, other_low), max(high, other_high)


@routine
def absorb(scratch: Int64Array, at: int, low: int, high: int, scale: int, threshold: float) -> tuple[float, int]:
    """Clear the buckets that begin below a threshold; returns the widened threshold and the sum of their counts."""
    taken = 0
    for index in range(low, high + 1):
        if scratch[at + index - low] == 0:
            continue
        if 2.0 ** (index * 2.0**-scale) >= threshold:
            break
        taken += scratch[at + index - low]
        scratch[at + index - low] = 0
        threshold = max(threshold, min(2.0 ** ((index + 1) * 2.0**-scale), LARGEST_DOUBLE))
    return threshold, taken


@routine
def merge_exponential(  # noqa: C901, PLR0913, PLR0917  two histograms' scalars, each a local
    block: int,
    capacity: int,
    is_new: bool,  # noqa: FBT001  compiled
    points: DeltaHistogramPoints,
    i: int,
    words: Int64Array,
    scratch: Int64Array,
) -> int:
    """Add a point to a block, which may be new. Returns the words needed if it is too small, else 0."""
    positive, negative = points.data[POSITIVE], points.data[NEGATIVE]
    start, negative_start = points.ends[POSITIVE, i], points.ends[NEGATIVE, i]
    point_scale, point_threshold = int(points.rows[i].scale), points.rows[i].zero_threshold
    offset, negative_offset = int(points.rows[i].positive_offset), int(points.rows[i].negative_offset)
    first, last = used_range(positive, start, points.ends[POSITIVE, i + 1])
    first_negative, last_negative = used_range(negative, negative_start, points.ends[NEGATIVE, i + 1])
    known_scale, known, known_offset, known_negative, known_negative_offset = point_scale, 0, 0, 0, 0
    threshold, zeros = point_threshold, np.int64(points.rows[i].zero_count)
    differs = False
    if not is_new:
        known_scale = int(words[block + SCALE_WORD])
        known_offset, known = int(words[block + POSITIVE_OFFSET_WORD]), int(words[block + POSITIVE_LENGTH_WORD])
        known_negative_offset = int(words[block + NEGATIVE_OFFSET_WORD])
        known_negative = int(words[block + NEGATIVE_LENGTH_WORD])
        known_threshold = words.view(np.float64)[block + ZERO_THRESHOLD_WORD]
        differs = known_threshold != point_threshold
        threshold, zeros = max(known_threshold, point_threshold), zeros + words[block + ZERO_COUNT_WORD]
    # Example: a total of scale 1 with the buckets 4..9 and a point of scale 0 with bucket 7 meet at scale 0: 4..9
    # become 2..4 (shift 1), and the union is 2..7, six buckets. An empty range has high < low, which `union` ignores.
    # Lower the scale until each range of buckets fits. Only then is anything written: a block that is too small is
    # left unchanged, and the caller repeats the call with a larger one.
    scale = min(point_scale, known_scale) + 1
    low, high, low_negative, high_negative = 0, MAX_BUCKETS, 0, 0
    while high - low >= MAX_BUCKETS or high_negative - low_negative >= MAX_BUCKETS:
        scale -= 1
        shift, known_shift = point_scale - scale, known_scale - scale
        low, high = union(
            (offset + first) >> shift,
            ((offset + last) >> shift) - (last < first),
            known_offset >> known_shift,
            ((known_offset + known - 1) >> known_shift) if known else (known_offset >> known_shift) - 1,
        )
        low_negative, high_negative = union(
            (negative_offset + first_negative) >> shift,
            ((negative_offset + last_negative) >> shift) - (last_negative < first_negative),
            known_negative_offset >> known_shift,
            ((known_negative_offset + known_negative - 1) >> known_shift)
            if known_negative
            else (known_negative_offset >> known_shift) - 1,
        )
    length, negative_length = high - low + 1, high_negative - low_negative + 1
    if HEADER_WORDS + length + negative_length > capacity:
        return HEADER_WORDS + length + negative_length
    for j in range(max(length, negative_length)):
        scratch[j] = scratch[MAX_BUCKETS + j] = 0
    for j in range(first, last + 1):
        scratch[((offset + j) >> shift) - low] += np.int64(positive[start + j])
    for j in range(known):
        scratch[((known_offset + j) >> known_shift) - low] += words[block + HEADER_WORDS + j]
    for j in range(first_negative, last_negative + 1):
        at = MAX_BUCKETS + ((negative_offset + j) >> shift) - low_negative
        scratch[at] += np.int64(negative[negative_start + j])
    for j in range(known_negative):
        at = MAX_BUCKETS + ((known_negative_offset + j) >> known_shift) - low_negative
        scratch[at] += words[block + HEADER_WORDS + known + j]
    # A larger threshold absorbs buckets, and an absorbed bucket may widen it further: repeat until it stays.
    while differs:
        widened, taken = absorb(scratch, 0, low, high, scale, threshold)
        widened, more = absorb(scratch, MAX_BUCKETS, low_negative, high_negative, scale, widened)
        zeros += taken + more
        differs, threshold = widened > threshold, widened
    words[block + SCALE_WORD], words[block + ZERO_COUNT_WORD] = scale, zeros
    words.view(np.float64)[block + ZERO_THRESHOLD_WORD] = threshold
    words[block + POSITIVE_OFFSET_WORD], words[block + POSITIVE_LENGTH_WORD] = low, length
    words[block + NEGATIVE_OFFSET_WORD], words[block + NEGATIVE_LENGTH_WORD] = low_negative, negative_length
    words[block + CAPACITY_WORD] = capacity
    for j in range(length):
        words[block + HEADER_WORDS + j] = scratch[j]
    for j in range(negative_length):
        words[block + HEADER_WORDS + length + j] = scratch[MAX_BUCKETS + j]
    return 0
