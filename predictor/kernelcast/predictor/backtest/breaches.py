"""Breach probability, time to the threshold and alert of recorded series, by the rule that the live predictor uses.

`Backtest` and `compare` call `breach_columns` for each batch. At the end of each block of five minutes (`--for`) a
series is evaluated from its last two days; a limit that is passed counts at once, between the ends of blocks, too.
The detector counts time in seconds of which its block has 300; `_Clock.scale` converts where a block is longer.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.backtest.companions import Companions
from kernelcast.predictor.backtest.durations import Duration
from kernelcast.predictor.backtest.grid import SeriesBatch
from kernelcast.predictor.local_time import LocalTime
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.first_passage import HORIZONS_SECONDS
from kernelcast.predictor.passage.node import node_medians
from kernelcast.predictor.passage.run import (
    MIN_BLOCKS,
    WINDOW_BLOCKS,
    DetectorOptions,
    limit_passed,
    replaced_within,
    run,
    trailing_mean,
)
from kernelcast.predictor.passage.series import BLOCK_SECONDS, SeriesBlocks, Traits, condense
from kernelcast.predictor.settings import JudgeSettings
from kernelcast.wire.catalogue.meanings import OTHER, Meaning

DEFAULT_HORIZON: Final = Duration(4 * 3600.0, counted=False)
LONGEST_SECONDS: Final = 86_400.0
"""The longest horizon, a day: the probabilities are calibrated up to there."""
NAMES: Final = ("breach_probability", "seconds_to_threshold", "alert")


@dataclass(frozen=True, slots=True)
class BreachOptions:
    """Options of the command that define a breach.

    Attributes:
        threshold: The limit; None for that of the metric's meaning or of a companion.
        below: Whether values at or below the limit are a breach.
        lasting: Length of the mean that has to reach it.
        horizon: Of the column `breach_probability`, which reaches a day at most; longer where blocks are longer.
        meaning: Judgement of the metric.
        companions: Other metrics of the same GPUs.
        alarm_horizons_seconds: Those that the alert rule considers; None for the predictor's default.
        local_time: Clock and holidays of the site.
    """

    threshold: float | None = None
    below: bool = False
    lasting: Duration = field(default_factory=lambda: Duration(BLOCK_SECONDS, counted=False))
    horizon: Duration = DEFAULT_HORIZON
    meaning: Meaning = OTHER
    companions: Companions = field(default_factory=Companions)
    alarm_horizons_seconds: tuple[float, ...] | None = None
    local_time: LocalTime = field(default_factory=LocalTime)

    def block_intervals(self, interval_seconds: float) -> int:
        """Intervals in a block."""
        return self.lasting.intervals(interval_seconds)

    def reach_seconds(self, interval_seconds: float) -> float:
        """Horizon of the column `breach_probability`: as asked, but at most a day of the detector."""
        scale = self.block_intervals(interval_seconds) * interval_seconds / BLOCK_SECONDS
        return min(self.horizon.seconds(interval_seconds), LONGEST_SECONDS * scale)

    def limits(self, batch: SeriesBatch) -> Floats:
        """Limit of each series, shape (n,): the threshold, else the first value of its companion, else NaN."""
        if self.threshold is not None:
            return np.full(batch.panel.rows, self.threshold)
        companions = self.companions.values(batch, self.meaning.limit)
        if companions is None:
            return np.full(batch.panel.rows, np.nan)
        first = np.argmax(np.isfinite(companions), axis=1)
        limits: Floats = companions[np.arange(len(companions)), first]
        return limits

    def has_limit(self, batch: SeriesBatch) -> bool:
        """Whether a series of a batch can breach at all."""
        return bool(self.meaning.own_ratio) or bool(np.isfinite(self.limits(batch)).any())


@dataclass(frozen=True, slots=True)
class _Clock:
    """Blocks and horizons of a batch.

    Attributes:
        width: Intervals in a block.
        scale: Length of a block, in blocks of the detector.
        alarm_horizons: Horizons of the alert rule, in the detector's seconds.
        horizons: The same, and the one of the column `breach_probability`.
    """

    width: int
    scale: float
    alarm_horizons: tuple[float, ...]
    horizons: tuple[float, ...]

    @classmethod
    def of(cls, batch: SeriesBatch, options: BreachOptions) -> "_Clock":
        width = options.block_intervals(batch.interval_seconds)
        scale = width * batch.interval_seconds / BLOCK_SECONDS
        asked = options.reach_seconds(batch.interval_seconds)
        given = options.alarm_horizons_seconds
        # A live predictor with a longer interval has no default horizons: those of the detector then.
        unit = 1.0 if given is None and batch.interval_seconds > HORIZONS_SECONDS[0] else scale
        usual = tuple(sorted({min(each / unit, LONGEST_SECONDS) for each in given or HORIZONS_SECONDS}))
        return cls(width, scale, usual, tuple(sorted({*usual, asked / scale})))

    def column(self, batch: SeriesBatch, options: BreachOptions) -> int:
        """Return the place of the column's horizon among all."""
        asked = options.reach_seconds(batch.interval_seconds) / self.scale
        return int(np.argmin(np.abs(np.array(self.horizons) - asked)))

    def within(self, history_blocks: Ints) -> Bools:
        """Whether each history is long enough for each horizon, as in `Degradations.answered`, shape (n, h)."""
        reach_seconds = history_blocks * BLOCK_SECONDS * JudgeSettings().max_extrapolation
        near: Bools = np.array(self.horizons) <= reach_seconds[:, None]
        return near


