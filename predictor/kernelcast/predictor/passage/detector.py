"""Probability of a breach, for many series at one moment, from their blocks of the last two days.

`run` calls `evaluate` at the ends of blocks. The steps: limit (given, or a multiple of the learnt baseline), the
part that the load explains, season, trend, first passage; then, where they come sooner, the passages of the daily
peaks, at usual load, and of days at usual load. Series are divided by their limit and directed so that a rise is
bad.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.local_time import LocalTime
from kernelcast.predictor.passage import baseline
from kernelcast.predictor.passage.baseline import Baseline
from kernelcast.predictor.passage.calibration import Calibrator
from kernelcast.predictor.passage.excursions import (
    HELD_SHARE,
    NOISE_ERRORS,
    excursions,
    explained_by_noise,
    jumps_often,
)
from kernelcast.predictor.passage.first_passage import GRID_BLOCKS, HORIZONS_SECONDS, Passage, first_passage
from kernelcast.predictor.passage.node import BesideNode, beside_node
from kernelcast.predictor.passage.noise import RESOLUTION_NOISE, block_noise
from kernelcast.predictor.passage.peaks import daily_peaks
from kernelcast.predictor.passage.refill import refilling
from kernelcast.predictor.passage.season import Season, learn
from kernelcast.predictor.passage.series import DAY_BLOCKS, HOUR_BLOCKS, SeriesBlocks, Traits
from kernelcast.predictor.passage.trend import CERTAIN_ERRORS, Trend, estimate
from kernelcast.predictor.passage.wear import Wear, at_usual_load, by_day
from kernelcast.predictor.robust import MAD_TO_SIGMA, row_medians

_LOAD_RESOLUTION: Final = 3.0
"""Size of changes of the load, in its unit (watts), that explain half as much as large ones: a ridge."""
_LOAD_STEP_RATIO: Final = 0.1
"""A change of the load by twice this share of its maximum, within three blocks, begins a new trend."""
_FIRST_DAY_STEPS: Final = 0.1
"""Steps of a gauge per hour by which it may rise on its first day because of day and night, 0.1 degrees an hour."""
REACH_KNOWN: Final = 1.0
"""Ages of a trend for which it is extrapolated; a fault of D hours is then predicted up to D / 2 before the limit."""
REACH_UNKNOWN: Final = 0.5
"""The same while no earlier day shows what is usual: a day's traffic rises for hours, too."""
REACH_WITHOUT: Final = 4.0
"""The same where blocks are so short that no day can be seen: there is no season to be mistaken for a drift."""
_UNKNOWN_NOISE: Final = 2.0
"""Largest noise of a block in that of differences, while no earlier day shows what is usual."""
_JOB_BLOCKS: Final = 36
"""Blocks of a job, for the number of jobs that a line rests on."""
_EMPTY_SHARE: Final = 0.5
"""Share of a limit below which memory belongs to no program that reserved it."""
_RESERVED_SHARE: Final = 0.01
"""Distance from the limit, as a share of it, at which reserved memory wavers around it."""
_RESERVING_BLOCKS: Final = 6
"""First half hour of a program, in which it reserves."""
_NODE_SETTLING_BLOCKS: Final = 5
"""Blocks after a step beside the node during which a slope says nothing."""
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
        prompt: Shape (n,), whether a limit that is passed between the ends of blocks counts at once.
        erratic: Shape (n,), whether the series has no usual value: it often jumps over its own limit.
        trend: Trends of the series relative to their limits.
    """

    passage: Passage
    limit: Floats
    opening: Bools
    beyond: Bools
    prompt: Bools
    erratic: Bools
    trend: Trend

    @property
    def silent(self) -> Bools:
        """Series of which only the end of a block shows that the limit is passed, shape (n,)."""
        found: Bools = self.opening | ~self.prompt
        return found

    def rows(self, chosen: slice) -> "Evaluation":
        """Some of the series."""
        passage, trend = self.passage, self.trend
        return Evaluation(
            Passage(*(getattr(passage, name)[chosen] for name in Passage.__slots__)),
            self.limit[chosen],
            self.opening[chosen],
            self.beyond[chosen],
            self.prompt[chosen],
            self.erratic[chosen],
            trend.rows(chosen),
        )


def evaluate(  # noqa: PLR0913, PLR0915  what differs between live, recorded and tested series; one line a step
    blocks: SeriesBlocks,
    traits: Traits,
    *,
    horizons_seconds: tuple[float, ...] = HORIZONS_SECONDS,
    calibration: Calibrator | None = None,
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
    own = np.isnan(traits.limit)
    begins = np.zeros(len(own), np.int64) if begins is None else begins
    learnt = baseline.learn_some(blocks, own, below=traits.below)
    usual = learnt.value if held is None else np.where(np.isfinite(held), held, learnt.value)
    limit = np.where(own, traits.baseline_ratio * usual, traits.limit)
    scale = np.where(np.isfinite(limit) & (limit != 0), np.abs(limit), 1.0)
    sign = np.where(traits.below, -1.0, 1.0)
    direction = (sign / scale)[:, None]
    # The first minutes of a process are not its usual speed: they belong to no trend.
    # A gauge that rounds is averaged; a duration has spikes.
    robust = np.where(traits.resolution[:, None] > 0, blocks.mean, blocks.median)
    values = np.where(learnt.openings, np.nan, direction * robust)
    offset = row_medians(direction * (blocks.mean - robust)[:, -24:])
    adjusted = values - _load_effects(values, blocks.load, begins)
    since = np.maximum(np.maximum(learnt.since, begins), _load_step(blocks.load))
    target = sign * np.where(np.isfinite(limit), np.sign(limit), np.nan)
    hours = blocks.hours if local_time is None else local_time.usual_hours(blocks.hours, blocks.last_hour)
    season = _season(direction * hours, target, blocks.phase, day_hours)
    settling = traits.settling_blocks
    quiet = np.maximum(_step_noise(values), RESOLUTION_NOISE * traits.resolution / scale)
    usual = season.usual(adjusted, quiet)
    trend = estimate(
        adjusted, since, resolution=traits.resolution / scale, settling=settling, begins=begins, usual=usual
    )
    # A level that a program took in its first half hour is its normal, wherever the limit is.
    opening = learnt.opening | (traits.reserves & _reserved(direction * blocks.mean, target))
    beyond = (direction[:, 0] * blocks.mean[:, -1] >= target - 1e-9) & ~opening
    prompt, erratic = np.ones(len(own), np.bool_), np.zeros(len(own), np.bool_)
    beyond[own], prompt[own], erratic[own] = _judged_by_itself(
        direction[own] * blocks.mean[own],
        beyond[own],
        target[own],
        learnt.rows(own),
        traits.baseline_ratio[own],
        trend.rows(own),
    )
    # Noise whose memory is not known yet looks like a slope, and a limit from the baseline is near.
    trend = trend.flat(own & (_known_blocks(values) < DAY_BLOCKS) & (trend.slope <= CERTAIN_ERRORS * trend.error))
    # While no earlier day shows the hour, jobs that come and go are not told from noise.
    noise = np.where(season.known | own, trend.noise, np.minimum(trend.noise, _UNKNOWN_NOISE * quiet))
    quick = np.minimum(trend.noise, quiet)
    newest = _newest(values[:, -HOUR_BLOCKS:])
    # Where days agree the season explains the fall.
    returns = ~own & ~season.is_narrow() & refilling(values, newest, quick, target)
    trend = replace(
        trend.flat(returns),
        reversal=np.maximum(trend.reversal, _daily_slope(values, traits.resolution / scale)),
        noise=np.where(returns, quick, noise),
    )
    level = np.where(returns, newest, trend.level) + np.nan_to_num(offset)
    headroom = np.where(opening | erratic, np.nan, target - level)
    unknown = REACH_UNKNOWN if day_hours else REACH_WITHOUT
    reach = np.where(season.known_before(trend.age), REACH_KNOWN, unknown) * trend.age
    passage = first_passage(
        trend,
        headroom,
        beyond,
        ~own,
        reach=np.maximum(reach, LEAST_REACH),
        rise=_rise(season, level),
        horizons_seconds=horizons_seconds,
        calibration=calibration,
    )
    later = partial(first_passage, horizons_seconds=horizons_seconds, calibration=calibration)
    if day_hours:
        peaks = daily_peaks(direction * blocks.hours, day_hours)
        # Days of another regime do not compare.
        rising = peaks.rising & ~opening & ~erratic & ~beyond & (learnt.since <= begins)
        if rising.any():
            headroom = (target - peaks.level - np.nan_to_num(offset))[rising]
            slow = _daily(peaks.level, peaks.rise, trend, quiet).rows(rising)
            passage = _sooner(passage, rising, later(slow, headroom, *_neither(headroom)))
    loaded = np.isfinite(blocks.load).any(axis=1) & ~own & ~opening
    if loaded.any():
        wear = at_usual_load(values[loaded], blocks.load[loaded])
        worn, headroom = _by_wear(wear, target[loaded], settling[loaded], begins[loaded])
        reach = np.maximum(REACH_KNOWN * worn.age, LEAST_REACH)
        passage = _sooner(passage, loaded, later(worn, headroom, *_neither(headroom), reach=reach))
    compared = np.isfinite(blocks.node).any(axis=1) & ~own & ~opening & ~beyond
    if compared.any():
        beside = beside_node(
            values[compared],
            (direction * blocks.node)[compared],
            (traits.resolution / scale)[compared],
            traits.reserves[compared],
        )
        lone, headroom = _by_node(beside, target[compared], (traits.resolution / scale)[compared], begins[compared])
        reach = np.maximum(REACH_KNOWN * lone.age, LEAST_REACH)
        passage = _sooner(passage, compared, later(lone, headroom, *_neither(headroom), reach=reach))
    wears = np.isfinite(blocks.load_hours).any(axis=1) & ~own & ~opening & ~beyond
    if day_hours and wears.any():
        days = by_day((direction * blocks.hours)[wears], blocks.load_hours[wears], day_hours)
        headroom = np.nan_to_num(target[wears] - days.level, nan=np.inf)
        slow = _daily(days.level, days.slope, trend.rows(wears), days.noise)
        slow = replace(slow, error=days.error / DAY_BLOCKS)
        passage = _sooner(passage, wears, later(slow, headroom, *_neither(headroom)))
    return Evaluation(passage, limit, opening, beyond, prompt, erratic, trend)


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
    over = values >= target[:, None] - 1e-9
    excess = values - (target - distance)[:, None]
    record = excursions(over, over | (excess >= HELD_SHARE * distance[:, None]), usable)
    noise, correlation = _noise_below(np.where(learnt.openings, np.nan, values), over | record.away, trend)
    slow = record.lasts & ~explained_by_noise(excess, usable, record.present, noise, correlation)
    return beyond & slow & ~erratic, record.prompt & (NOISE_ERRORS * noise <= distance) & ~erratic, erratic


def _noise_below(values: Floats, slow: Bools, trend: Trend) -> tuple[Floats, Floats]:
    """Noise of a block and its correlation, shape (n,), without blocks of slow times: a slow kernel is no noise."""
    noise, correlation = trend.noise.copy(), trend.correlation.copy()
    some = (slow & np.isfinite(values)).any(axis=1)
    if some.any():
        noise[some], correlation[some], _ = block_noise(np.where(slow, np.nan, values)[some], 0.0)
    return noise, correlation


def _daily(level: Floats, rise: Floats, trend: Trend, noise: Floats) -> Trend:
    """Trend from day to day, from a level of the last day; the noise is also the error of a day's level."""
    slope, none = rise / DAY_BLOCKS, np.zeros(len(noise))
    return replace(
        trend,
        level=level,
        slope=slope,
        straight=slope,
        eased=slope,
        easing=none,
        error=noise / DAY_BLOCKS,
        time_constant=none + np.inf,
        noise=noise,
        correlation=none,
        reversal=none,
    )


