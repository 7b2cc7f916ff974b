"""A batch of series on one time grid: the input of the forecasting methods. Cycles and backtests make it."""

from dataclasses import dataclass

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Panel:
    """Series with equal intervals and a common end.

    Attributes:
        values: float64, shape (n, t), the newest last; NaN where an interval has no value.
        end_ns: Unix time of the end of the last interval, nanoseconds.
        interval_ns: Length of an interval, nanoseconds.
        season: int64, shape (n,), intervals of the longest known season of each series; 0 or 1 for none.
    """

    values: Floats
    end_ns: int
    interval_ns: int
    season: Ints

    @property
    def rows(self) -> int:
        """Number of series."""
        return int(self.values.shape[0])

    @property
    def length(self) -> int:
        """Number of intervals."""
        return int(self.values.shape[1])

    @property
    def known(self) -> Bools:
        """Shape (n, t), where an interval has a value."""
        return ~np.isnan(self.values)
