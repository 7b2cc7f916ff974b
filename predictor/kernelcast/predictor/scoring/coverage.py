"""Coverage of published prediction intervals by metric: the share that contained the observed value.

The cycle adds a claim for each interval that it publishes, and settles the claims whose block has ended; the publisher
writes the coverage. Scores are in memory only: after a restart there is no coverage until enough claims have come due.
Coverage by class and horizon, which survives a restart, is in `scoring.intervals`.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

MIN_SCORES: Final = 20
"""Scored intervals of a metric below which its coverage is not known: one miss of 20 is the expected 5 %."""
MAX_SCORES: Final = 1000
"""Scored intervals of a metric that are kept, the newest ones, so that the coverage follows changes."""
MAX_PENDING: Final = 100_000
"""Claims that may wait for their value; a further one is dropped, and counted."""


@dataclass(frozen=True, slots=True, order=True)
class ForecastClaim:
    """One published prediction interval. Claims are ordered by the block that they are about.

    Attributes:
        due: The block whose mean is predicted, numbered from the epoch.
        row: The series' row in the windows.
        generation: Count of series that the row has had so far.
        metric: Prometheus name of the published metric.
        lower, upper: Bounds as they were published, in the series' unit.
    """

    due: int
    row: int
    generation: int
    metric: str
    lower: float
    upper: float

    def contains(self, value: float) -> bool:
        """Whether a value lies within the interval, whose published bounds are at least 0."""
        return max(self.lower, 0.0) <= value <= max(self.upper, 0.0)


class IntervalCoverage:
    """Keeps claims until their block has ended, and the newest scores. Only the thread that runs cycles uses it.

    Attributes:
        dropped: Number of claims that were refused because too many were pending, or whose value never came.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[int, int], list[ForecastClaim]] = {}
        self._count = 0
        self._hits: dict[str, deque[bool]] = {}
        self.dropped = 0

    def add(self, claim: ForecastClaim) -> None:
        """Keep a claim until its block has ended."""
        if self._count >= MAX_PENDING:
            self.dropped += 1
            return
        key = claim.row, claim.generation
        heapq.heappush(self._pending.setdefault(key, []), claim)
        self._count += 1

    def pending_rows(self) -> dict[tuple[int, int], int]:
        """Rows and generations with claims that have not been scored, each with the first block that is due."""
        return {key: claims[0].due for key, claims in self._pending.items()}

    def settle(self, newest_block: Callable[[int, int], int | None], value_at: Callable[[int, int], float]) -> None:
        """Score the claims whose block has ended, and drop those of series that have ended.

        Args:
            newest_block: The newest block of a (row, generation); None if that series has ended.
            value_at: The value of a (row, block), NaN where unknown. It is only asked for series that have not ended.
        """
        for key in list(self._pending):
            last = newest_block(*key)
            claims = self._pending[key]
            if last is None:
                self.dropped += len(claims)
                self._count -= len(claims)
                claims.clear()
            while last is not None and claims and claims[0].due <= last:
                claim = heapq.heappop(claims)
                self._count -= 1
                self._score(claim, value_at(claim.row, claim.due))
            if not claims:
                del self._pending[key]

    def by_metric(self) -> dict[str, float]:
        """Share of the recent intervals that contained their value, by metric; absent until there are enough."""
        return {metric: float(np.mean(hits)) for metric, hits in self._hits.items() if len(hits) >= MIN_SCORES}

    def _score(self, claim: ForecastClaim, value: float) -> None:
        if not np.isfinite(value):
            self.dropped += 1
            return
        self._hits.setdefault(claim.metric, deque(maxlen=MAX_SCORES)).append(claim.contains(value))
