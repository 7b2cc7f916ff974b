"""Compiled functions that write exponential histograms as native ones, or count their classic buckets.

`requests` calls `histogram_bodies`, `conversion` calls `examine`, and `classic` calls `classic_bucket_counts`.

Source: opentelemetry-specification, compatibility/prometheus_and_openmetrics.md: schema = scale, reduced to 8 where it
is finer, none below -4; bucket i of OTLP is bucket i + 1 of Prometheus.
"""

import numpy as np

from kernelcast.bridge.push.remote_write.histograms import HistogramArrays, UInt64Array
from kernelcast.bridge.tables.columns import FloatArray, Int64Array, UInt8Array
from kernelcast.columnar import EXPLICIT
from kernelcast.columnar.compiled import allocating_kernel, inlined, kernel
from kernelcast.wire.histogram import CLASSIC_EXPONENTS

# Findings of `examine`.
SOUND = 0
MALFORMED = 1
TOO_COARSE = 2
LARGEST_COUNT = np.uint64(2**62)
"""So that differences of counts fit int64."""
FINEST = 8
COARSEST = -4
"""Schemas of Prometheus' native histograms."""
LONGEST_GAP = 2
"""Empty buckets that cost less within a span than a new span would."""
LOWEST_CLASSIC_EXPONENT = CLASSIC_EXPONENTS.start
CLASSIC_BOUNDS = len(CLASSIC_EXPONENTS)
WIDEST_SHIFT = 40
"""Largest shift of a negative scale: buckets of scale -40 are wider than all doubles."""


@inlined
def write_varint(out: UInt8Array, at: int, number: np.uint64) -> int:
    """Write a varint."""
    while number >= np.uint64(128):
        out[at] = (number & np.uint64(127)) | np.uint64(128)
        number >>= np.uint64(7)
        at += 1
    out[at] = number
    return at + 1


@inlined
def varint_bytes(number: np.uint64) -> int:
    """Bytes of a varint."""
    size = 1
    while number >= np.uint64(128):
        number >>= np.uint64(7)
        size += 1
    return size


@inlined
def zigzag(number: int) -> np.uint64:
    """Zigzag code of a signed integer."""
    return np.uint64((number << 1) ^ (number >> 63))


@inlined
def write_double(out: UInt8Array, at: int, tag: int, bits: int) -> int:
    """Write a double's field."""
    out[at] = tag
    at += 1
    for _ in range(8):
        out[at] = bits & 255
        bits >>= 8
        at += 1
    return at


@inlined
def merge_buckets(
    counts: UInt64Array, first: int, last: int, offset: int, shift: int, merged: Int64Array
) -> tuple[int, int]:
    """Merge every 2**shift buckets into `merged`; returns Prometheus' index of the first one, and their number."""
    # Example: offset 3, counts 0, 5, 6, 0, shift 1. Empty ends are cut: buckets 4 and 5, which become bucket 2 with 11.
    # The result is (3, 1), because Prometheus numbers a bucket by its upper bound.
    while first < last and counts[first] == np.uint64(0):
        first += 1
        offset += 1
    while last > first and counts[last - 1] == np.uint64(0):
        last -= 1
    if first == last:
        return 0, 0
    low = offset >> shift
    high = (offset + last - first - 1) >> shift
    merged[: high - low + 1] = 0
    for j in range(last - first):
        merged[((offset + j) >> shift) - low] += np.int64(counts[first + j])
    return low + 1, high - low + 1


@inlined
def span_end(merged: Int64Array, first: int, count: int) -> int:
    """Return the end of the span that begins with the non-empty bucket `first`: before a gap above LONGEST_GAP."""
    last = first
    j = first + 1
    while j < count and j - last <= LONGEST_GAP + 1:
        if merged[j] != 0:
            last = j
        j += 1
    return last + 1


@inlined
def next_filled(merged: Int64Array, first: int, count: int) -> int:
    """Return the first non-empty bucket from `first` on, `count` if there is none."""
    while first < count and merged[first] == 0:
        first += 1
    return first


@inlined
def write_deltas(out: UInt8Array, at: int, merged: Int64Array, count: int, writing: bool) -> int:  # noqa: FBT001
    """Write the difference of each bucket in a span to the one before; if not `writing`, only add up the lengths."""
    first = 0
    previous = np.int64(0)
    while first < count:
        stop = span_end(merged, first, count)
        for j in range(first, stop):
            delta = zigzag(merged[j] - previous)
            previous = merged[j]
            if writing:
                at = write_varint(out, at, delta)
            else:
                at += varint_bytes(delta)
        first = next_filled(merged, stop, count)
    return at


