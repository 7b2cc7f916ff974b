"""Scores past forecasts: the share of prediction intervals that contained the value, and how much wider to make them.

The cycle adds a claim for each forecast that it publishes, settles the claims whose time has come, and asks for the
widening of its next intervals. An *interval* here is a prediction interval, from `lower` to `upper`; a *step* is one
sampling interval, counted from the epoch.

A model's interval rests on the trend that it saw; after a change of trend it is several times too narrow. So intervals
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

MIN_SCORES: Final = 20
"""Scores of a metric, or of a metric at one horizon, below which neither coverage nor widening is known."""
MAX_SCORES: Final = 1000
"""Scores that are kept of each, the newest ones."""
MAX_PENDING: Final = 100_000
"""Claims that may wait for their value; a further one is dropped, and counted."""
TARGET_COVERAGE: Final = 0.95
MAX_WIDENING: Final = 10.0
"""Limit of the widening, so that a few broken series do not widen the intervals of all others."""


@dataclass(frozen=True, slots=True, order=True)
class ForecastClaim:
    """One prediction interval that was published. Claims are ordered by the step that they are about.

    Attributes:
        due: The step whose value is predicted.
        row: The series' row in the predictor's tables.
        generation: The row's count of series so far, as a row is used again for another series when one has ended.
        metric: The published metric's name.
        horizon_seconds: Time between the forecast and its step.
        mean, lower, upper: The model's, before the widening.
        widening: Factor by which the interval was widened when it was published.
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

        Durations, temperatures of running GPUs, power, memory and shares are never negative; a falling trend may
        lead below 0.
        """
        lower = self.mean - self.widening * (self.mean - self.lower)
        upper = self.mean + self.widening * (self.upper - self.mean)
        return max(self.mean, 0.0), max(lower, 0.0), max(upper, 0.0)

    def needed_widening(self, seen: float) -> float | None:
        """The factor with which the interval just contains a value; None if it has no width on the value's side."""
        half = self.upper - self.mean if seen > self.mean else self.mean - self.lower
        return abs(seen - self.mean) / half if half > 0 else None


class Scores:
    """Keeps claims until their step has passed, and the newest scores. Only the cycle's thread uses it.

    Attributes:
        dropped: Number of claims that were refused because too many were pending, or whose value never came.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[int, int], list[ForecastClaim]] = {}
        self._count = 0
        self._hits: dict[str, deque[bool]] = {}
        self._widenings: dict[tuple[str, float], deque[float]] = {}
        self.dropped = 0

    def add(self, claim: ForecastClaim) -> None:
        """Keep a claim until its step has passed."""
        if self._count >= MAX_PENDING:
            self.dropped += 1
            return
        heapq.heappush(self._pending.setdefault((claim.row, claim.generation), []), claim)
        self._count += 1

    def pending_rows(self) -> list[tuple[int, int]]:
        """Rows and generations with claims that have not been scored."""
        return list(self._pending)

    def settle(self, newest_step: Callable[[int, int], int | None], value_at: Callable[[int, int], float]) -> None:
        """Score the claims whose step has passed, and drop those of series that have ended.

        Args:
            newest_step: The newest step of a (row, generation); None if that series has ended.
            value_at: The value of a (row, step), NaN where unknown. It is only asked for series that have not ended.
        """
        for key, claims in list(self._pending.items()):
            last = newest_step(*key)
            if last is None:
                self.dropped += len(claims)
                self._count -= len(claims)
                del self._pending[key]
                continue
            while claims and claims[0].due <= last:
                claim = heapq.heappop(claims)
                self._count -= 1
                self._score(claim, value_at(claim.row, claim.due))
            if not claims:
                del self._pending[key]

    def coverage(self) -> dict[str, float]:
        """Share of the recent intervals that contained their value, by metric; absent until there are enough."""
        return {metric: float(np.mean(hits)) for metric, hits in self._hits.items() if len(hits) >= MIN_SCORES}

    def widening(self, metric: str, horizon_seconds: float) -> float:
        """Factor by which intervals must be widened so that 95 % of the recent ones had contained their value.

        It is 1 until enough were scored, and never less: an interval is not narrowed.
        """
        widenings = self._widenings.get((metric, horizon_seconds))
        if widenings is None or len(widenings) < MIN_SCORES:
            return 1.0
        rank = math.ceil((len(widenings) + 1) * TARGET_COVERAGE)  # at most their number, as there are 20 or more
        quantile = np.partition(widenings, rank - 1)[rank - 1]
        return float(np.clip(quantile, 1.0, MAX_WIDENING))

    def _score(self, claim: ForecastClaim, seen: float) -> None:
        if not np.isfinite(seen):
            self.dropped += 1
            return
        hits = self._hits.setdefault(claim.metric, deque(maxlen=MAX_SCORES))
        _, lower, upper = claim.bounds
        hits.append(lower <= seen <= upper)
        widening = claim.needed_widening(seen)
        if widening is not None:
            key = claim.metric, claim.horizon_seconds
            self._widenings.setdefault(key, deque(maxlen=MAX_SCORES)).append(widening)
