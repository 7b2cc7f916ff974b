"""Lines of drifts since their onset, which is not known: the mean over all onsets within a day, by their likelihood.

A line through the newest eight hours leaves older blocks of a long drift unused. Linear change-point model: Carlin,
Gelfand and Smith (1992), Hierarchical Bayesian Analysis of Changepoint Problems, section 2.
"""

# `detector` replaces the lines of long drifts. Sums over blocks are cumulative, so all onsets cost as much as a few.

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.passage.series import DAY_BLOCKS
from kernelcast.predictor.passage.trend import Trend

LEAST_AGE_BLOCKS: Final = 24
"""Expected blocks since the onset from which its line counts: two hours; a younger one is seen better by itself."""
CERTAIN_ERRORS: Final = 3.0
"""Standard errors of a slope from which a series counts as one that drifts."""
AGREE_ERRORS: Final = 3.0
"""Standard errors by which both slopes may differ: beyond them the series is no single line since an onset."""
SETTLING_BLOCKS: Final = 12
"""Longest settling time; a body that settles later follows its room, whose temperature bends a line over a day."""


@dataclass(frozen=True, slots=True, eq=False)
class OnsetLine:
    """Lines, shape (n,), slopes per block: the slope, its standard error, the present level, blocks since the onset."""

    slope: Floats
    error: Floats
    level: Floats
    age: Floats


def since_onset(trend: Trend, values: Floats, since: Ints, settling: Ints) -> Trend:
    """Replace slope, error and level of series that have risen along one line for long.

    Args:
        trend: Of each series, rows without a slope included.
        values: Shape (n, b), a value for each block.
        since: Shape (n,), first block of the present regime.
        settling: Shape (n,), settling time of the series in blocks.
    """
    rises = (trend.straight > CERTAIN_ERRORS * trend.error) & (settling <= SETTLING_BLOCKS)
    rows = np.flatnonzero(rises)
    if not len(rows):
        return trend
    found = onset_line(values[rows], since[rows], trend.noise[rows], trend.correlation[rows])
    apart = np.abs(found.slope - trend.straight[rows]) > AGREE_ERRORS * np.hypot(found.error, trend.error[rows])
    used = (found.age > LEAST_AGE_BLOCKS) & ~apart & (found.slope > 0)
    straight, error, level = trend.straight.copy(), trend.error.copy(), trend.level.copy()
    straight[rows[used]], error[rows[used]], level[rows[used]] = found.slope[used], found.error[used], found.level[used]
    slope = straight + trend.easing * (trend.eased - straight)
    return replace(trend, slope=np.where(rises, slope, trend.slope), straight=straight, error=error, level=level)


def onset_line(values: Floats, since: Ints, noise: Floats, correlation: Floats) -> OnsetLine:
    """Fit a level that becomes a line, for each onset within a day, and weigh the lines by their likelihood.

    Args:
        values: Shape (n, b), NaN for gaps.
        since: Shape (n,), first block that counts.
        noise: Shape (n,), standard deviation of a block.
        correlation: Shape (n,), of one block's noise with the next one's.
    """
    dropped = max(values.shape[1] - DAY_BLOCKS, 0)
    day, first = values[:, dropped:], np.maximum(since - dropped, 0)
    length = day.shape[1]
    usable = np.isfinite(day) & (np.arange(length) >= first[:, None])
    count = np.maximum(usable.sum(axis=1), 1)[:, None]
    centre = np.where(usable, day, 0.0).sum(axis=1, keepdims=True) / count
    # Newest first. A drift of age m has risen by m, m - 1, ... 1 slopes, so its sums are cumulative ones.
    blocks = np.cumsum(usable[:, :0:-1], axis=1)
    rests = np.cumsum(np.where(usable, day - centre, 0.0)[:, :0:-1], axis=1)
    places, products = np.cumsum(blocks, axis=1), np.cumsum(rests, axis=1)
    squares = np.cumsum(2 * places - blocks, axis=1)
    spread = np.maximum(squares - places**2 / count, 1e-9)
    variance = (np.maximum(noise, 1e-12) ** 2 * (1 + correlation) / (1 - correlation))[:, None]
    slopes, ages = products / spread, np.arange(1, length)
    likelihood = 0.5 * products * slopes / variance - 0.5 * np.log(spread)
    likelihood = np.where(ages <= (length - first)[:, None], likelihood, -np.inf)
    weight = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    slope = (weight * slopes).sum(axis=1)
    square = (weight * (slopes**2 + variance / spread)).sum(axis=1)
    level = centre[:, 0] + (weight * slopes * (ages - places / count)).sum(axis=1)
    return OnsetLine(slope, np.sqrt(np.maximum(square - slope**2, 1e-30)), level, weight @ ages)