@inlined
def write_buckets(out: UInt8Array, at: int, tag: int, start: int, merged: Int64Array, count: int) -> int:
    """Write the spans of one side under a tag, and its deltas under the next field's (tag + 8)."""
    # Example: start 5, counts 3, 5, 0, 0, 0, 2 (see LONGEST_GAP): spans (5, 2) and (3, 1), deltas +3, +2, -3. The
    # first offset is absolute; the next ones count the empty buckets before a span.
    if count == 0:
        return at
    first = 0
    gap = start
    while first < count:
        stop = span_end(merged, first, count)
        offset = zigzag(gap)
        length = np.uint64(stop - first)
        out[at] = tag
        out[at + 1] = 2 + varint_bytes(offset) + varint_bytes(length)
        out[at + 2] = 0x08
        at = write_varint(out, at + 3, offset)
        out[at] = 0x10
        at = write_varint(out, at + 1, length)
        first = next_filled(merged, stop, count)
        gap = first - stop
    out[at] = tag + 8
    at = write_varint(out, at + 1, np.uint64(write_deltas(out, 0, merged, count, False)))
    return write_deltas(out, at, merged, count, True)


@allocating_kernel
def histogram_bodies(  # noqa: PLR0913, PLR0917  columns, each a local
    points: HistogramArrays,
    sum_bits: Int64Array,
    stale: UInt8Array,
    times: tuple[Int64Array, Int64Array],
    rows: Int64Array,
    ends: Int64Array,
    out: UInt8Array,
) -> int:
    """Write each row's `Histogram`.

    Args:
        points: Exponential histograms that add up, scale COARSEST at least.
        sum_bits: Their sums as the bits of doubles; a stale marker's where `stale`.
        stale: Whether a point says that the series has no value.
        times: Milliseconds of each row, and of its start, 0 for none (2.0 only).
        rows: Which points, in which order.
        ends: Gets the end of each body, after a 0; length len(rows) + 1.
        out: Large enough: 128 bytes a point, and 24 for each bucket.
    """
    time_ms, start_ms = times
    positive_ends, positive, positive_offset = points.positive_indptr, points.positive, points.positive_offset
    negative_ends, negative, negative_offset = points.negative_indptr, points.negative, points.negative_offset
    counts, zeros, thresholds, scales = points.observations, points.zero_count, points.zero_threshold, points.scale
    threshold_bits = thresholds.view(np.int64)
    merged = np.zeros(1, np.int64)
    at = 0
    ends[0] = 0
    for i in range(len(rows)):
        row = rows[i]
        if stale[row]:
            out[at] = 0x08
            out[at + 1] = 0
            at = write_double(out, at + 2, 0x19, sum_bits[row])
        else:
            schema = min(scales[row], FINEST)
            shift = min(scales[row] - schema, 62)
            longest = max(positive_ends[row + 1] - positive_ends[row], negative_ends[row + 1] - negative_ends[row])
            if longest > len(merged):
                merged = np.zeros(longest, np.int64)
            out[at] = 0x08
            at = write_varint(out, at + 1, counts[row])
            at = write_double(out, at, 0x19, sum_bits[row])
            out[at] = 0x20
            at = write_varint(out, at + 1, zigzag(schema))
            at = write_double(out, at, 0x29, threshold_bits[row])
            out[at] = 0x30
            at = write_varint(out, at + 1, zeros[row])
            start, count = merge_buckets(
                negative, negative_ends[row], negative_ends[row + 1], negative_offset[row], shift, merged
            )
            at = write_buckets(out, at, 0x42, start, merged, count)
            start, count = merge_buckets(
                positive, positive_ends[row], positive_ends[row + 1], positive_offset[row], shift, merged
            )
            at = write_buckets(out, at, 0x5A, start, merged, count)
        out[at] = 0x78
        at = write_varint(out, at + 1, np.uint64(time_ms[i]))
        if start_ms[i] > 0:
            out[at] = 0x88
            out[at + 1] = 0x01
            at = write_varint(out, at + 2, np.uint64(start_ms[i]))
        ends[i + 1] = at
    return at


