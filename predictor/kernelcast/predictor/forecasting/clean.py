"""Preparation of a window for a model: fills gaps, clips spikes, cuts off old regimes, scales and condenses."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.screening.blocks import MAD_TO_SIGMA
from kernelcast.wire.errors import WindowError

MIN_OBSERVATIONS: Final = 12
MAX_OBSERVATIONS: Final = 120
"""Longer segments are condensed by medians, which also evens out quantised gauges."""

MAX_GAPS_RATIO: Final = 0.5
_SPIKE: Final = 5.0
_SCALE_FLOOR: Final = 1e-9


@dataclass(frozen=True, slots=True)
class CleanSegment:
    """Input of a model: the cleaned and scaled end of a window.

    Attributes:
        endog: Shape (n,), centred and scaled, oldest first, no NaN.
        centre: Offset that was subtracted, in the series' unit.
        scale: Divisor, in the series' unit; 0 for a constant.
        intervals: Grid intervals per observation.
    """

    endog: Floats
    centre: float
    scale: float
    intervals: int

    @property
    def constant(self) -> bool:
        """Whether there is nothing to model."""
        return self.scale == 0

    def restore(self, values: Floats) -> Floats:
        """Scaled values back in the series' unit."""
        return values * self.scale + self.centre


def prepare(window: Floats, *, span: int) -> CleanSegment:
    """Clean the last part of a window.

    Args:
        window: Shape (points,), oldest first, NaN where missing.
        span: Intervals from its end that belong to the present regime.

    Raises:
        WindowError: Too few observations, or mostly gaps.
    """
    part = window[-span:]
    known = np.isfinite(part)
    if known.any():
        part = part[np.argmax(known) :]
        known = np.isfinite(part)
    count = int(known.sum())
    if count < MIN_OBSERVATIONS:
        raise WindowError(f"the segment has {count} observations; a model needs {MIN_OBSERVATIONS}; wait for more")
    if count < (1 - MAX_GAPS_RATIO) * len(part):
        raise WindowError(
            f"{len(part) - count} of {len(part)} intervals are missing; at most {MAX_GAPS_RATIO:.0%} may be; "
            "raise interval_seconds to the exporter's interval"
        )
    places = np.arange(len(part))
    filled = np.interp(places, places[known], part[known])
    tamed = winsorise(filled)
    condensed, intervals = _condense(tamed)
    centre = float(np.median(condensed))
    scale = float(np.ptp(condensed))
    if scale <= _SCALE_FLOOR * max(abs(centre), 1e-30):
        scale = 0.0
    return CleanSegment((condensed - centre) / (scale or 1.0), centre, scale, intervals)


def winsorise(values: Floats) -> Floats:
    """Clip values to within 5 standard deviations of the robust line through them."""
    slope, level = robust_line(values)
    line = level + slope * np.arange(len(values))
    rest = values - line
    spread = MAD_TO_SIGMA * float(np.median(np.abs(rest - np.median(rest))))
    if spread == 0:
        # More than half lie on the line: what strays from it is a spike or a rare step of a quantised gauge.
        spread = float(np.quantile(np.abs(rest), 0.9)) / 2
    tamed: Floats = line + np.clip(rest, -_SPIKE * spread, _SPIKE * spread)
    return tamed


def robust_line(values: Floats) -> tuple[float, float]:
    """Theil-Sen's slope per step, and the level at the first step; of at most 60 block medians."""
    n = len(values)
    width = -(-n // 60)
    blocks = np.array([np.median(values[begin : begin + width]) for begin in range(0, n, width)])
    centres = np.array([(begin + min(begin + width, n) - 1) / 2 for begin in range(0, n, width)])
    first, second = np.triu_indices(len(blocks), 1)
    slope = float(np.median((blocks[second] - blocks[first]) / (centres[second] - centres[first])))
    return slope, float(np.median(blocks - slope * centres))


def _condense(values: Floats) -> tuple[Floats, int]:
    width = -(-len(values) // MAX_OBSERVATIONS)
    if width == 1:
        return values, 1
    whole = values[len(values) % width :].reshape(-1, width)
    return np.median(whole, axis=1), width
