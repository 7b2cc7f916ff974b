"""Probability that a series with a trend reaches its limit, for many series at once, without simulated paths.

The slope is uncertain: a few equally likely slopes take the place of its normal distribution. Along each line the noise
of separate blocks reaches the limit independently, with as many independent blocks as their correlation leaves.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import log_ndtr, ndtri

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.passage.calibration import Calibration
from kernelcast.predictor.passage.series import BLOCK_SECONDS
from kernelcast.predictor.passage.trend import Trend

HORIZONS_SECONDS: Final = (300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""The usual horizons: 5 and 15 minutes, 1, 4 and 24 hours."""
QUANTILES: Final = (0.1, 0.5, 0.9)
"""Shares of the probability whose times to the limit are computed."""
GRID_BLOCKS: Final = np.array([1, 2, 3, 4, 6, 9, 12, 18, 24, 36, 48, 72, 96, 144, 192, 240, 288], dtype=np.float64)
"""Times, in blocks from now, at which the probability is computed; linear between them."""
_NODES: Final = ndtri((np.arange(15) + 0.5) / 15)
"""Equally likely values of a standard normal variable: the slopes, in standard errors."""
_ERROR_SCALE: Final = 1.5
"""Factor on the standard error of the slope."""
_REVERSAL_SCALE: Final = 1.2
"""Factor on the slope that day and night may take back (`Trend.reversal`)."""
_BELIEF_AT: Final = 4.0
"""Standard errors of a slope at which it is as likely real as noise."""
_BELIEF_STEEPNESS: Final = 1.5
"""Steepness of that change, per standard error."""
_LEAST_EASING: Final = 0.01
"""Probability of a slope that falls off below which it is not computed."""


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """Times at which limits are reached, and their probabilities.

    Attributes:
        probability: Shape (n, h), of reaching the limit within each horizon; NaN while the detector abstains.
        seconds: Shape (n, 3), time until 10, 50 and 90 per cent of the probability have reached it; infinite where they
            never do within a day.
        never: Shape (n,), probability of not reaching it within a day.
    """

    probability: Floats
    seconds: Floats
    never: Floats

    @property
    def median_seconds(self) -> Floats:
        """Time until the limit is as likely reached as not, shape (n,); infinite where that takes more than a day."""
        median: Floats = self.seconds[:, QUANTILES.index(0.5)]
        return median


def first_passage(  # noqa: PLR0913  what a path depends on
    trend: Trend,
    headroom: Floats,
    beyond: Bools,
    by_noise: Bools,
    *,
    reach: Floats,
    rise: Floats | None = None,
    horizons_seconds: tuple[float, ...],
    calibration: Calibration | None,
) -> Passage:
    """Probability of reaching the limit within each horizon.

    Args:
        trend: Of each series, so directed that a rise is bad.
        headroom: Shape (n,), limit less the present level; NaN where the limit is not known.
        beyond: Shape (n,), series at or beyond the limit now: their probability is 1.
        by_noise: Shape (n,), whether a series without a slope may reach the limit, by its noise alone.
        reach: Shape (n,), blocks for which a slope is extrapolated.
        rise: Shape (n, grid), by how much the usual course of the day lifts a drifting series until then; None for 0.
        horizons_seconds: Ascending, at most a day.
        calibration: Applied to the computed probabilities; None for none.
    """
    rise = np.zeros((len(headroom), 1)) if rise is None else rise
    course = _Course(headroom, rise, reach, by_noise)
    reached = _drifted(trend, trend.straight, course, np.full(len(headroom), np.inf))
    eases = trend.easing > _LEAST_EASING
    if eases.any():
        part = trend.rows(eases)
        eased = _drifted(part, part.eased, course.rows(eases), part.time_constant)
        reached[eases] += part.easing[:, None] * (eased - reached[eases])
    if calibration is not None:
        reached = calibration.apply(reached, GRID_BLOCKS * BLOCK_SECONDS)
    reached = np.maximum.accumulate(np.where(beyond[:, None], 1.0, reached), axis=1)
    reached = np.where(np.isnan(headroom)[:, None] & ~beyond[:, None], np.nan, reached)
    return summarise(reached, beyond, horizons_seconds)