@inlined
def adds_up(count: np.uint64, counts: UInt64Array, first: int, last: int, total: np.uint64) -> np.uint64:
    """Add counts to a total; returns 2**64 - 1 if it would exceed `count`."""
    for j in range(first, last):
        if total <= count and counts[j] <= count:
            total += counts[j]
        else:
            return np.uint64(0xFFFFFFFFFFFFFFFF)
    return total


@inlined
def are_rising(bounds: FloatArray, low: int, high: int) -> bool:
    """Whether bounds are finite and strictly rising."""
    for j in range(low, high):  # noqa: SIM110  numba has no generators here
        if not np.isfinite(bounds[j]) or (j > low and bounds[j] <= bounds[j - 1]):
            return False
    return True


@kernel
def examine(points: HistogramArrays, stale: UInt8Array, out: UInt8Array) -> None:
    """Write for each point whether it can be sent: SOUND, MALFORMED, or TOO_COARSE for a native histogram.

    Args:
        points: Histograms of both kinds.
        stale: Points without a value; those are sound.
        out: One for each point.
    """
    positive_ends, positive = points.positive_indptr, points.positive
    negative_ends, negative = points.negative_indptr, points.negative
    bound_ends, bucket_ends, buckets = points.bounds_indptr, points.bucket_indptr, points.buckets
    counts, zeros, scales, flags = points.observations, points.zero_count, points.scale, points.flags
    for i in range(len(counts)):
        out[i] = SOUND
        if stale[i]:
            continue
        total = counts[i]
        if flags[i] & EXPLICIT:
            first, last = bucket_ends[i], bucket_ends[i + 1]
            low, high = bound_ends[i], bound_ends[i + 1]
            if last > first:
                total = adds_up(counts[i], buckets, first, last, np.uint64(0))
            if last > first and (last - first != high - low + 1 or not are_rising(points.bounds, low, high)):
                out[i] = MALFORMED
        else:
            total = adds_up(counts[i], positive, positive_ends[i], positive_ends[i + 1], zeros[i])
            if total <= counts[i]:
                total = adds_up(counts[i], negative, negative_ends[i], negative_ends[i + 1], total)
            if scales[i] < COARSEST:
                out[i] = TOO_COARSE
        if total != counts[i] or counts[i] > LARGEST_COUNT:
            out[i] = MALFORMED


@inlined
def first_bound_above(index: int, scale: int) -> int:
    """The index of the first classic bound at or above the upper bound of a bucket, base**(index + 1).

    It is CLASSIC_BOUNDS if none is.
    """
    if scale >= 0:
        exponent = (index >> min(scale, 62)) + 1
    else:
        upper = index + 1
        shift = min(-scale, WIDEST_SHIFT)
        if abs(upper) >= 1 << (62 - WIDEST_SHIFT):
            return CLASSIC_BOUNDS if upper > 0 else 0
        exponent = upper << shift
    return max(0, min(exponent - LOWEST_CLASSIC_EXPONENT, CLASSIC_BOUNDS))


@kernel
def classic_bucket_counts(points: HistogramArrays, rows: Int64Array, out: Int64Array) -> None:
    """Write the cumulative counts at each classic bound.

    Args:
        points: Exponential histograms that add up.
        rows: Which.
        out: Shape (len(rows), CLASSIC_BOUNDS), gets the counts; what lies above the last bound is in the count alone.
    """
    positive_ends, positive, positive_offset = points.positive_indptr, points.positive, points.positive_offset
    negative_ends, negative = points.negative_indptr, points.negative
    zeros, thresholds, scales = points.zero_count, points.zero_threshold, points.scale
    for i in range(len(rows)):
        row = rows[i]
        out[i, :] = 0
        for j in range(negative_ends[row], negative_ends[row + 1]):
            out[i, 0] += np.int64(negative[j])
        k = 0
        while k < CLASSIC_BOUNDS and thresholds[row] > 2.0 ** (LOWEST_CLASSIC_EXPONENT + k):
            k += 1
        if k < CLASSIC_BOUNDS:
            out[i, k] += np.int64(zeros[row])
        for j in range(positive_ends[row], positive_ends[row + 1]):
            k = first_bound_above(positive_offset[row] + (j - positive_ends[row]), scales[row])
            if k < CLASSIC_BOUNDS:
                out[i, k] += np.int64(positive[j])
        for k in range(1, CLASSIC_BOUNDS):
            out[i, k] += out[i, k - 1]
