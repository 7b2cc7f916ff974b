"""Conformal factors of intervals, by class of metric and horizon, from the claims whose value is known.

`IntervalScores` scales each interval by them before it is published, and adds each claim once its value is known.
An interval is scaled so that the newest claims of its class and horizon would have held their values with its nominal
coverage: split conformal prediction with normalised residuals (Lei et al., Distribution-Free Predictive Inference for
Regression, JASA 113, 2018, sections 2.2 and 5.2). Claims are not exchangeable: the day before a deploy or a fault does
not show its effect. So newer claims weigh more (Barber et al., Conformal Prediction Beyond Exchangeability, Annals
of Statistics 51, 2023), and the intended level follows the coverage so far (Gibbs and Candès, Adaptive Conformal
Inference under Distribution Shift, NeurIPS 2021).
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints

REMEMBERED: Final = 1000
"""Newest claims of a class and horizon that decide."""
LEAST_CLAIMS: Final = 50
"""Claims below which the factor is 1."""
HALF_LIFE_CLAIMS: Final = 250.0
"""A claim weighs half as much as one that came this number of claims later."""
LEVEL_RATE: Final = 0.0005
"""Change of the level for one claim outside of its interval beyond the nominal share."""
LARGEST_CHANGE: Final = 0.9
"""The level keeps this share of the way to 1 at most."""
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
        # Not saved: after a restart the levels begin at the nominal coverage again.
        self._levels = np.broadcast_to(np.array(coverages), (classes, horizons, len(coverages))).copy()

    def add(self, classes: Ints, horizons: Ints, needed: Floats) -> None:
        """Add claims.

        Args:
            classes: Shape (n,).
            horizons: Shape (n,).
            needed: Shape (n, coverages).
        """
        for number, horizon in np.unique(np.stack([classes, horizons], axis=1), axis=0).tolist():
            mine = needed[(classes == number) & (horizons == horizon)]
            self._follow(number, horizon, mine)
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

    def _follow(self, number: int, horizon: int, needed: Floats) -> None:
        """Move the levels by the share of new claims, shape (n, coverages), that the present factors do not hold."""
        if self.written[number, horizon] < LEAST_CLAIMS:
            return
        nominal = np.array(self._coverages)
        known = np.isfinite(needed)
        held = (known & (needed <= self._factors[number, horizon])).sum(axis=0)
        moved = self._levels[number, horizon] + LEVEL_RATE * (nominal * known.sum(axis=0) - held)
        room = LARGEST_CHANGE * (1.0 - nominal)
        self._levels[number, horizon] = np.clip(moved, nominal - room, nominal + room)

    def _learn(self, number: int, horizon: int) -> None:
        age = (self.written[number, horizon] - 1 - np.arange(REMEMBERED)) % REMEMBERED
        weight = 0.5 ** (age / HALF_LIFE_CLAIMS)
        for place, level in enumerate(self._levels[number, horizon].tolist()):
            needed = self.needed[number, horizon, place]
            known = np.isfinite(needed)
            if known.sum() >= LEAST_CLAIMS:
                factor = _weighted_quantile(needed[known], weight[known], level)
                self._factors[number, horizon, place] = np.clip(factor, *LIMITS)


def _weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """The least of the values that holds a share of the weights, with one more value of unknown size."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    place = int(np.searchsorted(total, level * (total[-1] + weights.max())))
    return float(values[order[min(place, len(order) - 1)]])


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
