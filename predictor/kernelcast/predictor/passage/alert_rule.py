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
"""Horizons up to this one are near."""
RAISE_NEAR_EVALUATIONS: Final = 2
"""Evaluations in a row after which a near breach raises an alert."""
RAISE_FAR_EVALUATIONS: Final = 6
"""A breach that is hours away leaves time to see whether the rise goes on."""
CLEAR_EVALUATIONS: Final = 6
"""Evaluations in a row after which an alert ends; one that clears at once would fire again soon."""


@dataclass(frozen=True, slots=True, eq=False)
class AlarmState:
    """State of the rule, shape (n,).

    Attributes:
        firing: Whether the alert fires.
        near: Evaluations in a row with a high probability within an hour.
        far: Evaluations in a row with a high probability at any horizon.
        low: Evaluations in a row with a low one at all horizons.
    """

    firing: Bools
    near: Ints
    far: Ints
    low: Ints

    @classmethod
    def quiet(cls, rows: int) -> "AlarmState":
        """No alert fires."""
        zeros = np.zeros(rows, dtype=np.int64)
        return cls(np.zeros(rows, dtype=np.bool_), zeros, zeros, zeros)

    def step(self, probability: Floats, beyond: Bools, horizons_seconds: tuple[float, ...]) -> "AlarmState":
        """Apply the rule to one evaluation.

        Args:
            probability: Shape (n, h); NaN while the detector abstains, which neither raises nor clears.
            beyond: Shape (n,), whether the limit is passed.
            horizons_seconds: Shape (h,).
        """
        soon = np.array(horizons_seconds) <= NEAR_SECONDS
        abstains: Bools = np.isnan(probability).sum(axis=1) == probability.shape[1]
        said = np.nan_to_num(probability)
        highest = said.max(axis=1)
        near = _count(self.near, said[:, soon].max(axis=1, initial=0.0) > RAISE_PROBABILITY, abstains)
        far = _count(self.far, highest > RAISE_PROBABILITY, abstains)
        low = _count(self.low, highest < CLEAR_PROBABILITY, abstains)
        raised = (near >= RAISE_NEAR_EVALUATIONS) | (far >= RAISE_FAR_EVALUATIONS) | beyond
        return AlarmState(raised | (self.firing & (low < CLEAR_EVALUATIONS)), near, far, low)

    def without(self, rows: Bools) -> "AlarmState":
        """The same, without alerts of rows that cannot be judged, shape (n,)."""
        return AlarmState(
            self.firing & ~rows, np.where(rows, 0, self.near), np.where(rows, 0, self.far), np.where(rows, 0, self.low)
        )


def _count(before: Ints, now: Bools, abstains: Bools) -> Ints:
    """Evaluations in a row, unchanged while the detector abstains."""
    counted: Ints = np.where(abstains, before, np.where(now, before + 1, 0)).astype(np.int64)
    return counted
