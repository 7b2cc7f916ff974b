"""Levels (moving means) and range of each series, and the features: the newest value's distances from them.

`EvidenceModel` computes the features of an interval, whose improbability `tails` gives, and then learns the values.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.arrays import Bools, Floats, Ints

Float32s: TypeAlias = NDArray[np.float32]

VALUE, JUMP, SHIFT = range(3)
FEATURES: Final = 3  # without the deviation from the season, which comes from `season`

# Places of the features in arrays: distance from the slow level, jump from the fast level, shift of the short mean.
CLIP: Final = 3.0
"""Standard deviations at which an error is clipped before the slow level and the spread learn it."""
SPREAD_WEIGHT: Final = 1 / 300
"""Weight of the newest value in the spread."""
UNCLIPPED_ROWS: Final = 20  # rows in which outliers move the level like any other value
RANGE_MARGIN: Final = 0.1  # of the range: a value this far outside it is still inside
SIGMA_RATIO: Final = 1.25  # standard deviations in a mean absolute deviation of the normal distribution


class Levels:
    """Fast, short and slow moving mean of each series, and its range; the last two means without far outliers.

    Not safe for several threads.
    """

    def __init__(self, rows: int, settings: AnomalySettings) -> None:
        self._settings = settings
        self._fast: Floats = np.zeros(rows)
        self._short: Floats = np.zeros(rows)
        self._slow: Floats = np.zeros(rows)
        self._spread: Float32s = np.zeros(rows, np.float32)
        self._lowest: Floats = np.full(rows, np.inf)
        self._highest: Floats = np.full(rows, -np.inf)

    def features(self, rows: slice, values: Floats, count: Float32s) -> tuple[Float32s, Floats]:
        """Deviations of the newest value: from the slow level, from the fast one, and of the short mean.

        Args:
            rows: Which series.
            values: Shape (n,), no NaN on rows that are used.
            count: Shape (n,), values before this one.

        Returns:
            Shape (3, n), in the unit of the values; and the values without far outliers, shape (n,).
        """
        first = count == 0
        for level in (self._fast, self._short, self._slow):
            np.copyto(level[rows], values, where=first)
        slow = self._slow[rows]
        clipped = self._clipped(rows, values, count)
        short = self._short[rows] + self._weight(self._settings.short, count) * (clipped - self._short[rows])
        levels = np.empty((FEATURES, len(values)), np.float32)
        levels[VALUE], levels[JUMP], levels[SHIFT] = values - slow, values - self._fast[rows], short - slow
        return levels, clipped

    def inside(self, rows: slice, values: Floats) -> Bools:
        """Whether the newest values lie in the range of the earlier ones, shape (n,)."""
        lowest, highest = self._lowest[rows], self._highest[rows]
        margin = np.where(highest > lowest, RANGE_MARGIN * (highest - lowest), 0.0)
        within: Bools = (values >= lowest - margin) & (values <= highest + margin)
        return within

    def _clipped(self, rows: slice, values: Floats, count: Float32s) -> Floats:
        """The values, at most `largest_residual` standard deviations from the slow level."""
        slow = self._slow[rows]
        bound = self._settings.largest_residual * np.maximum(self._spread[rows], 0.5 * self.smallest(rows))
        clipped: Floats = np.where(count < UNCLIPPED_ROWS, values, slow + _between(values - slow, bound))
        return clipped

    def smallest(self, rows: slice) -> Float32s:
        """The smallest deviation that counts, shape (n,), in the unit of the values; a share of the slow level."""
        level = np.abs(self._slow[rows])
        return np.maximum(level * self._settings.smallest_ratio, level * 1e-12).astype(np.float32)

    def spread(self, rows: slice | Ints) -> Float32s:
        """Shape (n,), standard deviation from the slow level, without far outliers."""
        return self._spread[rows]

    def expected(self, rows: slice) -> Floats:
        """Shape (n,), the fast level, which replaces a missing value."""
        return self._fast[rows]

    def learn(
        self, rows: slice, values: tuple[Floats, Floats], count: Float32s, known: Float32s, weight: Float32s
    ) -> None:
        """Let the levels and the range learn the newest values; shapes (n,).

        Args:
            rows: Which series.
            values: The newest values, and the same without far outliers, as `features` returned them.
            count: Values before these.
            known: 1 where there is a value, else 0.
            weight: `known` times the factor on learning.
        """
        settings = self._settings
        newest, clipped = values
        slow, spread = self._slow[rows], self._spread[rows]
        lowest, highest = self._lowest[rows], self._highest[rows]
        there = known > 0
        np.minimum(lowest, newest, out=lowest, where=there)
        np.maximum(highest, newest, out=highest, where=there)
        error = newest - slow
        clipped_error = np.where(count < UNCLIPPED_ROWS, error, _between(error, CLIP * spread))
        mean_weight = 1 / (count + 1)
        spread += (
            np.maximum(np.float32(SPREAD_WEIGHT), mean_weight)
            * weight
            * (SIGMA_RATIO * np.abs(clipped_error).astype(np.float32) - spread)
        )
        slow += np.maximum(np.float32(settings.slow), mean_weight) * weight * clipped_error
        for level, share, value in ((self._fast, settings.fast, newest), (self._short, settings.short, clipped)):
            mean = level[rows]
            mean += np.maximum(np.float32(share), mean_weight) * known * (value - mean)

    @staticmethod
    def _weight(share: float, count: Float32s) -> Float32s:
        return np.maximum(np.float32(share), 1 / (count + 1))


def _between(values: Floats, bound: Floats | Float32s) -> Floats:
    """The values, at least `-bound` and at most `bound`; cheaper than `np.clip` for few series."""
    return np.minimum(np.maximum(values, -bound), bound)
