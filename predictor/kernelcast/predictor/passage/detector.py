"""Probability of a breach, for many series at one moment, from their blocks of the last two days.

`run` calls `evaluate` at the ends of blocks. Its stages: series divided by their limit (given, or a multiple of the
learnt baseline) and directed so that a rise is bad; season; trend without what load and season explain; whether the
limit is passed; first passage of the trend; then, where they come sooner, the passages of drifts that the newest blocks
hide: of daily peaks, at usual load, beyond the range at a like load, at the next load, after high loads, beside the
node, and of leaks below an allocator's steps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.local_time import LocalTime
from kernelcast.predictor.passage import baseline
from kernelcast.predictor.passage.baseline import Baseline
from kernelcast.predictor.passage.calibration import Calibration
from kernelcast.predictor.passage.departure import after_high_loads, at_next_load, departures
from kernelcast.predictor.passage.excursions import (
    HELD_SHARE,
    NOISE_ERRORS,
    excursions,
    explained_by_noise,
    jumps_often,
    usually_slow,
)
from kernelcast.predictor.passage.first_passage import GRID_BLOCKS, HORIZONS_SECONDS, Passage, first_passage
from kernelcast.predictor.passage.leak import steady_leak
from kernelcast.predictor.passage.load import BLOCKS, HOURS, LoadEffect
from kernelcast.predictor.passage.node import beside_node
from kernelcast.predictor.passage.noise import RESOLUTION_NOISE, block_noise, change_noise
from kernelcast.predictor.passage.peaks import peak_line
from kernelcast.predictor.passage.refill import refilling
from kernelcast.predictor.passage.season import Season, learn
from kernelcast.predictor.passage.series import (
    DAY_BLOCKS,
    HOUR_BLOCKS,
    SeriesBlocks,
    Traits,
    history_length,
    hourly_medians,
)
from kernelcast.predictor.passage.trend import CERTAIN_ERRORS, SLOW_STRIDES, Trend, estimate, last_jump
from kernelcast.predictor.passage.wear import at_usual_load
from kernelcast.predictor.robust import MAD_TO_SIGMA, row_last, row_medians, shrunk_gain

_LOAD_RESOLUTION: Final = 3.0
"""Size of changes of the load, in its unit (watts), that explain half as much as large ones: a ridge."""
_LOAD_STEP_RATIO: Final = 0.1
"""A change of the load by twice this share of its maximum, within three blocks, begins a new trend."""
_FIRST_DAY_STEPS: Final = 0.1
"""Steps of a gauge per hour by which it may rise on its first day because of day and night, 0.1 degrees an hour."""
REACH_KNOWN: Final = 1.0
"""Ages of a trend for which it is extrapolated; a fault of D hours is then predicted up to D / 2 before the limit."""
REACH_UNKNOWN: Final = 0.5
"""The same while no earlier day shows what is usual: a day's traffic rises for hours, too.

With 0.35 the 30 first days of healthy traffic that had 7 false alarms have none, but leads of first days are a fifth to
a half shorter.
"""
REACH_WITHOUT: Final = 4.0
"""The same where blocks are so short that no day can be seen: there is no season to be mistaken for a drift."""
_UNKNOWN_NOISE: Final = 2.0
"""Largest noise of a block in that of differences, while no earlier day shows what is usual."""
_HIGHEST_NOISE: Final = 2.0
"""Standard deviations by which the highest block of a day is at least above the level, or else the following."""
_RANGE_NOISE: Final = 0.1
"""Largest noise of a block, in the distance from the lowest to the highest block of a day, where that is more.

