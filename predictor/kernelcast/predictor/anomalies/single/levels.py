"""Levels of one series: the arithmetic of `anomalies.levels` on scalars."""

import numpy as np

from kernelcast.predictor.anomalies import levels as batch
from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.anomalies.single.schedule import Float32s, pair, share


class SingleLevels:
    """Fast, short and slow mean in double precision, spread in float32; the same rounding as `anomalies.levels`."""

    def __init__(self, count: Float32s, settings: AnomalySettings) -> None:
        self._settings = settings
        self._free = (count < batch.UNCLIPPED_ROWS).tolist()
        self._fast_shares = share(settings.fast, count, 1).tolist()
        self._short_shares = share(settings.short, count, 1).tolist()
        self._slow_shares = [one.tolist() for one in pair(share(settings.slow, count, 1), settings)]
        self._spread_shares = [list(one) for one in pair(share(batch.SPREAD_WEIGHT, count, 1), settings)]
        self.fast = self._short = self._slow = self._clipped = 0.0
        self._spread = np.float32(0)

    def spread(self) -> np.float32:
        """Return the standard deviation from the slow level."""
        return self._spread

    def smallest(self) -> np.float32:
        """Return the smallest deviation that matters."""
        level = abs(self._slow)
        return np.float32(max(level * self._settings.smallest_ratio, level * 1e-12))

    def features(
        self, row: int, value: float, smallest: np.float32, *, first: bool
    ) -> tuple[np.float32, np.float32, np.float32]:
        """Deviations of the newest value, as `anomalies.levels.Levels.features`."""
        if first:
            self.fast = self._short = self._slow = value
        slow = self._slow
        clipped = value
        if not self._free[row]:
            bound = float(self._settings.largest_residual * max(self._spread, 0.5 * smallest))
            clipped = slow + min(max(value - slow, -bound), bound)
        self._clipped = clipped
        short = self._short + self._short_shares[row] * (clipped - self._short)
        return np.float32(value - slow), np.float32(value - self.fast), np.float32(short - slow)

    def learn(self, row: int, value: float, frozen: int) -> None:
        """Learn the value whose features were computed last."""
        error = value - self._slow
        if not self._free[row]:
            bound = float(batch.CLIP * self._spread)
            error = min(max(error, -bound), bound)
        size = batch.SIGMA_RATIO * np.float32(abs(error))
        self._spread += self._spread_shares[frozen][row] * (size - self._spread)
        self._slow += self._slow_shares[frozen][row] * error
        self.fast += self._fast_shares[row] * (value - self.fast)
        self._short += self._short_shares[row] * (self._clipped - self._short)
