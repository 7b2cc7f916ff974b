"""The alert rule for many series: a high probability that lasts, or a limit that is passed, with hysteresis."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints

RAISE_PROBABILITY: Final = 0.8
"""Probability above which an evaluation counts towards an alert."""
CLEAR_PROBABILITY: Final = 0.4
"""Probability below which, at all horizons, an evaluation counts towards its end."""
NEAR_SECONDS: Final = 3600.0
"""Time within which a breach is near: half an hour of waiting would be half of what is left.

Of 26 fans that die (`benchmarks.predictor others-fleet`), 22 were paged in time with an hour, 20 with half an hour, and
18 where only a probability above `RAISE_PROBABILITY` within the hour is near.
"""
RAISE_NEAR_EVALUATIONS: Final = 2
"""Evaluations in a row after which a near breach raises an alert."""
RAISE_FAR_EVALUATIONS: Final = 6
"""A breach that is hours away leaves time to see whether the rise goes on."""
CLEAR_EVALUATIONS: Final = 6
"""Evaluations in a row after which an alert ends; one that clears at once would fire again soon."""


def is_near(
    probability: Floats, horizons_seconds: tuple[float, ...], median_seconds: Floats, first_day: Bools
) -> Bools:
    """Whether a breach is near, shape (n,): as likely as not, and on a first day, whose course nobody knows, probable.

    Args:
        probability: Shape (n, h); NaN where the detector abstains.
        horizons_seconds: Shape (h,).
        median_seconds: Shape (n,), median time to the limit; infinite where it is not reached.
        first_day: Shape (n,), series without a day of history.
    """
    soon = probability[:, np.array(horizons_seconds) <= NEAR_SECONDS]
    probable = np.nan_to_num(soon).max(axis=1, initial=0.0) > RAISE_PROBABILITY
    near: Bools = probable | (~first_day & (median_seconds <= NEAR_SECONDS))
    return near


@dataclass(frozen=True, slots=True, eq=False)
class AlarmState:
    """State of the rule, shape (n,).

    Attributes:
        firing: Whether the alert fires.
        high: Evaluations in a row with a high probability at any horizon.
        low: Evaluations in a row with a low one at all horizons.
    """

    firing: Bools
    high: Ints
    low: Ints

    @classmethod
    def quiet(cls, rows: int) -> "AlarmState":
        """No alert fires."""
        zeros = np.zeros(rows, dtype=np.int64)
        return cls(np.zeros(rows, dtype=np.bool_), zeros, zeros)

    def step(self, probability: Floats, beyond: Bools, near: Bools) -> "AlarmState":
        """Apply the rule to one evaluation.

        Args:
            probability: Shape (n, h); NaN while the detector abstains, which neither raises nor clears.
            beyond: Shape (n,), whether the limit is passed.
            near: Shape (n,), as `is_near`.
        """
        abstains: Bools = np.isnan(probability).sum(axis=1) == probability.shape[1]
        highest = np.nan_to_num(probability).max(axis=1)
        high = _count(self.high, highest > RAISE_PROBABILITY, abstains)
        low = _count(self.low, highest < CLEAR_PROBABILITY, abstains)
        needed = np.where(near, RAISE_NEAR_EVALUATIONS, RAISE_FAR_EVALUATIONS)
        raised = (high >= needed) | beyond
        return AlarmState(raised | (self.firing & (low < CLEAR_EVALUATIONS)), high, low)

    def without(self, rows: Bools) -> "AlarmState":
        """The same, without alerts of rows that cannot be judged, shape (n,)."""
        return AlarmState(self.firing & ~rows, np.where(rows, 0, self.high), np.where(rows, 0, self.low))


def _count(before: Ints, now: Bools, abstains: Bools) -> Ints:
    """Evaluations in a row, unchanged while the detector abstains."""
    counted: Ints = np.where(abstains, before, np.where(now, before + 1, 0)).astype(np.int64)
    return counted
