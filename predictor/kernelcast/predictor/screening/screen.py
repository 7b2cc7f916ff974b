"""Screening of every series in every cycle for drifts, steps, settling and constant values.

Two scales are screened, the whole window and its most recent quarter, so that a fast drift shows within a minute of
one-second samples and a slow one within the window.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.screening.blocks import (
    block_medians,
    find_steps,
    mann_kendall,
    noise,
    row_medians,
    settling,
    theil_sen,
)
from kernelcast.predictor.settings import BLOCKS

EFFECT: Final = 4.0
"""Standard deviations of its noise by which a drift must move a series within the span."""

FLOOR_RATIO: Final = 0.02
"""Share of its level by which a drift must move a series: a smaller change needs no action."""

RECENT_BLOCKS: Final = 3
_STEP_EFFECT: Final = 6.0


@dataclass(slots=True)
class Screening:
    """Features of the screened series; arrays of shape (n,).

    Attributes:
        observed: Values in the window.
        level: Median of the most recent blocks.
        noise: Spread around the trend, in the series' unit.
        z: Mann-Kendall's z of the scale that shows the drift best.
        slope: Theil-Sen slope per interval, on that scale.
        span: Intervals that scale covers.
        drift: The trend is significant, large enough, and no step.
        settling: The trend levels off.
        step_age: Intervals since the last step; -1 without one.
        step_size: Its size.
        flat: The same value throughout.
    """

    observed: Ints
    level: Floats
    noise: Floats
    z: Floats
    slope: Floats
    span: Ints
    drift: Bools
    settling: Bools
    step_age: Ints
    step_size: Floats
    flat: Bools

    @classmethod
    def empty(cls, n: int) -> "Screening":
        """Features of n rows before any scale was screened."""
        return cls(
            observed=np.zeros(n, np.int64),
            level=np.full(n, np.nan),
            noise=np.full(n, np.nan),
            z=np.zeros(n),
            slope=np.zeros(n),
            span=np.zeros(n, np.int64),
            drift=np.zeros(n, bool),
            settling=np.zeros(n, bool),
            step_age=np.full(n, -1, np.int64),
            step_size=np.zeros(n),
            flat=np.zeros(n, bool),
        )


@dataclass(frozen=True, slots=True)
class ScreenOptions:
    """Limits of the screen."""

    min_points: int
    drift_z: float


def screen(window: NDArray[np.float32], options: ScreenOptions) -> Screening:
    """Compute the screening features of windows.

    Args:
        window: Shape (n, points), oldest first, NaN where missing.
        options: Limits.
    """
    seen = Screening.empty(len(window))
    finite = np.isfinite(window)
    seen.observed[:] = finite.sum(axis=1)
    age = np.where(seen.observed > 0, window.shape[1] - np.argmax(finite, axis=1), 0)
    enough = seen.observed >= options.min_points
    whole = _length(age, window.shape[1])
    for length in np.unique(whole[enough]).tolist():
        rows = np.flatnonzero(enough & (whole == length))
        _add_scale(seen, rows, window[rows], length, options)
        recent = length // 4 // BLOCKS * BLOCKS
        if recent:
            _add_scale(seen, rows, window[rows], recent, options)
    return seen


def _length(age: Ints, points: int) -> Ints:
    """The span to screen: the largest of 24, 48, 96, … that the series is old enough for, or the whole window."""
    doublings = np.floor(np.log2(np.maximum(age, BLOCKS) / BLOCKS)).astype(np.int64)
    whole = points // BLOCKS * BLOCKS
    return np.where(age >= whole, whole, np.minimum(BLOCKS * 2**doublings, whole))


def _add_scale(seen: Screening, rows: Ints, window: NDArray[np.float32], length: int, options: ScreenOptions) -> None:
    """Add the features of one scale; the drift with the largest z of all scales is kept."""
    blocks = block_medians(window, length=length)
    width = length // BLOCKS
    if not seen.span[rows].any():
        seen.level[rows] = row_medians(blocks[:, -RECENT_BLOCKS:])
        seen.flat[rows] = np.nanmax(blocks, axis=1, initial=-np.inf) == np.nanmin(blocks, axis=1, initial=np.inf)
        seen.span[rows] = length
    else:
        recent = row_medians(blocks[:, -RECENT_BLOCKS:])
        seen.level[rows] = np.where(np.isfinite(recent), recent, seen.level[rows])
    z = mann_kendall(blocks)
    _note_steps(seen, rows, blocks, width)
    steep = np.abs(z) > np.maximum(options.drift_z, np.abs(seen.z[rows]) * seen.drift[rows])
    candidates = np.flatnonzero(steep)
    if not len(candidates):
        return
    chosen = blocks[candidates]
    slope = theil_sen(chosen)
    spread = noise(chosen, slope)
    moved = np.abs(slope) * BLOCKS
    level = np.abs(row_medians(chosen))
    real = (moved > EFFECT * spread) & (moved > FLOOR_RATIO * level) & ~find_steps(chosen).better
    hits = candidates[real]
    at = rows[hits]
    seen.z[at], seen.slope[at], seen.noise[at] = z[hits], slope[real] / width, spread[real]
    seen.span[at], seen.drift[at], seen.settling[at] = length, True, settling(chosen[real], spread[real])
    seen.step_age[at] = -1  # the step on the longer scale is a drift on this one


def _note_steps(seen: Screening, rows: Ints, blocks: Floats, width: int) -> None:
    steps = find_steps(blocks)
    before = np.arange(blocks.shape[1]) < steps.block[:, None]
    centre = np.where(before, 0.0, steps.size[:, None])
    flattened = blocks - centre
    spread = noise(flattened, np.zeros(len(blocks)))
    large = np.abs(steps.size) > np.maximum(_STEP_EFFECT * spread, FLOOR_RATIO * np.abs(row_medians(blocks)))
    hits = np.flatnonzero(steps.better & large)
    seen.step_age[rows[hits]] = (blocks.shape[1] - steps.block[hits]) * width
    seen.step_size[rows[hits]] = steps.size[hits]
