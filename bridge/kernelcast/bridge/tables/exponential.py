"""Layout of exponential histograms in the store, and their conversion to the classic buckets that text shows.

A block is an array of int64 words: HEADER_WORDS of header, then the counts of the positive buckets, then those of the
negative ones, not cumulative. Bucket i of an array covers (base**(offset + i), base**(offset + i + 1)] with
base = 2**(2**-scale), as opentelemetry-proto, metrics.proto, ExponentialHistogramDataPoint, defines it. Example:
scale 0 (base 2), one zero, positive counts 4 in (2, 4] and 5 in (4, 8], in a block of 16 words:

    word     0     1          2      3       4       5       6       7         8  9
    meaning  scale threshold  zeros  offset  length  offset  length  capacity  counts
    value    0     bits(0.0)  1      1       2       0       0       16        4  5
"""

from typing import Final

import numpy as np

from kernelcast.bridge.tables.columns import EXPONENTIAL, FloatArray, Int32Array, Int64Array
from kernelcast.columnar.compiled import allocating_kernel, inlined
from kernelcast.wire.histogram import CLASSIC_EXPONENTS

SCALE_WORD: Final = 0
ZERO_THRESHOLD_WORD: Final = 1
"""The bits of a double."""
ZERO_COUNT_WORD: Final = 2
POSITIVE_OFFSET_WORD: Final = 3
POSITIVE_LENGTH_WORD: Final = 4
NEGATIVE_OFFSET_WORD: Final = 5
NEGATIVE_LENGTH_WORD: Final = 6
CAPACITY_WORD: Final = 7
"""Words of the whole block."""
HEADER_WORDS: Final = 8
"""Words before the first count."""

MAX_BUCKETS: Final = 320
"""Largest number of buckets on each side; twice OpenTelemetry's default. A histogram with more is stored at a coarser
scale, which loses resolution but no count."""
MAX_SCALE: Final = 8
"""The finest schema of Prometheus' native histograms; finer histograms are stored at this scale."""
ROUNDING_WORDS: Final = 16
"""Block sizes are multiples of this, each half as large again as the last one at least. A freed block is used again
only by a block of its size, so the blocks that a growing histogram leaves must add up to little."""

LOWEST_CLASSIC_EXPONENT: Final = CLASSIC_EXPONENTS.start
CLASSIC_BOUNDS: Final = len(CLASSIC_EXPONENTS)
WIDEST_SHIFT: Final = 40
"""Buckets of scale -40 cover more than any double; shifting further would only overflow."""


def block_words(positive: int, negative: int) -> int:
    """Return the size of a block for these numbers of buckets, whatever their scale will be."""
    needed = HEADER_WORDS + min(positive, MAX_BUCKETS) + min(negative, MAX_BUCKETS)
    size = ROUNDING_WORDS
    while size < needed:
        size += -(-size // (2 * ROUNDING_WORDS)) * ROUNDING_WORDS
    return size


@inlined
def _first_bound_above(index: int, scale: int) -> int:
    """Return the index of the first classic bound at or above the upper bound of a bucket, base**(index + 1).

    It is CLASSIC_BOUNDS if none is.
    """
    if scale >= 0:
        exponent = (index >> min(scale, 62)) + 1
    else:
        upper = index + 1
        shift = min(-scale, WIDEST_SHIFT)
        limit = 1 << (62 - shift)
        if upper >= limit:
            return CLASSIC_BOUNDS
        exponent = upper << shift if upper > -limit else LOWEST_CLASSIC_EXPONENT
    if exponent <= LOWEST_CLASSIC_EXPONENT:
        return 0
    return min(exponent - LOWEST_CLASSIC_EXPONENT, CLASSIC_BOUNDS)


@inlined
def _first_bound_above_zeros(threshold: float) -> int:
    """Return the index of the first classic bound at or above the zero bucket's upper bound."""
    k = 0
    while k < CLASSIC_BOUNDS and threshold > 2.0 ** (LOWEST_CLASSIC_EXPONENT + k):
        k += 1
    return k


@inlined
def _fill_classic_counts(words: Int64Array, doubles: FloatArray, block: int, counts: Int64Array) -> None:
    """Write one block's cumulative counts; counts above the last bound appear in `+Inf` only."""
    counts[:] = 0
    positive = block + HEADER_WORDS
    negative = positive + words[block + POSITIVE_LENGTH_WORD]
    for j in range(words[block + NEGATIVE_LENGTH_WORD]):
        counts[0] += words[negative + j]
    k = _first_bound_above_zeros(doubles[block + ZERO_THRESHOLD_WORD])
    if k < CLASSIC_BOUNDS:
        counts[k] += words[block + ZERO_COUNT_WORD]
    scale, offset = words[block + SCALE_WORD], words[block + POSITIVE_OFFSET_WORD]
    for j in range(words[block + POSITIVE_LENGTH_WORD]):
        k = _first_bound_above(offset + j, scale)
        if k < CLASSIC_BOUNDS:
            counts[k] += words[positive + j]
    for k in range(1, CLASSIC_BOUNDS):
        counts[k] += counts[k - 1]


@allocating_kernel
def _classic_bucket_counts(
    schemas: Int32Array, blocks: Int64Array, words: Int64Array, doubles: FloatArray, begin: int, end: int
) -> Int64Array:
    rows = 0
    for i in range(begin, end):
        rows += schemas[i] == EXPONENTIAL
    counts = np.empty(rows * CLASSIC_BOUNDS, np.int64)
    at = 0
    for i in range(begin, end):
        if schemas[i] == EXPONENTIAL:
            _fill_classic_counts(words, doubles, blocks[i], counts[at : at + CLASSIC_BOUNDS])
            at += CLASSIC_BOUNDS
    return counts


def classic_bucket_counts(
    schemas: Int32Array, blocks: Int64Array, words: Int64Array, begin: int, end: int
) -> Int64Array:
    """Return the cumulative counts of the exponential histograms among the series from begin to end.

    Args:
        schemas: Shape (n,), each series' schema.
        blocks: Shape (n,), the index of its block.
        words: The blocks.
        begin: First series.
        end: After the last one.

    Returns:
        CLASSIC_BOUNDS counts for each exponential histogram, concatenated.
    """
    return _classic_bucket_counts(schemas, blocks, words, words.view(np.float64), begin, end)