def _by_wear(wear: Wear, target: Floats, settling: Ints, begins: Ints) -> tuple[Trend, Floats]:
    """Trend and headroom of series at their usual high load."""
    none = np.zeros(len(target))
    trend = estimate(wear.values, begins, resolution=none, settling=settling, begins=begins)
    # Jobs differ: the mean of each is off by the misfit, and a line through few of them is uncertain.
    jobs = 1.0 + trend.age / _JOB_BLOCKS
    error = wear.misfit * np.sqrt(12.0 / jobs) / np.maximum(trend.age, 1)
    trend = replace(trend, error=np.hypot(trend.error, error), noise=np.maximum(trend.noise, wear.misfit))
    return trend, np.where(wear.known & np.isfinite(trend.level), target - trend.level, np.inf)


def _by_node(beside: BesideNode, target: Floats, resolution: Floats, begins: Ints) -> tuple[Trend, Floats]:
    """Trend and headroom of series at the usual high level of their node."""
    settling = np.full(len(target), _NODE_SETTLING_BLOCKS)
    trend = estimate(beside.values, begins, resolution=resolution, settling=settling, begins=begins)
    # What a series and its node do not share wavers from hour to hour: a rise of that size is no drift.
    error = beside.misfit / np.maximum(trend.age, 1)
    trend = replace(trend, error=np.hypot(trend.error, error), noise=np.maximum(trend.noise, beside.misfit))
    return trend, np.where(np.isfinite(trend.level), target - trend.level, np.inf)


