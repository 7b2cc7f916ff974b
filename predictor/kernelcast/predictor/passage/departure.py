"""Heat beyond everything that a GPU showed at a like load: a fan that dies, a room whose cooling fails.

What the load explains is taken away, by blocks of two days or, where these had no such load, as after a weekend, by
hours of two weeks. The rest stays within a range. Once it leaves that, the moment is known, and neither a season nor
a job explains the rise: nothing needs to settle first, as in `trend`.

`detector` carries the rise on for twice the time since then. A rise that falls off, as of a chassis that warms up, ends
where its curve settles. What does not rise any more, as a room that has become warmer, still adds to the next job, and
what the last jobs showed of a fan holds while the GPU idles.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.load import BLOCKS, HEAT_SHARE, HOURS, LOAD_SHARE, Columns, LoadEffect
from kernelcast.predictor.passage.noise import change_noise
from kernelcast.predictor.passage.series import history_length
from kernelcast.predictor.passage.trend import Trend, easing_since, slope_of
from kernelcast.predictor.robust import row_medians

_NOW: Final = 3
"""Newest blocks whose median is the present load and rest."""
_RECENT: Final = 6
"""Blocks of the present slope, which bounds that since the departure.

Without this bound chassis that warm up had .225 false alarms a series-day instead of .05, and of 80 faults that last
for hours 59 were found instead of 58.
"""
_WIDTH_ERRORS: Final = 3.0
"""Standard deviations of the rest that its range has above its middle."""
_REACH: Final = 2
"""Times since the departure for which a rise is carried on."""


def departures(values: Floats, effect: LoadEffect, load: Floats, hours: Floats, hourly: LoadEffect) -> Trend:
    """Trends of series whose newest blocks are hotter than all before at a like load; the level of others is NaN.

    Args:
        values: Shape (n, b), so directed that a rise is bad.
        effect: Of the load on the same blocks.
        load: Shape (n, b); NaN where it is not known.
        hours: Shape (n, h), values of the whole hours of two weeks.
        hourly: Effect of the load on the same hours.
    """
    rest = effect.rest(values)
    middle, upper = _range(rest, effect, effect, BLOCKS)
    rows = np.isnan(upper)
    if rows.any():
        hourly = hourly.rows(rows)
        now = hourly.in_blocks(load[rows])
        rest[rows] = now.rest(values[rows])
        middle[rows], upper[rows] = _range(hourly.rest(hours[rows]), hourly, now, HOURS)
    age = _age(rest, upper)
    level, newest = row_medians(values[:, -2:]), row_medians(rest[:, -_NOW:])
    whole = (newest - upper) / np.maximum(age, 1)
    recent = slope_of(rest[:, -_RECENT:], np.isfinite(rest[:, -_RECENT:]))
    slope = np.where(age > _RECENT, np.minimum(whole, recent), whole)
    # A fit that is wrong beyond the loads it has seen makes a rise that the series does not show.
    first = np.maximum(values.shape[1] - 1 - age, 0)[:, None] + np.arange(2)
    before = row_medians(np.take_along_axis(values, np.minimum(first, values.shape[1] - 1), axis=1))
    slope = np.minimum(slope, (level - before) / np.maximum(age, 1))
    noise = change_noise(rest)
    error = np.maximum(np.sqrt(2.0) * noise, (upper - middle) / _WIDTH_ERRORS) / np.maximum(age, 1)
    eased, time_constant, easing = easing_since(rest, age, noise)
    left = age > 0
    line = Trend.line(
        level=np.where(left, level, np.nan),
        slope=np.where(left, np.nan_to_num(slope), 0.0),
        error=np.where(left, error, np.inf),
        noise=np.nan_to_num(noise),
        age=_REACH * age,
    )
    return replace(line, eased=np.minimum(eased, line.straight), easing=easing, time_constant=time_constant)


def at_next_load(values: Floats, effect: LoadEffect) -> Trend:
    """Levels at the next load as high as the highest one of two days; NaN for series that are no hotter than usual.

    Air that is 9 degrees warmer makes an idle GPU 9 degrees hotter, and the next job, too.

    Args:
        values: Shape (n, b), so directed that a rise is bad.
        effect: Of the load on the same blocks.
    """
    rest = np.where(effect.known[:, None], effect.rest(values), values)
    alike = replace(effect, known=np.zeros(len(values), np.bool_))
    middle, upper = _range(rest, alike, alike, BLOCKS)
    age = _age(rest, upper)
    before = np.where(np.arange(values.shape[1]) < values.shape[1] - age[:, None], values, np.nan)
    level = _highest(before) + row_medians(rest[:, -_NOW:]) - middle
    return _flat(np.where(age >= _RECENT, level, np.nan), upper - middle)


def after_high_loads(values: Floats, effect: LoadEffect, columns: Columns) -> Trend:
    """Levels at the next high load, where the last ones were hotter than all before; NaN elsewhere.

    Between its jobs a GPU with a worn fan is as cool as ever. As elsewhere a rise goes on for as long as it has lasted:
    the next high load adds to the highest value what the last ones had more than usual.

    Args:
        values: Shape (n, k), so directed that a rise is bad.
        effect: Of the load on the same columns.
        columns: What they are.
    """
    rest = effect.rest(values)
    high = effect.heat >= HEAT_SHARE * _highest(effect.heat)[:, None]
    high &= effect.known[:, None] & np.isfinite(rest)
    back = np.cumsum(high[:, ::-1], axis=1)[:, ::-1]
    # A young series has no blocks to spare: the later half may be the rise.
    left_out = np.minimum(columns.newest, high.sum(axis=1) // 2)[:, None]
    newest, before = np.where(high & (back <= _NOW), rest, np.nan), np.where(high & (back > left_out), rest, np.nan)
    middle, upper = row_medians(before), _highest(before)
    lowest = np.fmin.reduce(newest, axis=1, initial=np.nan)
    hotter = (np.isfinite(before).sum(axis=1) >= columns.shown) & (lowest > upper)
    level = _highest(values) + row_medians(newest) - middle
    return _flat(np.where(hotter, level, np.nan), upper - middle)


def _highest(values: Floats) -> Floats:
    """Highest value of each row, shape (n,); NaN for rows without one, also before the first whole hour."""
    highest: Floats = np.fmax.reduce(values, axis=1, initial=np.nan)
    return highest


def _flat(level: Floats, width: Floats) -> Trend:
    """Series without a slope at some levels, shape (n,), whose range ends so far above its middle, shape (n,)."""
    rows = len(level)
    noise, none = np.nan_to_num(width / _WIDTH_ERRORS), np.full(rows, np.inf)
    return Trend.line(level=level, slope=np.zeros(rows), error=none, noise=noise, age=np.zeros(rows, np.int64))


def _range(rest: Floats, past: LoadEffect, now: LoadEffect, columns: Columns) -> tuple[Floats, Floats]:
    """Middle and upper end of the rest at a load like the present one, shape (n,); NaN where too few columns show it.

    Args:
        rest: Shape (n, k), of the columns that show the range.
        past: The load in these columns.
        now: The load in blocks.
        columns: What those of `rest` are; the newest ones belong to the rise, not to the range.
    """
    loads = np.stack([row_medians(now.loads[:, -_NOW:, memory]) for memory in range(now.loads.shape[2])], axis=1)
    by_load = (np.abs(past.loads - loads[:, None]) <= LOAD_SHARE * loads[:, None]).all(axis=2)
    by_heat = past.heat >= HEAT_SHARE * row_medians(now.heat[:, -_NOW:])[:, None]
    like = np.isfinite(rest) & np.where(now.known[:, None], by_heat, by_load)
    # A young series has no hours to spare: the later half may be the rise.
    later = np.minimum(columns.newest, history_length(np.isfinite(rest)) // 2)
    like &= np.arange(like.shape[1]) < like.shape[1] - later[:, None]
    seen = like.sum(axis=1) >= columns.shown
    kept = np.where(like & seen[:, None], rest, np.nan)
    # The highest of three neighbours' medians: one block alone is noise.
    padded = np.pad(kept, ((0, 0), (1, 1)), constant_values=np.nan)
    three = np.stack([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], axis=2)
    smooth = row_medians(three.reshape(-1, 3)).reshape(kept.shape)
    upper = np.where(seen, np.nan_to_num(smooth, nan=-np.inf).max(axis=1, initial=-np.inf), np.nan)
    return row_medians(kept), upper


def _age(rest: Floats, upper: Floats) -> Ints:
    """Blocks since each series has left its range, shape (n,); 0 where fewer than two have."""
    place = np.arange(rest.shape[1])
    seen: Bools = np.isfinite(rest)
    inside = seen & (rest <= upper[:, None])
    # A block in which the load pauses is no return.
    inside[:, 1:] &= inside[:, :-1] | ~seen[:, :-1]
    last = np.where(inside, place, -1).max(axis=1, initial=-1)
    beyond = (seen & (place > last[:, None])).sum(axis=1)
    age: Ints = np.where((last >= 0) & (beyond >= 2) & np.isfinite(upper), rest.shape[1] - 1 - last, 0)
    return age
