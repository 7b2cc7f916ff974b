"""The seasonal profile of one series: the arithmetic of `anomalies.season` on scalars."""

import numpy as np

from kernelcast.predictor.anomalies import season as batch
from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.anomalies.single.schedule import Float32s, pair, share


class Season:
    """Profile of `rows` intervals, its offset, and the mean deviation from it."""

    def __init__(self, rows: int, count: Float32s, settings: AnomalySettings) -> None:
        self._rows = rows
        self._slots = min(rows, batch.MAX_SLOTS)
        self._profile = [np.float32(0)] * self._slots
        self._offset = self._short = self._spread = np.float32(0)
        self._short_weight = np.float32(settings.seasonal_short)
        self._explained = np.float32(settings.explained)
        self._largest = np.float32(settings.largest_residual)
        self.since = np.maximum(count - rows, 0)
        self._count = list(count)
        self._first = (count < rows).tolist()
        self._free = (count < rows + batch.UNCLIPPED_ROWS).tolist()
        self._unclipped = (self.since < 1).tolist()
        intervals = np.float32(-(-rows // self._slots))
        joins = pair(np.maximum(batch.CYCLE_WEIGHT, 1 / (count / rows + 1)), settings)
        self._joins = [list(one / intervals) for one in joins]
        slow = np.float32(settings.slow)
        self._slow = (slow, slow * np.float32(settings.frozen))
        self._spread_shares = [list(one) for one in pair(share(batch.SPREAD_WEIGHT, self.since, 1), settings)]
        self._slot = 0
        self._residual = np.float32(0)

    def start(self, row: int, value: np.float32) -> bool:
        """Compute the residual of the newest value; return whether the first season is over."""
        self._slot = row % self._rows * self._slots // self._rows
        self._residual = value - self._profile[self._slot] - self._offset
        return not self._first[row]

    def deviation(self, row: int, smallest: np.float32) -> np.float32:
        """Mean deviation of the last values from the profile."""
        clipped = self._clipped(row, smallest)
        moved: np.float32 = self._short + self._short_weight * (clipped - self._short)
        return moved

    def explains(self, spread: np.float32) -> bool:
        """Whether the deviations from the season are small beside a spread without it."""
        return bool(self._spread < self._explained * spread)

    def learn(self, row: int, value: np.float32, smallest: np.float32, frozen: int | None) -> None:
        """Learn the value that `start` got; `frozen` is None where it was missing."""
        slot = self._slot
        if self._first[row]:
            phase = row % self._rows
            first_phase = -(-slot * self._rows // self._slots)
            seen = min(np.float32(phase - first_phase), self._count[row])
            self._profile[slot] += (value - self._profile[slot]) / np.float32(seen + 1)
            return
        if frozen is None:
            return
        clipped_error = self._residual
        if not self._unclipped[row]:
            bound = batch.CLIP * self._spread
            clipped_error = min(max(clipped_error, -bound), bound)
        self._profile[slot] += self._joins[frozen][row] * clipped_error
        self._offset += self._slow[frozen] * clipped_error
        self._spread += self._spread_shares[frozen][row] * (batch.SIGMA_RATIO * abs(clipped_error) - self._spread)
        self._short += self._short_weight * (self._clipped(row, smallest) - self._short)

    def _clipped(self, row: int, smallest: np.float32) -> np.float32:
        if self._free[row]:
            return self._residual
        bound = self._largest * max(self._spread, np.float32(0.5) * smallest)
        return min(max(self._residual, -bound), bound)