def _neither(headroom: Floats) -> tuple[Bools, Bools]:
    """Neither beyond the limit nor near it by noise alone: the trend of the newest blocks has judged both."""
    none = np.zeros(len(headroom), np.bool_)
    return none, none


def _sooner(passage: Passage, which: Bools, other: Passage) -> Passage:
    """The sooner of two passages of some series."""
    probability, seconds, never = passage.probability.copy(), passage.seconds.copy(), passage.never.copy()
    sooner = np.flatnonzero(which)[other.never < never[which]]
    mine = other.never < never[which]
    probability[sooner], seconds[sooner], never[sooner] = (
        other.probability[mine],
        other.seconds[mine],
        other.never[mine],
    )
    return Passage(probability, seconds, never)


def _reserved(values: Floats, target: Floats) -> Bools:
    """Whether each series reached its limit within half an hour of its last beginning, shape (n,).

    A program begins where the series has its first value, or rises from below half of the limit.
    """
    known = np.isfinite(values)
    low = known & (values < _EMPTY_SHARE * target[:, None])
    places = np.arange(values.shape[1])
    first = np.argmax(known, axis=1)
    begin = np.maximum(np.where(low, places, -1).max(axis=1, initial=-1) + 1, first)
    since = places - begin[:, None]
    reached = (values >= (1.0 - _RESERVED_SHARE) * target[:, None]) & (since >= 0) & (since < _RESERVING_BLOCKS)
    found: Bools = reached.any(axis=1)
    return found


