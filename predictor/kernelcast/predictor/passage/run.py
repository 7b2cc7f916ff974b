"""Runs the detector over time: an evaluation at the end of each block, the alert rule, and limits passed in between.

The live predictor, the backtest and the benchmarks share it. Time is that of the series: results do not depend on the
machine, nor on how many blocks are evaluated in one call.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.local_time import LocalTime
from kernelcast.predictor.passage.alert_rule import AlarmState, is_near
from kernelcast.predictor.passage.calibration import Calibration
from kernelcast.predictor.passage.detector import Evaluation, evaluate
from kernelcast.predictor.passage.first_passage import HORIZONS_SECONDS
from kernelcast.predictor.passage.series import (
    BLOCK_SECONDS,
    DAY_BLOCKS,
    HOUR_BLOCKS,
    KEPT_HOURS,
    SeriesBlocks,
    Traits,
    history_length,
)
from kernelcast.predictor.passage.trend import CERTAIN_ERRORS, POINTS

MIN_BLOCKS: Final = 18
"""Blocks that a series needs before its first evaluation."""
DAY_SECONDS: Final = 86_400.0
WITHIN_DAY_SECONDS: Final = 14_400.0
"""A more distant horizon needs a day of history, or a steep rise: else day and night look like a drift."""
STEEP_STEPS: Final = 1.5
"""Steps of a gauge per hour that day and night do not explain: 1.5 degrees an hour."""
WINDOW_BLOCKS: Final = 2 * DAY_BLOCKS
"""Blocks that an evaluation sees: two days."""
ROWS_AT_ONCE: Final = 512
"""Series times moments that are evaluated together."""
LARGEST: Final = float(np.finfo(np.float32).max)
"""Largest value of a series; larger and infinite ones count as missing."""
_TOLERANCE: Final = 1e-9
"""Relative difference from a limit that is rounding."""


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """Options of a run; times in the detector's seconds, of which a block has 300.

    Attributes:
        horizons_seconds: Ascending, at most a day.
        alarm_horizons_seconds: Those among them that the alert rule considers.
        asked: Shape (n, h), those that it considers for each series; None for all.
        calibration: Of the probabilities; None for none.
        scale: Seconds of the series' time in a second of the detector.
        local_time: Clock and holidays of the site.
    """

    horizons_seconds: tuple[float, ...] = HORIZONS_SECONDS
    alarm_horizons_seconds: tuple[float, ...] = HORIZONS_SECONDS
    calibration: Calibration | None = None
    scale: float = 1.0
    asked: Bools | None = None
    local_time: LocalTime = field(default_factory=LocalTime)

    @property
    def day_hours(self) -> int:
        """Hours of 12 blocks in a day; 0 where they do not divide it, or so many that no season can be known."""
        hours = DAY_SECONDS / (HOUR_BLOCKS * BLOCK_SECONDS * self.scale)
        divides = abs(hours - round(hours)) < _TOLERANCE * hours
        return round(hours) if divides and 1 <= hours <= KEPT_HOURS / 2 else 0

    def answered(self, history_blocks: Ints, found: Evaluation, traits: Traits) -> Bools:
        """Whether the history of each series suffices for each of the horizons, shape (n, h)."""
        trend, horizons = found.trend, np.array(self.horizons_seconds)
        # Slopes are relative to the limit, except for a limit of 0.
        unit = np.where(found.limit == 0, 1.0, np.abs(found.limit))
        per_hour = (trend.slope - trend.error) * unit * HOUR_BLOCKS
        steep = (traits.resolution > 0) & (per_hour > STEEP_STEPS * traits.resolution)
        day_blocks = DAY_SECONDS / (BLOCK_SECONDS * self.scale)
        within_day = horizons * self.scale <= WITHIN_DAY_SECONDS
        certain = (trend.slope > CERTAIN_ERRORS * trend.error) & (trend.age >= POINTS)
        near = horizons <= WITHIN_DAY_SECONDS
        suffices: Bools = (within_day | ((history_blocks >= day_blocks) | steep)[:, None]) & (
            near | ((history_blocks >= DAY_BLOCKS) | steep | certain)[:, None]
        )
        return suffices


@dataclass(frozen=True, slots=True, eq=False)
class BlockResult:
    """Result at the end of one block.

    Attributes:
        end: Number of blocks up to then.
        found: The evaluation, of n series.
        alarms: State of the alert rule after it.
        answered: Shape (n, h), whether the history of the series suffices for the horizon.
        history_blocks: Shape (n,), blocks since the first one with a value, of the last two days.
    """

    end: int
    found: Evaluation
    alarms: AlarmState
    answered: Bools
    history_blocks: Ints

    def intervals(self, width: int) -> slice:
        """The intervals for which this is the newest evaluation; `width` of them make a block."""
        return slice(self.end * width - 1, (self.end + 1) * width - 1)


def run(
    blocks: SeriesBlocks,
    traits: Traits,
    options: DetectorOptions,
    *,
    ends: Sequence[int],
    alarms: AlarmState,
    held: Floats | None = None,
) -> Iterator[BlockResult]:
    """Evaluate series at the ends of some blocks, in order.

    Evaluations do not depend on each other: if there are few series, several moments are computed at once.

    Args:
        blocks: The series; each moment sees two days of them at most.
        traits: Of their metrics.
        options: Horizons and calibration.
        ends: Numbers of blocks up to each moment, ascending by 1.
        alarms: State of the alert rule before the first moment.
        held: Shape (n,), baselines that hold instead of learnt ones; NaN for those that are to be learnt.
    """
    if not len(ends):
        return  # a recording without a whole block has no places at all
    rows = len(traits.limit)
    used = np.isin(np.array(options.horizons_seconds), options.alarm_horizons_seconds)
    known = np.isfinite(blocks.mean)
    for group in _groups(ends, rows):
        together, begins = blocks.at_ends(group)
        found = evaluate(
            together,
            Traits(*(np.tile(getattr(traits, name), len(group)) for name in Traits.__slots__)),
            horizons_seconds=options.horizons_seconds,
            calibration=options.calibration,
            held=None if held is None else np.tile(held, len(group)),
            begins=begins,
            day_hours=options.day_hours,
            local_time=options.local_time if options.scale == 1.0 else None,
        )
        for place, end in enumerate(group):
            own = found.rows(slice(place * rows, (place + 1) * rows))
            history = history_length(known[:, max(end - WINDOW_BLOCKS, 0) : end])
            answered = options.answered(history, own, traits)
            considered = answered if options.asked is None else answered & options.asked
            said = np.where(considered, own.passage.probability, np.nan)
            near = is_near(
                said[:, used], options.alarm_horizons_seconds, own.passage.median_seconds, history < DAY_BLOCKS
            )
            # Nobody knows when the next load comes: waiting shows nothing.
            alarms = alarms.step(said[:, used], own.beyond, near | own.next_load).without(own.erratic)
            yield BlockResult(end, own, alarms, answered, history)


def trailing_mean(values: Floats, width: int) -> Floats:
    """Mean of the last `width` intervals at each interval, without gaps; NaN before the first `width`, shape (n, t).

    As in the windows of the live predictor, values beyond float32 count as gaps.
    """
    if width > values.shape[1]:
        return np.full(values.shape, np.nan)
    known = np.abs(values) <= LARGEST
    total = _trailing_sum(np.where(known, values, 0.0), width)
    count = _trailing_sum(known.astype(np.float64), width)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    mean[:, : width - 1] = np.nan
    return mean


def _trailing_sum(values: Floats, width: int) -> Floats:
    """Sum of the last `width` values at each place, of those alone: differences of totals keep a huge value's error.

    A window of `width` lies in two consecutive parts of that length: the end of one, and the beginning of the next.
    """
    rows, length = values.shape
    padded = np.zeros((rows, -(-length // width) * width))
    padded[:, :length] = values
    parts = padded.reshape(rows, -1, width)
    total: Floats = np.cumsum(parts, axis=2).reshape(rows, -1)
    ends: Floats = np.cumsum(parts[:, :, ::-1], axis=2)[:, :, ::-1].copy()
    ends[:, :, 0] = 0.0  # a window that is a whole part has its sum already
    total[:, width:] += ends.reshape(rows, -1)[:, 1 : 1 + total.shape[1] - width]
    return total[:, :length]


def replaced_within(process: Ints, width: int) -> Bools:
    """Whether the process was replaced within the last `width` intervals, at each interval, shape (n, t)."""
    begins = np.zeros(process.shape, np.int64)
    begins[:, 1:] = process[:, 1:] != process[:, :-1]
    total = np.cumsum(begins, axis=1)
    total[:, width:] -= total[:, :-width].copy()
    replaced: Bools = total > 0
    return replaced


def limit_passed(mean: Floats, replaced: Bools, limit: Floats, silent: Bools, traits: Traits) -> Bools:
    """Whether the mean of the newest intervals is at or beyond the limit of the last evaluation.

    Cheap enough for every interval: a limit that is passed is announced without a new evaluation.

    Args:
        mean: Shape (n, k), mean over the length of a block up to each of k intervals.
        replaced: Shape (n, k), whether the process was replaced within it.
        limit: Shape (n,), limits of the last evaluation; NaN for none.
        silent: Shape (n,), series of which only the end of a block shows that the limit is passed.
        traits: Of the series' metrics.
    """
    # The limit of a new process is learnt after its first minutes.
    not_yet = silent[:, None] | (np.isnan(traits.limit)[:, None] & replaced)
    sign = np.where(traits.below, -1.0, 1.0)[:, None]
    bound = limit[:, None]
    passed: Bools = (sign * mean >= sign * bound - _TOLERANCE * np.abs(bound)) & ~not_yet
    return passed


def _groups(ends: Sequence[int], rows: int) -> Iterator[Sequence[int]]:
    """Moments that are evaluated together, as many as fit; until there is a day, those with the same whole hours.

    Hours are counted from the newest block, and a shorter series has fewer of them.
    """
    at = 0
    while at < len(ends):
        count = max(1, ROWS_AT_ONCE // max(rows, 1))
        if ends[at] < DAY_BLOCKS:
            count = min(count, HOUR_BLOCKS - ends[at] % HOUR_BLOCKS)
        yield ends[at : at + count]
        at += count
