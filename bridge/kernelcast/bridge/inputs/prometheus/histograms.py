"""Histograms of Prometheus' text: `text` collects the lines of one, and this makes one point of them."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from kernelcast.bridge.inputs.rows import HistogramPoint

BUCKET: Final = 0
SUM: Final = 1
COUNT: Final = 2
CREATED: Final = 3
"""Part of a histogram that a line has; CREATED is the start time of any series."""
START_TIME: Final = 4
"""As CREATED, of a family of its own."""
PARTS: Final = {"_bucket": BUCKET, "_sum": SUM, "_count": COUNT, "_created": CREATED}
"""Which part of a histogram a sample is, by its name's suffix."""
INFINITY: Final = float("inf")
LARGEST_EXACT: Final = 2.0**63
"""Counts from here on do not fit int64."""


@dataclass(slots=True)
class PartialHistogram:
    """The lines of one histogram at one time, so far.

    Attributes:
        buckets: Cumulative counts by upper bound.
        total: Sum of the observations, where given.
        count: Their number, where given.
        exemplars: Exemplars of its buckets.
    """

    buckets: dict[float, float] = field(default_factory=dict)
    total: float | None = None
    count: float | None = None
    exemplars: list[Any] = field(default_factory=list)

    def add(self, part: int, bound: float, value: float) -> None:
        """Add the value of one line."""
        if part == BUCKET:
            self.buckets[bound] = value
        elif part == SUM:
            self.total = value
        else:
            self.count = value

    def point(self, number: int, time_ns: int, start_ns: int) -> HistogramPoint | None:
        """Return the point; None if its counts fall or are no whole numbers, or if it has no total count."""
        bounds = sorted(bound for bound in self.buckets if bound != INFINITY)
        count = self.buckets.get(INFINITY, self.count)
        if count is None:
            return None
        cumulative = [*(self.buckets[bound] for bound in bounds), count]
        if not all(value.is_integer() and 0 <= value < LARGEST_EXACT for value in cumulative):
            return None
        counts = [int(value) for value in cumulative]
        buckets = [counts[0], *(after - before for before, after in pairwise(counts))]
        if min(buckets) < 0 or -INFINITY in self.buckets:
            return None
        return HistogramPoint(
            number,
            time_ns,
            counts[-1],
            self.total,
            start_ns,
            bounds=tuple(bounds),
            buckets=tuple(buckets) if self.buckets else (),
        )
