"""Converts a TPU runtime's distribution to `DurationTotals`: other buckets, the same count and sum.

`reader.py` calls it for each point of a histogram. The message is `Distribution` of `runtime.MESSAGES`.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from kernelcast.exporter.tpu.runtime import MAX_POINTS
from kernelcast.wire.histogram import DurationTotals, bucket_index

MAX_BUCKETS: Final = 1_000
"""Real distributions have some dozen; a faulty answer may claim 2**31."""
MAX_COUNT: Final = 2**63 // MAX_POINTS
"""Of one distribution, so that the sum of all points of a metric fits 64 bits."""


def durations(distribution: Any, unit_ns: float) -> DurationTotals:
    """Convert a distribution; the result has no buckets if the runtime's are invalid, as when counts do not add up.

    Each bucket's count is added to the bucket of its upper bound, so a quantile is never too low, and at most one
    bucket of the runtime's too high. Count and sum are exact; the sum follows from the mean.

    Args:
        distribution: The runtime's message.
        unit_ns: Nanoseconds per unit of its values; for values that are no times, 1e-9 of the base unit (nanobytes).

    Raises:
        ValueError, OverflowError: It holds numbers that cannot be (NaN, infinity, counts below 0 or of `MAX_COUNT`).
    """
    count, mean = distribution.count, distribution.mean
    if not 0 <= count < MAX_COUNT or mean < 0 or min(distribution.bucket_counts, default=0) < 0:
        raise ValueError(
            f"a distribution counts {count} of {mean} on average; neither can be below 0, nor the count {MAX_COUNT} or "
            "more; it is not used"
        )
    squares = distribution.sum_of_squared_deviation + count * mean * mean
    totals = DurationTotals(count, round(count * mean * unit_ns), round(squares * unit_ns * unit_ns))
    counts = distribution.bucket_counts
    bounds_ns = [bound * unit_ns for bound in islice(upper_bounds(distribution.bucket_options), MAX_BUCKETS + 1)]
    if bounds_ns and len(counts) <= len(bounds_ns) + 1 <= MAX_BUCKETS and sum(counts) == count:
        for number, times in enumerate(counts):
            if times:
                _place(totals, number, times, bounds_ns)
    return totals


def complete(totals: DurationTotals) -> bool:
    """Return whether the counts of the buckets add up to the total count."""
    return totals.zero_count + sum(totals.buckets.values()) == totals.count


def upper_bounds(options: Any) -> Iterable[float]:
    """Return the upper bounds of all buckets but the last, which is unbounded; none if the options are invalid.

    Example: linear buckets with offset 0, width 10 and 2 finite buckets have the bounds 0, 10 and 20, and 4 counts.
    Source: the comments of tpu_metric_service.proto: bucket 0 ends at the first bound, and there are n + 2 buckets.
    """
    if options.HasField("exponential_buckets"):
        made = options.exponential_buckets
        if made.growth_factor <= 1 or made.scale <= 0 or made.num_finite_buckets > MAX_BUCKETS:
            return ()
        return (made.scale * made.growth_factor**power for power in range(made.num_finite_buckets + 1))
    if options.HasField("linear_buckets"):
        lines = options.linear_buckets
        return (lines.offset + lines.width * step for step in range(lines.num_finite_buckets + 1))
    found: Iterable[float] = options.explicit_buckets.bounds
    return found


def _place(totals: DurationTotals, number: int, times: int, bounds_ns: list[float]) -> None:
    """Add the count of a runtime's bucket to the bucket of its upper bound."""
    last = len(bounds_ns) - 1
    bound_ns = bounds_ns[min(number, last)]
    if bound_ns <= 0:
        totals.zero_count += times
        return
    # The runtime's last bucket has no upper bound: its count goes one bucket beyond that of the last bound.
    index = bucket_index(round(bound_ns)) + (number > last)
    totals.buckets[index] = totals.buckets.get(index, 0) + times
