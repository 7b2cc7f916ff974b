"""Statistics of claimed and measured gains."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Final

NORMAL_95: Final = 1.96
STUDENT_95: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Two-sided 95 % points of Student's t for 1 to 15 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times with its 95 % interval; below 1 is faster."""

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval's width, as a logarithm."""
        return log(self.high / self.low) / 2


def paired(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio of times with a change to times without it.

    Args:
        pairs: Seconds per item with and without, at least two pairs.
    """
    logs = [log(new / old) for new, old in pairs]
    degrees = len(logs) - 1
    quantile = STUDENT_95[degrees - 1] if degrees <= len(STUDENT_95) else NORMAL_95
    middle, error = fmean(logs), quantile * stdev(logs) / sqrt(len(logs))
    return Ratio(exp(middle), exp(middle - error), exp(middle + error))


def difference(claimed: Ratio, measured: Ratio) -> tuple[float, float]:
    """Return the logarithm of claimed over measured time, and half of the width of its joint 95 % interval.

    A claim that is too good is negative.
    """
    joint = sqrt(claimed.half_width**2 + measured.half_width**2)
    return log(claimed.ratio / measured.ratio), joint