def summarise(reached: Floats, beyond: Bools, horizons_seconds: tuple[float, ...]) -> Passage:
    """Probabilities at the horizons, and times, from the distribution over the grid, shape (n, grid).

    Both are linear between the times of the grid; horizons below the first one have its probability.
    """
    places = np.interp(np.array(horizons_seconds) / BLOCK_SECONDS, GRID_BLOCKS, np.arange(len(GRID_BLOCKS)))
    before, after = (reached[:, rounded(places).astype(np.int64)] for rounded in (np.floor, np.ceil))
    probability = before + (after - before) * (places % 1.0)
    seconds = np.stack([_time_of(np.nan_to_num(reached), quantile) for quantile in QUANTILES], axis=1)
    return Passage(probability, np.where(beyond[:, None], 0.0, seconds), 1.0 - reached[:, -1])


def _time_of(reached: Floats, quantile: float) -> Floats:
    """Seconds after which a share of the probability has reached the limit, linear within the grid."""
    rows = np.arange(len(reached))
    place = np.argmax(reached >= quantile, axis=1)
    after, before = reached[rows, place], np.where(place > 0, reached[rows, place - 1], 0.0)
    start = np.where(place > 0, GRID_BLOCKS[place - 1], 0.0)
    share = (quantile - before) / np.maximum(after - before, 1e-12)
    blocks = start + share * (GRID_BLOCKS[place] - start)
    return np.where(reached[:, -1] >= quantile, blocks * BLOCK_SECONDS, np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class _Course:
    """Headroom, rise, reach and `by_noise` of `first_passage`."""

    headroom: Floats
    rise: Floats
    reach: Floats
    by_noise: Bools

    def rows(self, chosen: Bools) -> "_Course":
        return _Course(self.headroom[chosen], self.rise[chosen], self.reach[chosen], self.by_noise[chosen])


def _drifted(trend: Trend, slopes: Floats, course: _Course, time_constant: Floats) -> Floats:
    """Probability of having reached the limit at each place of the grid, with slopes and without, shape (n, grid)."""
    slope = slopes - _REVERSAL_SCALE * trend.reversal
    certain = slope / np.maximum(trend.error, 1e-30)
    belief = 1.0 / (1.0 + np.exp(np.clip(-_BELIEF_STEEPNESS * (certain - _BELIEF_AT), -60, 60)))
    error = _ERROR_SCALE * np.where(np.isfinite(trend.error), trend.error, 0.0)
    nodes = np.maximum(np.maximum(slope, 0.0)[:, None] + error[:, None] * _NODES, 0.0)
    lasting = np.minimum(GRID_BLOCKS, course.reach[:, None])
    drifting = _reached(trend, course.headroom[:, None] - course.rise, nodes, time_constant, lasting).mean(axis=1)
    stable = _reached(trend, course.headroom[:, None], np.zeros((len(slopes), 1)), time_constant, lasting)[:, 0]
    flat = np.where(course.by_noise[:, None], stable, 0.0)
    found: Floats = belief[:, None] * drifting + (1 - belief[:, None]) * flat
    return found


def _reached(trend: Trend, headroom: Floats, slopes: Floats, time_constant: Floats, lasting: Floats) -> Floats:
    """Probability of having reached the limit at each place of the grid, shape (n, slopes, grid)."""
    constant = time_constant[:, None]
    finite = np.isfinite(constant)
    safe = np.where(finite, constant, 1.0)
    risen = np.where(finite, safe * -np.expm1(-lasting / safe), lasting)
    distance = headroom[:, None, :] - slopes[:, :, None] * risen[:, None, :]
    noise = np.maximum(trend.noise, 1e-12)[:, None, None]
    independent = np.diff(np.r_[0.0, GRID_BLOCKS]) * ((1 - trend.correlation) / (1 + trend.correlation))[:, None]
    stays = log_ndtr(distance / noise) * np.maximum(independent, 0.5)[:, None, :]
    reached: Floats = -np.expm1(np.cumsum(stays, axis=2))
    return reached