In 252 series-days of three healthy worlds (seed 9204) no bound left 226 false alarms, these two 3, and 12 with 0.15
here. Of 20 fans that clog under jobs (seed 9406) 16 are found, as with no bound, and 5 with the first one alone.
"""
_JOB_BLOCKS: Final = 36
"""Blocks of a job, for the number of jobs that a line rests on."""
_LOAD_HOURS: Final = 336
"""Hours that show what a like load does: two weeks."""
_EMPTY_SHARE: Final = 0.5
"""Share of a limit below which memory belongs to no program that reserved it."""
_RESERVED_SHARE: Final = 0.01
"""Distance from the limit, as a share of it, at which reserved memory wavers around it."""
_RESERVING_BLOCKS: Final = 6
"""First half hour of a program, in which it reserves."""
_NODE_SETTLING_BLOCKS: Final = 5
"""Blocks after a step beside the node during which a slope says nothing."""
_BEYOND_NOISE: Final = 3.0
"""Standard deviations of a block by which the level at the usual high load is beyond the limit for certain."""
_RISING_ERRORS: Final = 2.0
"""Standard errors of a rise from day to day below which its passage is not computed: 1 in 20 is believed."""
_FIRST_BLOCKS: Final = 3
"""Blocks before a leak that say nothing of the time without it."""
LEAST_REACH: Final = 3.0
"""Blocks for which any trend is extrapolated."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Result of one evaluation.

    Attributes:
        passage: Probabilities and times.
        limit: Shape (n,), the limit that was used; NaN while the baseline is not learnt.
        opening: Shape (n,), whether the process is in its first minutes, or holds what it reserved in them.
        beyond: Shape (n,), whether the newest block is at or beyond the limit; one that follows from the series' own
            baseline must be passed for longer than it usually is.
        next_load: Shape (n,), whether the next high load passes the limit, whenever it comes.
        prompt: Shape (n,), whether a limit that is passed between the ends of blocks counts at once.
        erratic: Shape (n,), whether the series has no usual value: it often jumps over its own limit.
        trend: Trends of the series relative to their limits.
    """

    passage: Passage
    limit: Floats
    opening: Bools
    beyond: Bools
    next_load: Bools
    prompt: Bools
    erratic: Bools
    trend: Trend

    @property
    def silent(self) -> Bools:
        """Series of which only the end of a block shows that the limit is passed, shape (n,)."""
        silent: Bools = self.opening | ~self.prompt
        return silent

    def rows(self, chosen: slice) -> "Evaluation":
        """Some of the series."""
        passage, trend = self.passage, self.trend
        return Evaluation(
            Passage(*(getattr(passage, name)[chosen] for name in Passage.__slots__)),
            self.limit[chosen],
            self.opening[chosen],
            self.beyond[chosen],
            self.next_load[chosen],
            self.prompt[chosen],
            self.erratic[chosen],
            trend.rows(chosen),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Panel:
    """Series divided by their limits and directed so that a rise is bad.

    Attributes:
        blocks: The series; means, medians, hours and medians of the node are on that scale.
        values: Shape (n, b), means of a gauge that rounds, medians of a duration, which has spikes; NaN for the first
            minutes of a process: they are not its usual speed and belong to no trend.
        offset: Shape (n,), distance of the means above `values`, median of two hours: a breach is one of the mean.
        target: Shape (n,), the limit on that scale, 1 or -1, or 0 for a limit of 0; NaN while it is not learnt.
        own: Shape (n,), whether the limit is a multiple of the series' own baseline.
        resolution: Shape (n,), step of the gauge on that scale.
        noise: Shape (n,), standard deviation of a block, from the changes between neighbours.
        begins: Shape (n,), first block of each series.
        traits: Of the series' metrics, in their own units.
        learnt: The baselines, in the series' units.
    """

    blocks: SeriesBlocks
    values: Floats
    offset: Floats
    target: Floats
    own: Bools
    resolution: Floats
    noise: Floats
    begins: Ints
    traits: Traits
    learnt: Baseline


def evaluate(  # noqa: PLR0913  what differs between live, recorded and tested series
    blocks: SeriesBlocks,
    traits: Traits,
    *,
    horizons_seconds: tuple[float, ...] = HORIZONS_SECONDS,
    calibration: Calibration | None = None,
    held: Floats | None = None,
    begins: Ints | None = None,
    day_hours: int = 24,
    local_time: LocalTime | None = None,
) -> Evaluation:
    """Evaluate series at the end of their newest block.

    Args:
        blocks: At least an hour of them.
        traits: Of the series' metrics.
        horizons_seconds: Ascending, at most a day.
        calibration: Applied to the computed probabilities; None for none.
        held: Shape (n,), baselines that hold instead of learnt ones, because something is wrong; NaN for none.
        begins: Shape (n,), first block of each; None for 0.
        day_hours: Hours of `SeriesBlocks` in a day; 0 where they do not divide it.
        local_time: Clock and holidays of the site; None where its hours are longer or shorter than 3600 s.
    """
    learnt = baseline.learn_some(blocks, np.isnan(traits.limit), below=traits.below, day_hours=day_hours)
    usual = learnt.value if held is None else np.where(np.isfinite(held), held, learnt.value)
    limit = np.where(np.isnan(traits.limit), traits.baseline_ratio * usual, traits.limit)
    begins = np.zeros(len(limit), np.int64) if begins is None else begins
    panel = _relative(blocks, traits, limit, learnt, begins)
    season = _season(panel, day_hours, local_time)
    trend, level = _trend(panel, season)
    opening, beyond, prompt, erratic = _states(panel, trend)
    reach = np.where(season.known_before(trend.age), REACH_KNOWN, REACH_UNKNOWN if day_hours else REACH_WITHOUT)
    passage_of = partial(first_passage, horizons_seconds=horizons_seconds, calibration=calibration)
    passage = passage_of(
        trend,
        np.where(opening | erratic, np.nan, panel.target - level),
        beyond,
        ~panel.own,
        reach=np.maximum(reach * trend.age, LEAST_REACH),
        # What shared a kernel's GPU at this hour on some days is no course of today.
        rise=_rise(season, level, panel.own),
    )
    judged = ~(opening | beyond | erratic)
    passage, next_load = _with_drifts(passage, passage_of, panel, judged, day_hours)
    rows, drift, leak_reach, steps = _leaks(panel, judged)
    if rows.any():
        headroom, neither = panel.target[rows] - drift.level, np.zeros(len(steps), np.bool_)
        passage = _sooner(passage, rows, passage_of(drift, headroom, neither, neither, reach=leak_reach, rise=steps))
    return Evaluation(passage, limit, opening, beyond, next_load, prompt, erratic, trend)


def _relative(blocks: SeriesBlocks, traits: Traits, limit: Floats, learnt: Baseline, begins: Ints) -> _Panel:
    """Divide series by their limits, and by 1 where the limit is 0 or not learnt."""
    scale = np.where(np.isfinite(limit) & (limit != 0), np.abs(limit), 1.0)
    sign = np.where(traits.below, -1.0, 1.0)
    direction = (sign / scale)[:, None]
    relative = replace(
        blocks,
        mean=direction * blocks.mean,
        median=direction * blocks.median,
        hours=direction * blocks.hours,
        node=direction * blocks.node,
    )
    robust = np.where(traits.resolution[:, None] > 0, blocks.mean, blocks.median)
    values = np.where(learnt.openings, np.nan, direction * robust)
    offset = np.nan_to_num(row_medians(direction * (blocks.mean - robust)[:, -2 * HOUR_BLOCKS :]))
    target = sign * np.where(np.isfinite(limit), np.sign(limit), np.nan)
    resolution = traits.resolution / scale
    noise = np.maximum(change_noise(values[:, -DAY_BLOCKS:]), RESOLUTION_NOISE * resolution)
    return _Panel(relative, values, offset, target, np.isnan(traits.limit), resolution, noise, begins, traits, learnt)


def _season(panel: _Panel, day_hours: int, local_time: LocalTime | None) -> Season:
    """Learn the season by the clock of the site; hours beyond the limit were faults."""
    hours, phase = panel.blocks.hours, panel.blocks.phase
    hours = hours if local_time is None else local_time.usual_hours(hours, panel.blocks.last_hour)
    healthy = np.where(hours < panel.target[:, None], hours, np.nan)
    return learn(healthy if day_hours else healthy[:, :0], phase, max(day_hours, 1))


def _trend(panel: _Panel, season: Season) -> tuple[Trend, Floats]:
    """Trends without what load and season explain, and the present level of the means, shape (n,)."""
    values, own, load = panel.values, panel.own, panel.blocks.load
    adjusted = values - _load_effects(values, load, panel.begins)
    # What shares its GPU from some moment on changes a kernel's speed at once, in hours that the season knows, too.
    jumps = np.zeros(len(own), np.int64)
    jumps[own] = last_jump(values[own], panel.noise[own])
    trend = estimate(
        adjusted,
        np.maximum.reduce([panel.learnt.since, panel.begins, _load_step(load), jumps]),
        resolution=panel.resolution,
        settling=_settling(panel),
        begins=panel.begins,
        usual=season.usual(adjusted, panel.noise),
    )
    first_day = history_length(np.isfinite(values)) < DAY_BLOCKS
    # A duration that wavers from hour to hour is no drift; a first day has too few hours to say so.
    wavers = np.where(own & ~first_day, np.nan_to_num(change_noise(panel.blocks.hours)), 0.0)
    trend = _with_misfit(trend, wavers, 1.0)
    # Noise whose memory is not known yet looks like a slope, and a limit from the baseline is near.
    trend = trend.flat(own & first_day & (trend.slope <= CERTAIN_ERRORS * trend.error))
    # While no earlier day shows the hour, jobs that come and go are not told from noise.
    noise = np.where(season.known | own, trend.noise, np.minimum(trend.noise, _UNKNOWN_NOISE * panel.noise))
    # Batches that come and go are a noise that is never higher than they are.
    day = values[:, -DAY_BLOCKS:]
    highest, lowest = np.fmax.reduce(day, axis=1), np.fmin.reduce(day, axis=1)
    most = np.maximum((highest - trend.level) / _HIGHEST_NOISE, _RANGE_NOISE * (highest - lowest))
    noise = np.where(own, noise, np.minimum(noise, np.maximum(most, panel.noise)))
    quick = np.minimum(trend.noise, panel.noise)
    newest = row_last(values[:, -HOUR_BLOCKS:])
    # Days that agree explain a fall into their range. Memory refills; what only cools between jobs may still drift.
    explained = season.is_narrow() & (newest >= season.lower_now() - _BEYOND_NOISE * panel.noise)
    returns = ~own & ~explained & refilling(values, newest, quick, panel.target)
    day_and_night = _FIRST_DAY_STEPS * panel.resolution / HOUR_BLOCKS
    trend = replace(
        trend.flat(returns & panel.traits.reserves),
        reversal=np.where(first_day, np.maximum(trend.reversal, day_and_night), trend.reversal),
        noise=np.where(returns, quick, noise),
    )
    return trend, np.where(returns, newest, trend.level) + panel.offset


def _states(panel: _Panel, trend: Trend) -> tuple[Bools, Bools, Bools, Bools]:
    """`opening`, `beyond`, `prompt` and `erratic` of `Evaluation`."""
    means, own = panel.blocks.mean, panel.own
    # A level that a program took in its first half hour is its normal, wherever the limit is.
    opening = panel.learnt.opening | (panel.traits.reserves & _reserved(panel.blocks, panel.target))
    beyond = (means[:, -1] >= panel.target - 1e-9) & ~opening
    prompt, erratic = np.ones(len(own), np.bool_), np.zeros(len(own), np.bool_)
    beyond[own], prompt[own], erratic[own] = _judged_by_itself(
        means[own],
        beyond[own],
        panel.target[own],
        panel.learnt.rows(own),
        panel.traits.baseline_ratio[own],
        trend.rows(own),
    )
    return opening, beyond, prompt, erratic


def _with_drifts(
    passage: Passage, passage_of: Callable[..., Passage], panel: _Panel, judged: Bools, day_hours: int
) -> tuple[Passage, Bools]:
    """Passages with those of the drifts, and `next_load` of `Evaluation`.

    Args:
        passage: Of the trends of the newest blocks.
        passage_of: `first_passage` with its horizons and calibration.
        panel: The series.
        judged: Shape (n,), series whose first passage is asked for.
        day_hours: Hours of a day; 0 where they do not divide it.
    """
    next_load = np.zeros(len(judged), np.bool_)
    newest = row_medians(panel.values[:, -2:]) + panel.offset
    for rows, drift in _drifts(panel, judged, day_hours):
        headroom = np.nan_to_num(panel.target[rows] - drift.level, nan=np.inf)
        # The trend of the newest blocks has judged whether the limit is passed, or near by noise alone.
        neither = np.zeros(len(headroom), np.bool_)
        # At the usual high load the limit is passed already: whatever the slope, the next such load reaches it.
        by_load = headroom < -_BEYOND_NOISE * drift.noise
        low = (drift.age >= DAY_BLOCKS) & (newest[rows] < drift.level - _BEYOND_NOISE * drift.noise)
        reach = np.maximum(REACH_KNOWN * drift.age, LEAST_REACH)
        # Nobody knows when the next such load comes, nor when a series that is low now returns to its line over days.
        other = passage_of(drift, headroom, neither, by_load, reach=reach, any_time=by_load | low)
        passage = _sooner(passage, rows, other)
        next_load[rows] |= by_load
    return passage, next_load


def _drifts(panel: _Panel, judged: Bools, day_hours: int) -> Iterator[tuple[Bools, Trend]]:
    """Trends of some series that the newest blocks hide, as listed above.

    Args:
        panel: The series.
        judged: Shape (n,), series whose first passage is asked for.
        day_hours: Hours of a day; 0 where they do not divide it.

    Yields:
        Series, shape (n,), and their trends.
    """
    blocks, traits = panel.blocks, panel.traits
    # A limit that follows from the series' own last days rises with a drift from day to day.
    judged = judged & ~panel.own
    if day_hours:
        peaks = peak_line(blocks.hours, blocks.load_hours, blocks.mean, blocks.phase, panel.noise, day_hours)
        # Days of another regime do not compare.
        same = panel.learnt.since <= panel.begins
        rows = judged & same & np.isfinite(peaks.level) & (peaks.slope > _RISING_ERRORS * peaks.error)
        if rows.any():
            yield rows, peaks.rows(rows)
    rows = judged & np.isfinite(blocks.load).any(axis=1)
    if rows.any():
        begins = panel.begins[rows]
        effect = LoadEffect.of(panel.values[rows], blocks.load[rows], BLOCKS)
        values, misfit = at_usual_load(panel.values[rows], effect)
        drift = estimate(
            values, begins, resolution=np.zeros(len(begins)), settling=traits.settling_blocks[rows], begins=begins
        )
        # Jobs differ: the mean of each is off by the misfit, and a line through few of them is uncertain.
        yield rows, _with_misfit(drift, misfit, np.sqrt(12.0 / (1.0 + drift.age / _JOB_BLOCKS)))
        hours = blocks.hours[rows, -_LOAD_HOURS:]
        hourly = LoadEffect.of(hours, blocks.load_hours[rows, -_LOAD_HOURS:], HOURS)
        for hotter in (
            departures(panel.values[rows], effect, blocks.load[rows], hours, hourly),
            at_next_load(panel.values[rows], effect),
            after_high_loads(panel.values[rows], effect, BLOCKS),
            after_high_loads(hours, hourly, HOURS),
        ):
            yield rows, replace(hotter, level=hotter.level + panel.offset[rows])
    rows = judged & np.isfinite(blocks.node).any(axis=1)
    if rows.any():
        begins, resolution = panel.begins[rows], panel.resolution[rows]
        values, misfit = beside_node(panel.values[rows], blocks.node[rows], resolution, traits.reserves[rows])
        settling = np.full(len(begins), _NODE_SETTLING_BLOCKS)
        drift = estimate(values, begins, resolution=resolution, settling=settling, begins=begins)
        # What a series and its node do not share wavers from hour to hour: a rise of that size is no drift.
        yield rows, _with_misfit(drift, misfit, 1.0)
        yield rows, _slow_drift(values, begins, resolution, settling)


def _leaks(panel: _Panel, judged: Bools) -> tuple[Bools, Trend, Floats, Floats]:
    """Memory that leaks below an allocator's steps.

    Returns:
        Series, shape (n,); of the k that leak their trends, the blocks for which these are extrapolated, shape (k,),
        and by how much steps lift them besides, shape (k, grid).
    """
    rows = judged & panel.traits.reserves & ~panel.own
    leak = steady_leak(panel.values[rows], panel.target[rows])
    rows[rows] = leak.rate > 0
    leak = leak.rows(leak.rate > 0)
    level = leak.level + panel.offset[rows]
    drift = Trend.line(level=level, slope=leak.rate, error=leak.error, noise=leak.error, age=leak.age)
    # What rises since its first block may be a cache that fills for the first time.
    always = leak.age >= history_length(np.isfinite(panel.values[rows])) - _FIRST_BLOCKS
    reach: Floats = np.where(always, REACH_UNKNOWN, REACH_KNOWN) * leak.age
    return rows, drift, reach, leak.rise


def _judged_by_itself(
    values: Floats, beyond: Bools, target: Floats, learnt: Baseline, ratio: Floats, trend: Trend
) -> tuple[Bools, Bools, Bools]:
    """Whether series are beyond a limit that follows from their own baseline, whether at once, and which are erratic.

    Args:
        values: Shape (n, b), means of blocks, relative to the limit and so directed that higher is worse.
        beyond: Shape (n,), whether the newest block is at or beyond the limit.
        target: Shape (n,), the limit on that scale.
        learnt: The baselines.
        ratio: Shape (n,), limit as a multiple of the baseline.
        trend: Their noise.
    """
    places = np.arange(values.shape[1])
    usable = (places >= learnt.since[:, None]) & ~learnt.openings & np.isfinite(values)
    distance = np.abs(1.0 - 1.0 / ratio)
    erratic = jumps_often(np.where(usable, values, np.nan), distance)
    excess = values - (target - distance)[:, None]
    slow = np.zeros(len(values))
    some = (excess[:, -HOUR_BLOCKS:] >= HELD_SHARE * distance[:, None]).any(axis=1)
    slow[some] = usually_slow(excess[some], usable[some], distance[some])
    # Slow by half of the distance more than it often is.
    over = excess >= np.maximum(distance, slow + distance / 2)[:, None] - 1e-9
    record = excursions(over, over | (excess >= HELD_SHARE * distance[:, None]), usable)
    noise, correlation = _noise_below(np.where(learnt.openings, np.nan, values), over | record.away, trend)
    lasts = record.lasts & ~explained_by_noise(excess, usable, record.present, noise, correlation)
    prompt = record.prompt & (slow == 0) & (NOISE_ERRORS * noise <= distance)
    return beyond & over[:, -1] & lasts & ~erratic, prompt & ~erratic, erratic


def _noise_below(values: Floats, slow: Bools, trend: Trend) -> tuple[Floats, Floats]:
    """Noise of a block and its correlation, shape (n,), without blocks of slow times: a slow kernel is no noise."""
    noise, correlation = trend.noise.copy(), trend.correlation.copy()
    some = (slow & np.isfinite(values)).any(axis=1)
    if some.any():
        noise[some], correlation[some], _ = block_noise(np.where(slow, np.nan, values)[some], 0.0)
    return noise, correlation


def _slow_drift(values: Floats, begins: Ints, resolution: Floats, settling: Ints) -> Trend:
    """Lines over two days, whose errors are those of hours around them."""
    drift = estimate(values, begins, resolution=resolution, settling=settling, begins=begins, strides=SLOW_STRIDES)
    hourly = hourly_medians(values)
    ago = HOUR_BLOCKS * (np.arange(hourly.shape[1], 0.0, -1.0) - 0.5)
    rest = np.where(ago + HOUR_BLOCKS / 2 <= drift.age[:, None], hourly + drift.slope[:, None] * ago, np.nan)
    misfit = MAD_TO_SIGMA * row_medians(np.abs(rest - row_medians(rest)[:, None]))
    known = HOUR_BLOCKS * np.isfinite(rest).sum(axis=1)
    # Within a day or two a drift is not taken back as one of an hour may be.
    still = replace(drift, reversal=np.zeros(len(begins)))
    return _with_misfit(still, np.nan_to_num(misfit), np.sqrt(12.0 / (1.0 + known / _JOB_BLOCKS)))


def _with_misfit(trend: Trend, misfit: Floats, share: Floats | float) -> Trend:
    """Widen errors by a share of the misfit over the age of the trend; a block's noise is at least the misfit."""
    error = share * misfit / np.maximum(trend.age, 1)
    return replace(trend, error=np.hypot(trend.error, error), noise=np.maximum(trend.noise, misfit))


