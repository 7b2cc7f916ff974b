"""Line through the daily peaks: a drift slower than a day is seen from peak to peak, not within one.

Yesterday's drift belongs to the usual range of today, so `season` explains it. Ordinary least squares through the
highest hours of the newest days, each of 24 hours that end with the last whole one. Low days, as weekends and holidays,
are left out: those far below an earlier day of two weeks. Where the load is known, peaks are compared as they would be
at the highest load among them, or, where its effect is not known, those at a like load.

`detector` carries the line on for a day, and takes the sooner of this passage and that within the day.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.load import HEAT_SHARE, HOURS, LOAD_SHARE, LoadEffect
from kernelcast.predictor.passage.series import DAY_BLOCKS, HOUR_BLOCKS
from kernelcast.predictor.passage.trend import Trend
from kernelcast.predictor.robust import row_medians

_SEEN_DAYS: Final = 14
"""Days among which low ones are found: two weeks, so that a repaired fault does not make all later days low."""
_LINE_DAYS: Final = 10
"""Newest days in which all days of the line lie."""
_POINTS: Final = 6
"""Days of the line; the number matters little: of 90 slow faults 82 were found with 5, and 83 with 6 or 7."""
_KNOWN_DAYS: Final = 8
"""Days that are not low from which the line has so many: of the first ones nobody knows whether they are low."""
_FIRST_POINTS: Final = 4
"""Days of the line before; one more must be known."""
_STUDENT: Final = 1.3
"""Factor on the standard error of a slope from `_POINTS` days: 95 % quantile of Student's t over the normal one."""
_FIRST_STUDENT: Final = 1.8
"""The same from `_FIRST_POINTS` days."""
_NEWEST: Final = 3
"""Days of which one must belong to the line: a weekend is passed over, a longer silence is not."""
_LOW_SHARE: Final = 0.2
"""Share of the distance from the lowest hour to an earlier peak by which a low day lies below that peak.

With 0.25 healthy series had twice as many alerts, and as many faults were found.
"""
_LOW_NOISE: Final = 3.0
"""The same in standard deviations of a block, for series without a rhythm."""
_LIFT_DAYS: Final = 2
"""Newest days whose blocks are known."""


def peak_line(hours: Floats, load_hours: Floats, means: Floats, phase: Ints, noise: Floats, day_hours: int) -> Trend:
    """Lines through the daily peaks, at the level of the highest block of a day.

    Args:
        hours: Shape (n, h), so directed that a rise is bad, the last one is the last whole hour; NaN where unknown.
        load_hours: Shape (n, h), the load in these hours; NaN where it is not known.
        means: Shape (n, b), means of blocks; NaN where unknown.
        phase: Shape (n,), blocks since the end of the last whole hour.
        noise: Shape (n,), standard deviation of a block: peaks are at least as uncertain.
        day_hours: Hours of a day, at least 1.

    Returns:
        Lines; the level is NaN where too few days are known. Their noise is that of a day around the line now, and
        counts for each block, for the limit is reached by the highest one: with as few independent blocks as
        `first_passage` allows, 24 of 30 loaders that slow down over days were found; with all of them 28.
    """
    length = _SEEN_DAYS * day_hours
    # Evaluated together or alone, a series has the same days.
    recent, load = np.full((2, len(hours), length), np.nan)
    kept = min(hours.shape[1], length)
    recent[:, length - kept :] = hours[:, hours.shape[1] - kept :]
    load[:, length - kept :] = load_hours[:, load_hours.shape[1] - kept :]
    peaks = _highest(recent, _SEEN_DAYS)
    usual = _usual_days(peaks, np.fmin.reduce(recent, axis=1), noise)
    loaded = np.isfinite(load).any(axis=1)
    peaks[loaded], alike = _at_one_load(recent[loaded], load[loaded], peaks[loaded])
    usual[loaded] &= alike
    known = usual.sum(axis=1)
    points = np.where(known >= _KNOWN_DAYS, _POINTS, _FIRST_POINTS)
    newest = usual & (np.cumsum(usual[:, ::-1], axis=1)[:, ::-1] <= points[:, None])
    newest[:, :-_LINE_DAYS] = False
    enough = (newest.sum(axis=1) == points) & (known > points) & newest[:, -_NEWEST:].any(axis=1)
    weight, times = np.where(newest, 1.0, 0.0), np.arange(1.0 - _SEEN_DAYS, 1.0)
    heights = np.where(newest, peaks, 0.0)
    middle, mean = weight @ times / points, heights.sum(axis=1) / points
    off = (times - middle[:, None]) * weight
    extent = np.maximum((off**2).sum(axis=1), 1e-12)
    slope = (off * heights).sum(axis=1) / extent
    rest = (heights - mean[:, None]) * weight - slope[:, None] * off
    misfit = np.maximum(np.sqrt((rest**2).sum(axis=1) / (points - 2.0)), noise)
    error = np.where(points == _POINTS, _STUDENT, _FIRST_STUDENT) * misfit / np.sqrt(extent)
    level = mean - slope * middle + _lift(means, phase, peaks, day_hours)
    return Trend.line(
        level=np.where(enough, level, np.nan),
        slope=slope / DAY_BLOCKS,
        error=error / DAY_BLOCKS,
        # The line now is as uncertain as the mean of its days, and as its slope over the time since their middle.
        noise=misfit * np.sqrt(1.0 + 1.0 / points + middle**2 / extent),
        age=np.full(len(hours), DAY_BLOCKS),
    )


