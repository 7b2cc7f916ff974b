"""Conformal factors of intervals, by class of metric and horizon, from the claims whose value has come.

An interval is scaled so that the newest claims of its class and horizon would have held their values with its nominal
coverage: split conformal prediction with normalised residuals (Lei et al., Distribution-Free Predictive Inference for
Regression, JASA 113, 2018, sections 2.2 and 5.2).
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints

REMEMBERED: Final = 1000
LEAST_CLAIMS: Final = 50
LIMITS: Final = (0.1, 10.0)
"""A few broken series must not widen the others without bound; the coverage shows that a method fails."""


class Widening:
    """The newest residuals of each class and horizon, relative to the half-widths of their intervals.

    Attributes:
        needed: Shape (classes, horizons, coverages, remembered): factor with which an interval just holds its value;
            NaN where there is none yet. The newest ones replace the oldest.
        written: Shape (classes, horizons), claims so far.
    """

    def __init__(self, classes: int, horizons: int, coverages: tuple[float, ...]) -> None:
        self._coverages = coverages
        self.needed = np.full((classes, horizons, len(coverages), REMEMBERED), np.nan, dtype=np.float32)
        self.written = np.zeros((classes, horizons), dtype=np.int64)
        self._factors = np.ones((classes, horizons, len(coverages)))

    def add(self, classes: Ints, horizons: Ints, needed: Floats) -> None:
        """Add claims.

        Args:
            classes: Shape (n,).
            horizons: Shape (n,).
            needed: Shape (n, coverages).
        """
        for number, horizon in np.unique(np.stack([classes, horizons], axis=1), axis=0).tolist():
            mine = needed[(classes == number) & (horizons == horizon)]
            begin = self.written[number, horizon]
            places = (begin + np.arange(len(mine))) % REMEMBERED
            self.needed[number, horizon][:, places[-REMEMBERED:]] = mine[-REMEMBERED:].T
            self.written[number, horizon] += len(mine)
            self._learn(number, horizon)

    def restore(self, needed: Floats, written: Ints) -> None:
        """Continue from arrays of an earlier process."""
        self.written = written
        self.needed = np.where(written[:, :, None, None] > 0, needed, np.nan).astype(np.float32)
        for number, horizon in np.argwhere(self.written > 0).tolist():
            self._learn(number, horizon)

    def factors(self, classes: Ints, horizon: int) -> Floats:
        """Factors of the intervals of some series, shape (n, coverages); 1 until there are enough claims."""
        found: Floats = self._factors[classes, horizon]
        return found

    def _learn(self, number: int, horizon: int) -> None:
        for place, coverage in enumerate(self._coverages):
            known = self.needed[number, horizon, place]
            known = np.sort(known[np.isfinite(known)])
            if len(known) >= LEAST_CLAIMS:
                rank = min(int(np.ceil((len(known) + 1) * coverage)), len(known))
                self._factors[number, horizon, place] = np.clip(known[rank - 1], *LIMITS)


def needed_factors(quantiles: Floats, truth: Floats, pairs: tuple[tuple[int, int], ...], median: int) -> Floats:
    """Factors with which intervals just hold values.

    Args:
        quantiles: Shape (n, levels).
        truth: Shape (n,).
        pairs: Places of the bounds of each interval.
        median: Place of the median.

    Returns:
        Shape (n, intervals); NaN for an interval without width that missed, or without bounds.
    """
    center = quantiles[:, median]
    away = np.abs(truth - center)
    found = []
    for low, high in pairs:
        half = np.where(truth > center, quantiles[:, high] - center, center - quantiles[:, low])
        factor = np.divide(away, half, out=np.full(len(truth), np.nan), where=half > 0)
        found.append(np.where((half == 0) & (away == 0), 0.0, factor))
    return np.stack(found, axis=1)


def widened(quantiles: Floats, factors: Floats, pairs: tuple[tuple[int, int], ...], median: int) -> Floats:
    """Quantiles with scaled intervals; an inner bound never lies beyond an outer one.

    Args:
        quantiles: Shape (n, levels).
        factors: Shape (n, intervals).
        pairs: Places of the bounds of each interval, from the innermost to the outermost.
        median: Place of the median.
    """
    found, center = quantiles.copy(), quantiles[:, median]
    lower = upper = center
    for place, (low, high) in enumerate(pairs):
        lower = np.fmin(lower, center - factors[:, place] * (center - quantiles[:, low]))
        upper = np.fmax(upper, center + factors[:, place] * (quantiles[:, high] - center))
        found[:, low] = np.where(np.isfinite(quantiles[:, low]), lower, np.nan)
        found[:, high] = np.where(np.isfinite(quantiles[:, high]), upper, np.nan)
    return found