def _season(hours: Floats, target: Floats, phase: Ints, day_hours: int) -> Season:
    """The season of series relative to their limits; hours beyond the limit were faults."""
    healthy = np.where(hours < target[:, None], hours, np.nan)
    return learn(healthy if day_hours else healthy[:, :0], phase, max(day_hours, 1))


def _rise(season: Season, level: Floats) -> Floats:
    """By how much the usual course of the day lifts a series above its level, shape (n, grid)."""
    above = np.maximum(level - season.upper_now(), 0.0)
    ahead = season.ahead(GRID_BLOCKS) + np.nan_to_num(above)[:, None]
    rise: Floats = np.maximum(ahead - level[:, None], 0.0)
    return np.nan_to_num(rise, posinf=0.0)


def _known_blocks(values: Floats) -> Ints:
    """Blocks since the first one with a value, shape (n,)."""
    known = np.isfinite(values)
    blocks: Ints = np.where(known.any(axis=1), values.shape[1] - np.argmax(known, axis=1), 0)
    return blocks


def _newest(values: Floats) -> Floats:
    """The last value that is no gap, shape (n,); NaN without one."""
    last = values.shape[1] - 1 - np.argmax(np.isfinite(values)[:, ::-1], axis=1)
    newest: Floats = values[np.arange(len(values)), last]
    return newest