def _at_one_load(hours: Floats, load: Floats, peaks: Floats) -> tuple[Floats, Bools]:
    """Peaks as they would be at the highest load of them, and days whose load is alike, shape (n, days) each."""
    effect = LoadEffect.of(hours, load, HOURS)
    place = np.argmax(np.nan_to_num(_by_day(hours, _SEEN_DAYS), nan=-np.inf), axis=2)[:, :, None]
    heat, loads = (
        np.take_along_axis(_by_day(each, _SEEN_DAYS), place, axis=2)[:, :, 0] for each in (effect.heat, load)
    )
    most_heat, most_load = (np.fmax.reduce(each, axis=1)[:, None] for each in (heat, loads))
    known = effect.known[:, None]
    alike: Bools = np.where(known, heat >= HEAT_SHARE * most_heat, loads >= (1.0 - LOAD_SHARE) * most_load)
    return np.where(known, peaks + most_heat - heat, peaks), alike


def _usual_days(peaks: Floats, lowest: Floats, noise: Floats) -> Bools:
    """Days that are known and not low, shape (n, days)."""
    before = np.full(peaks.shape, np.nan)
    before[:, 1:] = np.fmax.accumulate(peaks, axis=1)[:, :-1]
    margin = np.maximum(_LOW_SHARE * (before - lowest[:, None]), _LOW_NOISE * noise[:, None])
    usual: Bools = np.isfinite(peaks) & ~(peaks < before - margin)
    return usual


def _lift(means: Floats, phase: Ints, peaks: Floats, day_hours: int) -> Floats:
    """Height of the highest block of a day above its highest hour, shape (n,): a breach is one of a block's mean."""
    length = day_hours * HOUR_BLOCKS
    columns = means.shape[1] - phase[:, None] - np.arange(_LIFT_DAYS * length, 0, -1)
    blocks = np.where(columns >= 0, np.take_along_axis(means, np.maximum(columns, 0), axis=1), np.nan)
    above = _highest(blocks, _LIFT_DAYS) - peaks[:, -_LIFT_DAYS:]
    return np.nan_to_num(row_medians(np.maximum(above, 0.0)))


def _highest(values: Floats, days: int) -> Floats:
    """Highest value of each day, shape (n, days); NaN for days without one."""
    highest: Floats = np.fmax.reduce(_by_day(values, days), axis=2)
    return highest


def _by_day(values: Floats, days: int) -> Floats:
    """Values of each day, shape (n, days, k)."""
    return values.reshape(len(values), days, values.shape[1] // days)
