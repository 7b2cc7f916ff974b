"""Probability that a series with a trend reaches its limit, for many series at once, without simulated paths.

The slope is uncertain: a few equally likely slopes take the place of its normal distribution. Along each line the noise
of separate blocks reaches the limit independently, with as many independent blocks as their correlation leaves.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from scipy.special import log_ndtr, ndtri

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.calibration import Calibration
from kernelcast.predictor.passage.series import BLOCK_SECONDS
from kernelcast.predictor.passage.trend import Trend

HORIZONS_SECONDS: Final = (300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""The usual horizons: 5 and 15 minutes, 1, 4 and 24 hours."""
QUANTILES: Final = (0.1, 0.5, 0.9)
"""Shares of the probability whose times to the limit are computed."""
GRID_BLOCKS: Final = np.array([1, 2, 3, 4, 6, 9, 12, 18, 24, 36, 48, 72, 96, 144, 192, 240, 288], dtype=np.float64)
"""Times, in blocks from now, at which the probability is computed; horizons between them have a linear one."""
_STARTS: Final = np.r_[0.0, GRID_BLOCKS[:-1]]
"""Where the interval that ends at each time of the grid begins, in blocks from now."""
_LENGTHS: Final = GRID_BLOCKS - _STARTS
"""Blocks of each interval of the grid."""
_HALVINGS: Final = 7
"""Halvings of an interval of the grid that contains a quantile: the longest one has 48 blocks."""
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
    any_time: Bools | None = None,
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
        any_time: Shape (n,), series that reach the limit at any time of the next day, one as likely as another; None
            for none.
        horizons_seconds: Ascending, at most a day.
        calibration: Applied to the computed probabilities; None for none.
    """
    rise = np.zeros((len(headroom), len(GRID_BLOCKS))) if rise is None else rise
    course = _Course(headroom, rise, reach, by_noise)
    computed = _computed(trend, course)
    reached = computed
    if calibration is not None:
        reached = calibration.apply(reached, GRID_BLOCKS * BLOCK_SECONDS)
    # Where noise alone reaches no limit, only a real slope does.
    reached = np.where(by_noise[:, None], reached, np.minimum(reached, _belief(trend, trend.straight)[:, None]))
    reached = np.maximum.accumulate(np.where(beyond[:, None], 1.0, reached), axis=1)
    reached = np.where(np.isnan(headroom)[:, None] & ~beyond[:, None], np.nan, reached)
    seconds = np.stack([_time_of(trend, course, computed, reached, quantile) for quantile in QUANTILES], axis=1)
    seconds = np.where(beyond[:, None], 0.0, seconds)
    if any_time is not None:
        reached_alike, seconds_alike = _spread(reached[:, -1:])
        reached = np.where(any_time[:, None], reached_alike, reached)
        seconds = np.where(any_time[:, None], seconds_alike, seconds)
    return Passage(_within(reached, horizons_seconds), seconds, 1.0 - reached[:, -1])


def _spread(reached: Floats) -> tuple[Floats, Floats]:
    """Probability at each time of the grid, and times of the quantiles, where each moment of a day is as likely.

    Args:
        reached: Shape (n, 1), probability of reaching it within the day.
    """
    quantiles = np.array(QUANTILES)
    share = np.where(reached >= quantiles, quantiles / np.maximum(reached, 1e-12), np.inf)
    return reached * GRID_BLOCKS / GRID_BLOCKS[-1], share * GRID_BLOCKS[-1] * BLOCK_SECONDS


def _within(reached: Floats, horizons_seconds: tuple[float, ...]) -> Floats:
    """Probabilities at the horizons, linear between the times of the grid; horizons below the first have its own."""
    places = np.interp(np.array(horizons_seconds) / BLOCK_SECONDS, GRID_BLOCKS, np.arange(len(GRID_BLOCKS)))
    before, after = (reached[:, rounded(places).astype(np.int64)] for rounded in (np.floor, np.ceil))
    probability: Floats = before + (after - before) * (places % 1.0)
    return probability


def _time_of(trend: Trend, course: "_Course", computed: Floats, reached: Floats, quantile: float) -> Floats:
    """Seconds after which a share of the probability has reached the limit; infinite where it never does in a day.

    A drift with little noise reaches its limit at one moment, within one interval of the grid: the interval is halved
    until that moment is found.

    Args:
        trend: Of each series.
        course: Of each series.
        computed: Shape (n, grid), probability before its calibration.
        reached: Shape (n, grid), calibrated.
        quantile: The share.
    """
    seconds = np.full(len(reached), np.inf)
    rows = reached[:, -1] >= quantile
    if not rows.any():
        return seconds
    trend, course, computed, reached = trend.rows(rows), course.rows(rows), computed[rows], reached[rows]
    place = np.argmax(reached >= quantile, axis=1)[:, None]
    before, after = _ends(reached, place)
    share = np.clip((quantile - before) / np.maximum(after - before, 1e-12), 0.0, 1.0)
    before, after = _ends(computed, place)
    wanted = before + share * (after - before)
    low, high = _STARTS[place[:, 0]], GRID_BLOCKS[place[:, 0]]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        later = _computed(trend, course.until(middle))[:, -1] < wanted
        low, high = np.where(later, middle, low), np.where(later, high, middle)
    seconds[rows] = (low + high) / 2 * BLOCK_SECONDS
    return seconds


def _ends(reached: Floats, place: Ints) -> tuple[Floats, Floats]:
    """Probabilities at the begin and the end of an interval of the grid, shape (n,); place has shape (n, 1)."""
    before = np.where(place > 0, np.take_along_axis(reached, np.maximum(place - 1, 0), axis=1), 0.0)
    return before[:, 0], np.take_along_axis(reached, place, axis=1)[:, 0]


@dataclass(frozen=True, slots=True, eq=False)
class _Course:
    """Headroom, rise, reach and `by_noise` of `first_passage`.

    `share` is the part of each interval of the grid that counts, shape (n, grid) or (1, grid).
    """

    headroom: Floats
    rise: Floats
    reach: Floats
    by_noise: Bools
    share: Floats = field(default_factory=lambda: np.ones((1, len(GRID_BLOCKS))))

    @property
    def blocks(self) -> Floats:
        """Time at which each interval ends, shape (n, grid) or (1, grid)."""
        blocks: Floats = _STARTS + self.share * _LENGTHS
        return blocks

    @property
    def risen(self) -> Floats:
        """The rise at these times, shape (n, grid)."""
        before = np.concatenate([self.rise[:, :1], self.rise[:, :-1]], axis=1)
        risen: Floats = before + self.share * (self.rise - before)
        return risen

    def rows(self, chosen: Bools) -> "_Course":
        """The course of some series."""
        share = self.share if len(self.share) == 1 else self.share[chosen]
        return _Course(self.headroom[chosen], self.rise[chosen], self.reach[chosen], self.by_noise[chosen], share)

    def until(self, blocks: Floats) -> "_Course":
        """The course up to a time of each series, shape (n,)."""
        return replace(self, share=np.clip((blocks[:, None] - _STARTS) / _LENGTHS, 0.0, 1.0))


def _computed(trend: Trend, course: _Course) -> Floats:
    """Probability of having reached the limit at each time of the course, shape (n, grid)."""
    reached = _drifted(trend, trend.straight, course, np.full(len(course.headroom), np.inf))
    eases = trend.easing > _LEAST_EASING
    if eases.any():
        part = trend.rows(eases)
        eased = _drifted(part, part.eased, course.rows(eases), part.time_constant)
        reached[eases] += part.easing[:, None] * (eased - reached[eases])
    return reached


def _belief(trend: Trend, slopes: Floats) -> Floats:
    """Probability that slopes are real and not taken back, shape (n,)."""
    certain = (slopes - _REVERSAL_SCALE * trend.reversal) / np.maximum(trend.error, 1e-30)
    belief: Floats = 1.0 / (1.0 + np.exp(np.clip(-_BELIEF_STEEPNESS * (certain - _BELIEF_AT), -60, 60)))
    return belief


def _drifted(trend: Trend, slopes: Floats, course: _Course, time_constant: Floats) -> Floats:
    """Probability of having reached the limit at each place of the grid, with slopes and without, shape (n, grid)."""
    slope, belief = slopes - _REVERSAL_SCALE * trend.reversal, _belief(trend, slopes)
    error = _ERROR_SCALE * np.where(np.isfinite(trend.error), trend.error, 0.0)
    nodes = np.maximum(np.maximum(slope, 0.0)[:, None] + error[:, None] * _NODES, 0.0)
    drifting = _reached(trend, course, course.headroom[:, None] - course.risen, nodes, time_constant).mean(axis=1)
    stable = _reached(trend, course, course.headroom[:, None], np.zeros((len(slopes), 1)), time_constant)[:, 0]
    flat = np.where(course.by_noise[:, None], stable, 0.0)
    found: Floats = belief[:, None] * drifting + (1 - belief[:, None]) * flat
    return found


def _reached(trend: Trend, course: _Course, headroom: Floats, slopes: Floats, time_constant: Floats) -> Floats:
    """Probability of having reached the limit at each time of the course, shape (n, slopes, grid)."""
    lasting = np.minimum(course.blocks, course.reach[:, None])
    constant = time_constant[:, None]
    finite = np.isfinite(constant)
    safe = np.where(finite, constant, 1.0)
    risen = np.where(finite, safe * -np.expm1(-lasting / safe), lasting)
    distance = headroom[:, None, :] - slopes[:, :, None] * risen[:, None, :]
    noise = np.maximum(trend.noise, 1e-12)[:, None, None]
    independent = _LENGTHS * ((1 - trend.correlation) / (1 + trend.correlation))[:, None]
    stays = log_ndtr(distance / noise) * (np.maximum(independent, 0.5) * course.share)[:, None, :]
    reached: Floats = -np.expm1(np.cumsum(stays, axis=2))
    return reached