def _daily_slope(values: Floats, resolution: Floats) -> Floats:
    """The slope that day and night may explain while less than a day is known; afterwards it has been seen."""
    return np.where(_known_blocks(values) < DAY_BLOCKS, _FIRST_DAY_STEPS * resolution / HOUR_BLOCKS, 0.0)


def _step_noise(values: Floats) -> Floats:
    """Noise of a block from the differences of neighbours, which a fall from time to time does not change."""
    change = np.diff(values[:, -DAY_BLOCKS:], axis=1)
    usual = row_medians(change)
    spread: Floats = MAD_TO_SIGMA / np.sqrt(2.0) * row_medians(np.abs(change - usual[:, None]))
    return spread


def _load_effects(values: Floats, load: Floats, begins: Ints) -> Floats:
    """The effects of series with different first blocks: the number of blocks of a day decides how a sum is rounded."""
    first = np.where(begins > values.shape[1] - DAY_BLOCKS, begins, 0)
    found = np.zeros(values.shape)
    for place in np.unique(first).tolist() if np.isfinite(load).any() else ():
        mine = first == place
        found[mine, place:] = _load_effect(values[mine, place:], load[mine, place:])
    return found


def _load_effect(values: Floats, load: Floats) -> Floats:
    """The part of each block that the load explains, relative to the last hour's load; 0 where no load is known."""
    known = np.isfinite(load).any(axis=1)
    if not known.all():
        found = np.zeros(values.shape)
        if known.any():
            found[known] = _load_effect(values[known], load[known])
        return found
    day, recent = values[:, -DAY_BLOCKS:], load[:, -DAY_BLOCKS:]
    moved, by_load = day[:, 2:] - day[:, :-2], recent[:, 2:] - recent[:, :-2]
    both = np.isfinite(moved) & np.isfinite(by_load)
    moved, by_load = np.where(both, moved, 0.0), np.where(both, by_load, 0.0)
    size = _LOAD_RESOLUTION**2 * by_load.shape[1]
    gain = np.maximum((moved * by_load).sum(axis=1) / ((by_load**2).sum(axis=1) + size), 0.0)
    usual = row_medians(load[:, -12:])
    effect: Floats = np.nan_to_num(gain[:, None] * (load - usual[:, None]))
    return effect


def _load_step(load: Floats) -> Ints:
    """Place after the last large change of the load within three blocks; 0 where there is none."""
    if not np.isfinite(load).any():
        return np.zeros(len(load), dtype=np.int64)
    before, after = load[:, :-3], load[:, 3:]
    highest = np.nan_to_num(load).max(axis=1, initial=0.0)
    large = np.nan_to_num(np.abs(after - before)) > np.maximum(2 * _LOAD_STEP_RATIO * highest, 1e-9)[:, None]
    length = load.shape[1]
    last: Ints = np.where(large.any(axis=1), length - 1 - np.argmax(large[:, ::-1], axis=1), 0).astype(np.int64)
    return last
