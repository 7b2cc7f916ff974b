"""Native histograms of remote write, for `requests`: exponential ones, and those with custom, explicit buckets."""

import struct
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

from kernelcast.bridge.inputs.rows import STALE_NAN_BITS, HistogramPoint
from kernelcast.columnar import DecoderLimits
from kernelcast.wire.errors import DecodeError

CUSTOM_BUCKETS: Final = -53
"""Schema of histograms with custom buckets (NHCB)."""
SCHEMAS: Final = range(-4, 9)
GAUGE_HISTOGRAM: Final = 3
"""The reset hint of histograms that may fall; they are no totals of anything."""
BYTES_PER_EMPTY_BUCKET: Final = 4
"""Share of `message_bytes` that allows one empty bucket between spans: a span of 6 bytes can ask for thousands."""
_COUNTS: Final = range(2**64)
_OFFSETS: Final = range(-(2**31), 2**31)
_BITS: Final = struct.Struct("<d")


class Buckets(NamedTuple):
    """Counts of buckets without gaps, and the index of the first one."""

    first: int = 0
    counts: tuple[int, ...] = ()


@dataclass(slots=True)
class MessageBuckets:
    """Limits of a message's histograms, and its empty buckets between spans so far."""

    limits: DecoderLimits
    empty: int = 0

    def add_empty(self, buckets: int) -> None:
        """Count empty buckets, before they are made.

        Raises:
            DecodeError: The message has too many in all.
        """
        self.empty += buckets
        limit = self.limits.message_bytes // BYTES_PER_EMPTY_BUCKET
        if self.empty > limit:
            raise DecodeError(
                f"message has more than {limit} empty buckets between spans of histograms, the limit; send smaller "
                "batches from the producer, or lower the resolution of its histograms"
            )


def histogram_point(
    histogram: Any, times_ns: tuple[int, int], number: int, message_buckets: MessageBuckets
) -> HistogramPoint | None:
    """A native histogram as a point.

    Args:
        histogram: `prompb.Histogram`, of either version.
        times_ns: Its time, and its start.
        number: Its series' number.
        message_buckets: Bounds the buckets that its spans may ask for.

    Returns:
        The point; None where it has no place among cumulative totals: counts that are no whole numbers, gauge
        histograms, undefined schemas.

    Raises:
        DecodeError: Spans and counts do not match, or there are too many buckets.
    """
    time_ns, start_ns = times_ns
    if int.from_bytes(_BITS.pack(histogram.sum), "little") == STALE_NAN_BITS:
        return HistogramPoint(number, time_ns, 0, None, start_ns, explicit=False, absent=True)
    custom = histogram.schema == CUSTOM_BUCKETS
    if histogram.reset_hint == GAUGE_HISTOGRAM or not (custom or histogram.schema in SCHEMAS):
        return None
    count = _whole(histogram.count_int, histogram.count_float)
    zero = _whole(histogram.zero_count_int, histogram.zero_count_float)
    positive = _dense_buckets(
        histogram.positive_spans, histogram.positive_deltas, histogram.positive_counts, message_buckets
    )
    negative = _dense_buckets(
        histogram.negative_spans, histogram.negative_deltas, histogram.negative_counts, message_buckets
    )
    if count is None or zero is None or positive is None or negative is None:
        return None
    if custom:
        point = HistogramPoint(number, time_ns, count, histogram.sum, start_ns)
        return _explicit(histogram, positive, point, message_buckets.limits)
    return HistogramPoint(
        number,
        time_ns,
        count,
        histogram.sum,
        start_ns,
        zero_count=zero,
        zero_threshold=histogram.zero_threshold,
        scale=histogram.schema,
        positive_offset=positive.first - 1,  # Prometheus numbers a bucket by its upper bound, OTLP by its lower one
        positive=positive.counts,
        negative_offset=negative.first - 1,
        negative=negative.counts,
        explicit=False,
    )


def _explicit(histogram: Any, buckets: Buckets, point: HistogramPoint, limits: DecoderLimits) -> HistogramPoint | None:
    bounds = tuple(histogram.custom_values)
    if len(bounds) > limits.buckets_per_point:
        raise _too_many(len(bounds), limits)
    missing = len(bounds) + 1 - buckets.first - len(buckets.counts)
    if (buckets.counts and buckets.first < 0) or missing < 0:
        raise DecodeError(
            f"a histogram's buckets reach from {buckets.first} to {buckets.first + len(buckets.counts)}; it has "
            f"{len(bounds)} bounds; look at the producer"
        )
    if not buckets.counts:
        return point._replace(bounds=bounds, buckets=(0,) * (len(bounds) + 1))
    return point._replace(bounds=bounds, buckets=(0,) * buckets.first + buckets.counts + (0,) * missing)


def _whole(integer: int, fraction: float) -> int | None:
    """Return a count that is given as integer or as float; None if it is not a whole number."""
    if not fraction:
        return integer
    return int(fraction) if fraction.is_integer() and fraction in _COUNTS else None


def _dense_buckets(spans: Any, deltas: Any, floats: Any, message_buckets: MessageBuckets) -> Buckets | None:
    """Buckets without gaps; None where a count is no whole number, or below 0."""
    if not all(value.is_integer() for value in floats):
        return None
    counts = list(map(int, floats)) if len(floats) else list(accumulate(deltas))
    if not all(count in _COUNTS for count in counts):
        return None
    return _expand_spans(spans, counts, message_buckets)


def _expand_spans(spans: Any, counts: list[int], message_buckets: MessageBuckets) -> Buckets:
    # Example: spans (offset 2, length 2) and (offset 1, length 1) with counts 5, 6, 7 are the buckets 5, 6, 0, 7 from
    # index 2 on: the first offset is absolute, the next ones count the empty buckets before a span.
    dense: list[int] = []
    taken = first = 0
    for position, span in enumerate(spans):
        offset, length = span.offset, span.length
        if position == 0:
            first = offset
        elif offset < 0:
            raise DecodeError(
                f"a histogram's span {position} begins {-offset} before the last one ends; the least is 0; look at the "
                "producer"
            )
        empty = offset if position else 0
        if len(dense) + length + empty > message_buckets.limits.buckets_per_point:
            raise _too_many(len(dense) + length + empty, message_buckets.limits)
        message_buckets.add_empty(empty)
        dense += [0] * empty
        dense += counts[taken : taken + length]
        taken += length
    if taken != len(counts):
        raise DecodeError(
            f"a histogram's spans have {taken} buckets; it has {len(counts)} counts; look at the producer"
        )
    if first - 1 not in _OFFSETS or first + len(dense) not in _OFFSETS:
        raise DecodeError(f"a histogram's buckets begin at {first}; indexes end at 2**31; look at the producer")
    return Buckets(first, tuple(dense))


def _too_many(buckets: int, limits: DecoderLimits) -> DecodeError:
    return DecodeError(
        f"a histogram has {buckets} buckets; the limit is {limits.buckets_per_point}; lower its resolution at the "
        "producer"
    )
