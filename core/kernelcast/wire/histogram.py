"""Durations as all parts exchange them: exact count, sum and sum of squares, and exponential buckets of scale 3.

The probe and the exporter count with it, the encoder sends it, and the bridge converts buckets to classic ones.

Bucket `i` covers (BASE**i, BASE**(i+1)] seconds with BASE = 2**(1/8), about 9 % wide, as OTLP's exponential histogram
defines it (opentelemetry-proto, metrics.proto, ExponentialHistogramDataPoint). Every eighth bound is a power of two,
so the conversion to classic bounds is exact, never interpolated.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SCALE: Final = 3
BUCKETS_PER_DOUBLING: Final = 2**SCALE
NANOSECONDS_PER_SECOND: Final = 1_000_000_000

CLASSIC_EXPONENTS: Final = range(-20, 7)
CLASSIC_BOUNDS_SECONDS: Final = tuple(2.0**exponent for exponent in CLASSIC_EXPONENTS)
"""The classic bucket bounds: 27 powers of two from 0.95 microseconds to 64 seconds."""

SMALLEST_ZERO_WIDTH: Final = 1e-128
"""Width of a native histogram's zero bucket where OTLP gives none (0) or no number: the specification's own default."""

# The table of bounds, in nanoseconds: bucket `_LOWEST + i` ends at `_BOUNDS_NS[i + 1]`.
_LOWEST: Final = -30 * BUCKETS_PER_DOUBLING  # 0.93 ns: shorter than any clock here resolves
_HIGHEST: Final = 20 * BUCKETS_PER_DOUBLING  # 12 days: longer than any kernel lives
_BOUNDS_NS: Final = tuple(
    2.0 ** (index / BUCKETS_PER_DOUBLING) * NANOSECONDS_PER_SECOND for index in range(_LOWEST, _HIGHEST + 1)
)


LOWEST_BUCKET: Final = _LOWEST
"""Index of the first bucket that durations are counted in."""

WHOLE_BOUNDS_NS: Final = tuple(int(bound) for bound in _BOUNDS_NS)
"""The last whole nanosecond below or at each bound, lowest first, for arithmetic without floating point."""


def bucket_index(duration_ns: int) -> int:
    """The scale-3 bucket that a duration falls into; durations beyond the table count in its outermost buckets.

    Args:
        duration_ns: A duration in nanoseconds, above 0.
    """
    position = bisect_left(_BOUNDS_NS, duration_ns) - 1
    return _LOWEST + min(max(position, 0), len(_BOUNDS_NS) - 2)


@dataclass(slots=True)
class DurationTotals:
    """Sum, count and histogram of durations; two can be added without loss. Not thread-safe; its owner locks.

    Attributes:
        count: Number of durations.
        sum_ns: Their sum in nanoseconds, exact.
        sum_squares_ns2: The sum of their squares in square nanoseconds, exact.
        zero_count: Number of durations of 0 ns (the clock was too coarse).
        buckets: Scale-3 bucket index to count, without empty buckets.
    """

    count: int = 0
    sum_ns: int = 0
    sum_squares_ns2: int = 0
    zero_count: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_data(cls, values: Mapping[str, Any]) -> "DurationTotals":
        """Return the durations that JSON holds, in which texts name the buckets.

        Raises:
            ValueError: A number is no count, or the buckets do not add up to `count`.
        """
        buckets = {int(index): count for index, count in values["buckets"].items()}
        count, sum_ns, squares, zero_count = (
            values[name] for name in ("count", "sum_ns", "sum_squares_ns2", "zero_count")
        )
        totals = cls(count, sum_ns, squares, zero_count, buckets)
        numbers = (count, sum_ns, squares, zero_count, *buckets.values())
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("durations are no whole numbers from 0 on")
        if totals.zero_count + sum(buckets.values()) != totals.count:
            raise ValueError(f"durations count {totals.count} but their buckets do not add up to it")
        return totals

    def observe(self, duration_ns: int, times: int = 1) -> None:
        """Add one duration in nanoseconds, `times` over."""
        self.count += times
        self.sum_ns += duration_ns * times
        self.sum_squares_ns2 += duration_ns * duration_ns * times
        if duration_ns <= 0:
            self.zero_count += times
            return
        index = bucket_index(duration_ns)
        self.buckets[index] = self.buckets.get(index, 0) + times

    def add(self, other: "DurationTotals") -> None:
        """Add another set of durations to this one."""
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.sum_squares_ns2 += other.sum_squares_ns2
        self.zero_count += other.zero_count
        buckets = self.buckets
        for index, count in other.buckets.items():
            buckets[index] = buckets.get(index, 0) + count

    def subtract(self, other: "DurationTotals") -> None:
        """Take away a set of durations that this one contains."""
        self.count -= other.count
        self.sum_ns -= other.sum_ns
        self.sum_squares_ns2 -= other.sum_squares_ns2
        self.zero_count -= other.zero_count
        for index, count in other.buckets.items():
            left = self.buckets.get(index, 0) - count
            if left:
                self.buckets[index] = left
            else:
                self.buckets.pop(index, None)

    def copy(self) -> "DurationTotals":
        """An independent copy."""
        return DurationTotals(self.count, self.sum_ns, self.sum_squares_ns2, self.zero_count, dict(self.buckets))

    @property
    def sum_seconds(self) -> float:
        """The sum in seconds: the one conversion, at the edge."""
        return self.sum_ns / NANOSECONDS_PER_SECOND


def classic_counts(zero_count: int, buckets: Iterable[tuple[int, int]]) -> list[int]:
    """Cumulative counts at each classic bound.

    Args:
        zero_count: Durations of 0.
        buckets: Scale-3 bucket indices with their counts, in any order.

    Returns:
        One cumulative count for each of `CLASSIC_BOUNDS_SECONDS`; durations above the last bound are in none (`+Inf`).
    """
    counts = [0] * len(CLASSIC_BOUNDS_SECONDS)
    for index, count in buckets:
        exponent = index // BUCKETS_PER_DOUBLING + 1
        bound = max(exponent - CLASSIC_EXPONENTS.start, 0)
        if bound < len(counts):
            counts[bound] += count
    running = zero_count
    for bound, count in enumerate(counts):
        running += count
        counts[bound] = running
    return counts