def _sooner(passage: Passage, rows: Bools, other: Passage) -> Passage:
    """The sooner of two passages at each horizon and quantile; `other` has a row for each of `rows`."""
    probability, seconds, never = passage.probability.copy(), passage.seconds.copy(), passage.never.copy()
    probability[rows] = np.fmax(probability[rows], other.probability)
    seconds[rows] = np.minimum(seconds[rows], other.seconds)
    never[rows] = np.fmin(never[rows], other.never)
    return Passage(probability, seconds, never)


def _reserved(blocks: SeriesBlocks, target: Floats) -> Bools:
    """Whether each series reached its limit within half an hour of its last beginning, shape (n,).

    A program begins where the series has its first value, or rises from below half of the limit. Of a program that
    began before the blocks, the first two whole hours say so.
    """
    level, values = (1.0 - _RESERVED_SHARE) * target, blocks.mean
    since = _since_beginning(values, target)
    reached = (values >= level[:, None]) & (since >= 0) & (since < _RESERVING_BLOCKS)
    hours = blocks.hours
    earlier = hours[:, : max(hours.shape[1] - values.shape[1] // HOUR_BLOCKS - 1, 0)]
    low = (values < _EMPTY_SHARE * target[:, None]).any(axis=1)
    before = ~low & np.isfinite(earlier).any(axis=1)
    first_hours = (hours >= level[:, None]) & (_since_beginning(hours, target) // 2 == 0)
    reserved: Bools = np.where(before, first_hours.any(axis=1), reached.any(axis=1))
    return reserved


def _since_beginning(values: Floats, target: Floats) -> Ints:
    """Columns since the last beginning of each series' program, shape (n, k); negative before it."""
    if not values.size:
        return np.zeros(values.shape, np.int64)
    known = np.isfinite(values)
    low = known & (values < _EMPTY_SHARE * target[:, None])
    places = np.arange(values.shape[1])
    first = np.argmax(known, axis=1)
    begin = np.maximum(np.where(low, places, -1).max(axis=1, initial=-1) + 1, first)
    since: Ints = places - begin[:, None]
    return since


def _rise(season: Season, level: Floats, sure: Bools) -> Floats:
    """By how much the usual course of the day lifts a series above its level, shape (n, grid)."""
    # In the first week today may be another kind of day, whose peak is no higher for having begun earlier; hours in
    # which days agree, as nights, show no kind of day.
    above = np.where(season.week | season.is_narrow(), np.maximum(level - season.upper_now(), 0.0), 0.0)
    ahead = season.ahead(GRID_BLOCKS, sure) + np.nan_to_num(above)[:, None]
    rise: Floats = np.maximum(ahead - level[:, None], 0.0)
    return np.nan_to_num(rise, posinf=0.0)


def _load_effects(values: Floats, load: Floats, begins: Ints) -> Floats:
    """The effects of series with different first blocks: the number of blocks of a day decides how a sum is rounded."""
    first = np.where(begins > values.shape[1] - DAY_BLOCKS, begins, 0)
    effects = np.zeros(values.shape)
    for place in np.unique(first).tolist() if np.isfinite(load).any() else ():
        mine = first == place
        effects[mine, place:] = _load_effect(values[mine, place:], load[mine, place:])
    return effects


def _load_effect(values: Floats, load: Floats) -> Floats:
    """The part of each block that the load explains, relative to the last hour's load; 0 where no load is known."""
    known = np.isfinite(load).any(axis=1)
    if not known.all():
        effects = np.zeros(values.shape)
        if known.any():
            effects[known] = _load_effect(values[known], load[known])
        return effects
    day, recent = values[:, -DAY_BLOCKS:], load[:, -DAY_BLOCKS:]
    moved, by_load = day[:, 2:] - day[:, :-2], recent[:, 2:] - recent[:, :-2]
    gain = shrunk_gain(moved, by_load, usual=0.0, weight=_LOAD_RESOLUTION**2 * by_load.shape[1])
    usual = row_medians(load[:, -12:])
    effect: Floats = np.nan_to_num(gain[:, None] * (load - usual[:, None]))
    return effect


def _settling(panel: _Panel) -> Ints:
    """Blocks after a bend during which a slope says nothing; 0 where the load is known and had no step."""
    load, settling = panel.blocks.load, panel.traits.settling_blocks
    since_step = load.shape[1] - _load_step(load)
    recent = np.arange(load.shape[1]) >= load.shape[1] - settling[:, None]
    is_known = (np.isfinite(load) | ~recent).all(axis=1)
    return np.where(is_known & (since_step >= settling), 0, settling)


def _load_step(load: Floats) -> Ints:
    """Place after the last large change of the load within three blocks; 0 where there is none."""
    if not np.isfinite(load).any():
        return np.zeros(len(load), dtype=np.int64)
    change = np.zeros(load.shape)
    change[:, 3:] = np.nan_to_num(np.abs(load[:, 3:] - load[:, :-3]))
    highest = np.nan_to_num(load).max(axis=1, initial=0.0)
    return baseline.last_true(change > np.maximum(2 * _LOAD_STEP_RATIO * highest, 1e-9)[:, None])
