"""Online state of series: a few numbers each, updated by every batch, for all series at once.

Holt's linear method (Hyndman & Athanasopoulos, FPP3, section 8.2) with the variance of its one-step errors, and a
two-sided CUSUM of the standardised errors (Page, Biometrika 41, 1954): it notices a shift within a few observations,
before the next cycle screens the window.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Floats, Ints

_ALPHA: Final = 0.2
_BETA: Final = 0.05
_VARIANCE_WEIGHT: Final = 0.05
_SLACK: Final = 0.5
_LIMIT: Final = 8.0
_WARM_UP: Final = 20
_CLIP: Final = 4.0


class OnlineState:
    """Level, trend, error variance and CUSUM per row, 5 float32 each: 20 bytes a series."""

    def __init__(self) -> None:
        self._state: NDArray[np.float32] = np.zeros((5, 0), np.float32)
        self._count: Ints = np.zeros(0, np.int64)

    def update(self, rows: Ints, values: Floats) -> None:
        """Take one value per row; NaN changes nothing. Shapes (n,), each row at most once."""
        if not len(rows):
            return
        self._grow(int(rows.max()) + 1)
        known = np.isfinite(values)
        rows, values = rows[known], values[known]
        level, trend, variance, up, down = self._state[:, rows].astype(np.float64)
        fresh = self._count[rows] == 0
        level = np.where(fresh, values, level)
        error = values - level - trend
        deviation = np.sqrt(np.maximum(variance, 1e-12 * np.maximum(values**2, 1e-24)))
        scaled = np.clip(error / deviation, -_CLIP, _CLIP)
        warm = self._count[rows] >= _WARM_UP
        up = np.where(warm, np.maximum(up + scaled - _SLACK, 0), 0)
        down = np.where(warm, np.maximum(down - scaled - _SLACK, 0), 0)
        # A spike moves the state no more than a large ordinary error would.
        tame = np.where(warm, scaled * deviation, error)
        fresh_level = level + trend + _ALPHA * tame
        trend = trend + _ALPHA * _BETA * tame
        weight = np.where(warm, _VARIANCE_WEIGHT, 0.2)
        variance = (1 - weight) * variance + weight * tame**2
        self._state[:, rows] = np.stack([fresh_level, trend, variance, up, down])
        self._count[rows] += 1

    def shifted(self, rows: Ints) -> NDArray[np.bool_]:
        """Rows whose CUSUM is over its limit: something has changed just now."""
        self._grow(int(rows.max(initial=-1)) + 1)
        over: NDArray[np.bool_] = self._state[3:5, rows].max(axis=0, initial=0.0) > _LIMIT
        return over

    def reset(self, rows: Ints) -> None:
        """Clear the state of rows; the next value starts a new warm-up."""
        known = rows[rows < len(self._count)]
        self._state[:, known] = 0
        self._count[known] = 0

    def _grow(self, size: int) -> None:
        if size > len(self._count):
            more = max(size, 2 * len(self._count)) - len(self._count)
            self._state = np.concatenate([self._state, np.zeros((5, more), np.float32)], axis=1)
            self._count = np.concatenate([self._count, np.zeros(more, np.int64)])
