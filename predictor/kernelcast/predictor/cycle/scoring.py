"""Scores past forecasts: the share of intervals that held the value, and how much wider they should be.

A model's interval rests on the trend that it saw; after a change of trend it is too narrow by a multiple. So intervals
are widened by the factor that past ones of the same metric and horizon needed: split conformal prediction with
normalised residuals (Lei et al., Distribution-Free Predictive Inference for Regression, JASA 113, 2018, sections 2.2
and 5.2). Scores are in memory only: after a restart no interval is widened until enough claims have come due.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

MIN_SCORED: Final = 20
REMEMBERED: Final = 1000
MAX_PENDING: Final = 100_000
LEVEL: Final = 0.95
MAX_WIDENING: Final = 10.0
"""Limit of the widening: a few broken series must not widen the others; the coverage shows that a model fails."""


@dataclass(frozen=True, slots=True, order=True)
class ForecastClaim:
    """One interval that was forecast.

    Attributes:
        due: Number of the interval of time it is about.
        row: Whose value.
        generation: Of that row when the claim was made.
        metric: Under which name it was published.
        horizon_seconds: How far ahead it was issued.
        mean, lower, upper: As the model has them.
        widening: By how much the interval was widened when it was published.
    """

    due: int
    row: int
    generation: int
    metric: str
    horizon_seconds: float
    mean: float
    lower: float
    upper: float
    widening: float = 1.0

    @property
    def bounds(self) -> tuple[float, float, float]:
        """The published mean, lower and upper bound; none below 0.

        Durations, temperatures of running GPUs, power, memory and shares are never negative; a trend may be.
        """
        lower = self.mean - self.widening * (self.mean - self.lower)
        upper = self.mean + self.widening * (self.upper - self.mean)
        return max(self.mean, 0.0), max(lower, 0.0), max(upper, 0.0)

    def needed(self, seen: float) -> float | None:
        """The widening with which the interval just holds a value; None for an interval without width."""
        half = self.upper - self.mean if seen > self.mean else self.mean - self.lower
        return abs(seen - self.mean) / half if half > 0 else None


class Scores:
    """Claims that are not due yet, and the scores of those that were due.

    Attributes:
        dropped: Claims turned away because too many were pending, or whose value never came.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[int, int], list[ForecastClaim]] = {}
        self._count = 0
        self._hits: dict[str, deque[bool]] = {}
        self._needed: dict[tuple[str, float], deque[float]] = {}
        self.dropped = 0

    def claim(self, claim: ForecastClaim) -> None:
        """Remember an interval until its time comes."""
        if self._count >= MAX_PENDING:
            self.dropped += 1
            return
        heapq.heappush(self._pending.setdefault((claim.row, claim.generation), []), claim)
        self._count += 1

    def pending_rows(self) -> list[tuple[int, int]]:
        """Rows and generations with claims that are not due yet."""
        return list(self._pending)

    def settle(self, newest: Callable[[int, int], int | None], value: Callable[[int, int], float]) -> None:
        """Score the claims that are due.

        Args:
            newest: The newest interval of a (row, generation); None where the series is gone.
            value: The value of a row's interval, NaN where unknown.
        """
        for key, claims in list(self._pending.items()):
            last = newest(*key)
            while claims and (last is None or claims[0].due <= last):
                self._score(heapq.heappop(claims), value if last is not None else None)
            if not claims:
                del self._pending[key]

    def coverage(self) -> dict[str, float]:
        """Share of recent claims that held, by metric; absent until there are enough."""
        return {metric: float(np.mean(hits)) for metric, hits in self._hits.items() if len(hits) >= MIN_SCORED}

    def widening(self, metric: str, horizon_seconds: float) -> float:
        """Factor by which 95 % of the recent intervals would have held their value; 1 until enough were scored."""
        needed = self._needed.get((metric, horizon_seconds), ())
        if len(needed) < MIN_SCORED:
            return 1.0
        rank = min(math.ceil((len(needed) + 1) * LEVEL), len(needed))
        return float(np.clip(np.partition(needed, rank - 1)[rank - 1], 1.0, MAX_WIDENING))

    def _score(self, claim: ForecastClaim, value: Callable[[int, int], float] | None) -> None:
        self._count -= 1
        seen = value(claim.row, claim.due) if value is not None else float("nan")
        if not np.isfinite(seen):
            self.dropped += 1
            return
        hits = self._hits.setdefault(claim.metric, deque(maxlen=REMEMBERED))
        _, lower, upper = claim.bounds
        hits.append(lower <= seen <= upper)
        needed = claim.needed(seen)
        if needed is not None:
            key = claim.metric, claim.horizon_seconds
            self._needed.setdefault(key, deque(maxlen=REMEMBERED)).append(needed)