def breach_columns(batch: SeriesBatch, options: BreachOptions) -> dict[str, Floats]:
    """Columns `breach_probability`, `seconds_to_threshold` and `alert`, each of shape (n, t); NaN while abstaining."""
    shape = batch.panel.values.shape
    columns = {name: np.full(shape, np.nan) for name in NAMES} | {"alert": np.zeros(shape)}
    if not options.has_limit(batch):
        return columns
    limits = options.limits(batch)
    clock = _Clock.of(batch, options)
    mean, median = condense(batch.panel.values, clock.width)
    load = options.companions.values(batch, options.meaning.load)
    usage = np.full(mean.shape, np.nan) if load is None else condense(load, clock.width)[1]
    place = clock.column(batch, options)
    traits = _traits(limits, options)
    values = trailing_mean(batch.panel.values, clock.width)
    process, version = options.companions.runs(batch)
    replaced = replaced_within(process, clock.width)
    _write_passed(columns, slice(0, shape[1]), limit_passed(values, replaced, limits, traits.reserves, traits))
    ends = range(min(MIN_BLOCKS, mean.shape[1] + 1), mean.shape[1] + 1)
    rule = DetectorOptions(clock.horizons, clock.alarm_horizons, shipped(), clock.scale, local_time=options.local_time)
    ends_of_blocks = np.arange(1, mean.shape[1] + 1) * clock.width - 1
    first = round(batch.series[0].start_seconds / (clock.scale * BLOCK_SECONDS))
    runs = (process[:, ends_of_blocks], version[:, ends_of_blocks])
    node = node_medians(mean, batch.nodes)
    blocks = SeriesBlocks.of(mean, median, usage, *runs, averaged=traits.resolution > 0, first=first, node=node)
    alarms = AlarmState.quiet(batch.panel.rows)
    known = np.isfinite(mean)
    for moment in run(blocks, traits, rule, ends=ends, alarms=alarms):
        evaluation, now = moment.found, moment.intervals(clock.width)
        few = known[:, max(moment.end - WINDOW_BLOCKS, 0) : moment.end].sum(axis=1) < MIN_BLOCKS
        carried = moment.answered & clock.within(moment.history_blocks) & ~few[:, None]
        said = np.where(carried[:, place], evaluation.passage.probability[:, place], np.nan)
        columns["breach_probability"][:, now] = np.where(evaluation.beyond, 1.0, said)[:, None]
        longest = np.where(carried, clock.horizons, 0.0).max(axis=1)
        median_seconds = evaluation.passage.seconds[:, 1]
        seconds = np.where(median_seconds <= longest, median_seconds * clock.scale, np.nan)
        columns["seconds_to_threshold"][:, now] = np.where(evaluation.beyond, 0.0, seconds)[:, None]
        columns["alert"][:, now] = (moment.alarms.firing & (evaluation.beyond | ~few))[:, None]
        passed = limit_passed(values[:, now], replaced[:, now], evaluation.limit, evaluation.silent, traits)
        _write_passed(columns, now, passed)
    for name, value in (("breach_probability", np.nan), ("seconds_to_threshold", np.nan), ("alert", 0.0)):
        columns[name][batch.excused] = value
    return columns


def _write_passed(columns: dict[str, Floats], now: slice, passed: Bools) -> None:
    """Write a limit that is passed at once, not at the next evaluation."""
    for name, value in (("breach_probability", 1.0), ("seconds_to_threshold", 0.0), ("alert", 1.0)):
        columns[name][:, now][passed] = value


def _traits(limits: Floats, options: BreachOptions) -> Traits:
    meaning, rows = options.meaning, len(limits)
    return Traits(
        limit=limits,
        baseline_ratio=np.full(rows, meaning.own_ratio or np.nan),
        below=np.full(rows, options.below),
        resolution=np.full(rows, meaning.resolution),
        settling_blocks=np.full(rows, round(meaning.settling_seconds / BLOCK_SECONDS), np.int64),
        reserves=np.full(rows, meaning.reserved),
    )
