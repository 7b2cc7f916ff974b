"""Seasonal profiles: the mean of a series at each time of the day, or of the week. `AnomalyDetector` uses them."""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.arrays import Bools, Floats, Ints

Float32s: TypeAlias = NDArray[np.float32]

MAX_SLOTS: Final = 288  # a day of 5 minutes; longer seasons share slots
CYCLE_WEIGHT: Final = np.float32(0.2)  # weight of the newest cycle
CLIP: Final = np.float32(5.0)
UNCLIPPED_ROWS: Final = 20  # intervals after the first cycle in which every residual counts in full
SPREAD_WEIGHT: Final = np.float32(1 / 100)
"""Weight of the newest deviation in their standard deviation."""
SIGMA_RATIO: Final = np.float32(1.25)


class SeasonGroup:
    """Series with the same season; the profile has the shape (slots, series). Not safe for several threads.

    A slot is a part of the season; long seasons have several intervals in each.
    """

    def __init__(self, rows: Ints, season: int, settings: AnomalySettings) -> None:
        self.rows = rows
        self.season = season
        self._short_weight = np.float32(settings.seasonal_short)
        self._slow = np.float32(settings.slow)
        self._largest = np.float32(settings.largest_residual)
        self._explained = np.float32(settings.explained)
        self._slots = min(season, MAX_SLOTS)
        self._profile: Float32s = np.zeros((self._slots, len(rows)), np.float32)
        self._offset, self._short, self._spread = np.zeros((3, len(rows)), np.float32)
        self._phase = 0

    def deviation(self, values: Floats, count: Float32s, smallest: Float32s) -> Float32s:
        """Mean deviation of the last values from the profile; 0 in the first cycle.

        Args:
            values: Shape (series,), the newest values.
            count: Shape (series,), values before these.
            smallest: Shape (series,), the smallest deviation that matters.
        """
        clipped = self._clipped(self._residual(values), count, smallest)
        moved = self._short + self._short_weight * (clipped - self._short)
        return np.where(count < self.season, np.float32(0), moved)

    def explains(self, spread: Float32s) -> Bools:
        """Whether the deviations from the season are small beside a spread without it; both of shape (series,)."""
        smaller: Bools = self._spread < self._explained * spread
        return smaller

    def learn(self, values: Floats, count: Float32s, smallest: Float32s, known: Float32s, weight: Float32s) -> None:
        """Learn the newest values, and step to the next interval of the season; all of shape (series,).

        Args:
            values: The newest values; the level where one is missing.
            count: Values before these.
            smallest: The smallest deviation that matters.
            known: 1 where there is a value, else 0.
            weight: `known` times the factor on learning.
        """
        first = count < self.season
        residual = self._residual(values)
        profile = self._profile[self._slot()]
        since = np.maximum(count - self.season, 0)
        clipped_error = np.where(since < 1, residual, np.clip(residual, -CLIP * self._spread, CLIP * self._spread))
        intervals = -(-self.season // self._slots)
        share = weight * np.maximum(CYCLE_WEIGHT, 1 / (count / self.season + 1)) / np.float32(intervals)
        seen = np.minimum(np.float32(self._phase - self._first_phase()), count)
        profile += np.where(first, (values.astype(np.float32) - profile) / (seen + 1), share * clipped_error)
        later = weight * ~first
        self._offset += self._slow * later * clipped_error
        self._spread += (
            np.maximum(SPREAD_WEIGHT, 1 / (since + 1)) * later * (SIGMA_RATIO * np.abs(clipped_error) - self._spread)
        )
        self._short += self._short_weight * known * ~first * (self._clipped(residual, count, smallest) - self._short)
        self._phase = (self._phase + 1) % self.season

    def _residual(self, values: Floats) -> Float32s:
        residual: Float32s = values.astype(np.float32) - self._profile[self._slot()] - self._offset
        return residual

    def _clipped(self, residual: Float32s, count: Float32s, smallest: Float32s) -> Float32s:
        """The residuals, at most `largest_residual` standard deviations once these are known."""
        bound = self._largest * np.maximum(self._spread, np.float32(0.5) * smallest)
        return np.where(count < self.season + UNCLIPPED_ROWS, residual, np.clip(residual, -bound, bound))

    def _slot(self) -> int:
        return self._phase * self._slots // self.season

    def _first_phase(self) -> int:
        """The first interval of the season that belongs to the present slot."""
        return -(-self._slot() * self.season // self._slots)


def grouped(season: Ints, settings: AnomalySettings) -> list[SeasonGroup]:
    """One group for each season longer than an interval."""
    lengths = np.unique(season[season > 1])
    return [SeasonGroup(np.flatnonzero(season == one), int(one), settings) for one in lengths]
