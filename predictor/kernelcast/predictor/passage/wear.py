"""Temperatures as they would be at one usual load: a GPU that cools worse is hotter at the same power.

T = a + R P, with P seen at once, after half an hour and after an hour, as the GPU and its chassis warm up: linear least
squares over two days. Where P did not vary, R is not identifiable and the series says nothing of this kind. Blocks at
less than a share of the usual high load are left out, so that like is compared with like; others are scaled to it.

`detector` estimates a trend of them beside that of the series itself. Wear slower than a day is seen in hours: a line
through the medians of the last days at the usual high load. Days without such a load, as weekends, do not count.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.passage.load import HOURS, LoadEffect
from kernelcast.predictor.passage.series import hourly_medians
from kernelcast.predictor.robust import MAD_TO_SIGMA, row_medians, row_quantiles

_HIGH_SHARE: Final = 0.9
"""Quantile of the heat that is the usual high load."""
_ALIKE_SHARE: Final = 0.6
"""Share of that heat from which a block is compared."""
_DAYS: Final = 7
"""Days of hours among which the load's effect is estimated."""
_LINE_DAYS: Final = 4
"""Newest days at a high load through which the line goes: wear accelerates."""
_LEAST_DAYS: Final = 3
"""Such days that a line needs."""
_DAY_HOURS: Final = 3
"""Hours at a high load that a day needs."""
_DAY_ERROR: Final = 0.5
"""Error of a day's median in standard deviations of an hour: a day of hours with a memory is worth four."""


@dataclass(frozen=True, slots=True, eq=False)
class DailyLine:
    """Drifts from day to day, shape (n,).

    Attributes:
        level: The line now, lifted to a day's usual peak; NaN without a line.
        slope: Of the line, a day.
        error: Standard error of the slope.
        noise: Standard deviation of a day.
    """

    level: Floats
    slope: Floats
    error: Floats
    noise: Floats


def at_usual_load(values: Floats, load: LoadEffect) -> tuple[Floats, Floats]:
    """Scale series to their usual high load.

    Args:
        values: Shape (n, b), relative to the limit.
        load: Its effect on the same blocks.

    Returns:
        Scaled values, shape (n, b), NaN for blocks that are not compared and for series without an identifiable load;
        and the standard deviation of hours around their usual value, shape (n,).
    """
    scaled = _scaled(values, load)
    hourly = hourly_medians(scaled)
    misfit = MAD_TO_SIGMA * row_medians(np.abs(hourly - row_medians(hourly)[:, None]))
    return scaled, np.nan_to_num(misfit)


def by_day(hours: Floats, load_hours: Floats, day_hours: int) -> DailyLine:
    """Lines through days at the usual high load; days end now.

    Args:
        hours: Shape (n, h), relative to the limit; NaN where unknown.
        load_hours: Shape (n, h), of the same hours.
        day_hours: Hours of a day, at least 1.
    """
    days = min(hours.shape[1] // day_hours, _DAYS)
    if days < _LEAST_DAYS:
        none = np.zeros(len(hours))
        return DailyLine(none + np.nan, none, none + np.inf, none)
    part = slice(hours.shape[1] - days * day_hours, None)
    scaled = _scaled(hours[:, part], LoadEffect.of(hours[:, part], load_hours[:, part], HOURS))
    by_days = scaled.reshape(len(scaled), days, day_hours)
    medians = row_medians(by_days.reshape(-1, day_hours)).reshape(len(scaled), days)
    medians[np.isfinite(by_days).sum(axis=2) < min(_DAY_HOURS, day_hours)] = np.nan
    known = np.isfinite(medians)
    newest = known & (np.cumsum(known[:, ::-1], axis=1)[:, ::-1] <= _LINE_DAYS)
    count = newest.sum(axis=1)
    # A day's median belongs to its middle.
    age = days - 0.5 - np.arange(days)
    line = line_through(np.where(newest, medians, 0.0), np.where(newest, 1.0, 0.0), -age)
    spread = np.abs(by_days - medians[:, :, None]).reshape(len(scaled), -1)
    noise = np.maximum(line.misfit, _DAY_ERROR * MAD_TO_SIGMA * np.nan_to_num(row_medians(spread)))
    peaks = np.nan_to_num(hours[:, part], nan=-np.inf).reshape(by_days.shape).max(axis=2)
    lift = row_medians(np.where(newest, peaks - np.nan_to_num(medians), np.nan))
    level = np.where(count >= _LEAST_DAYS, line.now + lift, np.nan)
    return DailyLine(level, line.slope, noise / np.sqrt(line.extent), noise)


@dataclass(frozen=True, slots=True, eq=False)
class FittedLine:
    """Lines, shape (n,): value at time 0, slope, standard deviation around it, and sum of squares of the times."""

    now: Floats
    slope: Floats
    misfit: Floats
    extent: Floats


def line_through(values: Floats, weight: Floats, times: Floats) -> FittedLine:
    """Least squares through the columns with weight 1; shape (n, d), times of shape (d,)."""
    count = weight.sum(axis=1)
    size = np.maximum(count, 1.0)
    middle, mean = (weight @ times) / size, (weight * values).sum(axis=1) / size
    off = (times - middle[:, None]) * weight
    extent = np.maximum((off**2).sum(axis=1), 1e-12)
    slope = (off * values).sum(axis=1) / extent
    rest = (values - mean[:, None]) * weight - slope[:, None] * off
    misfit = np.sqrt((rest**2).sum(axis=1) / np.maximum(count - 2.0, 1.0))
    return FittedLine(mean - slope * middle, slope, misfit, extent)


def _scaled(values: Floats, load: LoadEffect) -> Floats:
    """Series at their usual high load; NaN where they are not compared, or their load is not identifiable."""
    high = row_quantiles(load.heat, _HIGH_SHARE)
    base = load.effects[:, :1]
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = base + (values - base) * high[:, None] / load.heat
    compared = (load.known & (high > 0))[:, None] & (load.heat >= _ALIKE_SHARE * high[:, None]) & load.settled
    return np.where(compared, alike, np.nan)
