"""The predictor's own past, scored: the share of intervals that held what came."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

MIN_SCORED: Final = 20
REMEMBERED: Final = 1000
MAX_PENDING: Final = 100_000


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """One interval that was forecast.

    Attributes:
        due: Number of the interval of time it is about.
        row: Whose value.
        generation: Of that row when the claim was made.
        metric: Under which name it was published.
        lower, upper: The interval's bounds.
    """

    due: int
    row: int
    generation: int
    metric: str
    lower: float
    upper: float


class Scores:
    """Claims that are not due, and how those that were due came out.

    Attributes:
        dropped: Claims turned away because too many were pending, or whose value never came.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[int, int], list[Claim]] = {}
        self._count = 0
        self._hits: dict[str, deque[bool]] = {}
        self.dropped = 0

    def claim(self, claim: Claim) -> None:
        """Remember an interval until its time comes."""
        if self._count >= MAX_PENDING:
            self.dropped += 1
            return
        heapq.heappush(self._pending.setdefault((claim.row, claim.generation), []), claim)
        self._count += 1

    def settle(self, newest: Callable[[int, int], int | None], value: Callable[[int, int], float]) -> None:
        """Score what is due.

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
        """By metric: the share of recent claims that held; absent until there are enough."""
        return {metric: float(np.mean(hits)) for metric, hits in self._hits.items() if len(hits) >= MIN_SCORED}

    def _score(self, claim: Claim, value: Callable[[int, int], float] | None) -> None:
        self._count -= 1
        seen = value(claim.row, claim.due) if value is not None else float("nan")
        if not np.isfinite(seen):
            self.dropped += 1
            return
        hits = self._hits.setdefault(claim.metric, deque(maxlen=REMEMBERED))
        hits.append(claim.lower <= seen <= claim.upper)
