"""Breach probability, time to the threshold and alert of recorded series, by the rule that the live predictor uses.

Every five minutes (`--for`) each series is evaluated from its last two days. Evaluations do not depend on each other:
if there are few series, several moments are evaluated at once. The alert rule then runs over them in order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.backtest.companions import Companions
from kernelcast.predictor.backtest.durations import Duration
from kernelcast.predictor.backtest.grid import Batch
from kernelcast.predictor.passage.alarms import AlarmState
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.detector import evaluate
from kernelcast.predictor.passage.first_passage import HORIZONS_SECONDS
from kernelcast.predictor.passage.series import BLOCK_SECONDS, DAY_BLOCKS, Blocks, Traits, condense
from kernelcast.wire.catalogue.meanings import OTHER, Meaning

DEFAULT_HORIZON: Final = Duration(4 * 3600.0, counted=False)
MIN_BLOCKS: Final = 24
WINDOW: Final = 2 * DAY_BLOCKS
ROWS_AT_ONCE: Final = 512
LONGEST_SECONDS: Final = 86_400.0
NAMES: Final = ("breach_probability", "seconds_to_threshold", "alert")


@dataclass(frozen=True, slots=True)
class BreachOptions:
    """Options of the command that define a breach.

    Attributes:
        threshold: The limit; None for that of the metric's meaning or of a companion.
        below: Whether values at or below the limit are a breach.
        lasting: Length of the mean that has to reach it.
        horizon: Of the column `breach_probability`.
        meaning: Judgement of the metric.
        companions: Other metrics of the same GPUs.
    """

    threshold: float | None = None
    below: bool = False
    lasting: Duration = field(default_factory=lambda: Duration(BLOCK_SECONDS, counted=False))
    horizon: Duration = DEFAULT_HORIZON
    meaning: Meaning = OTHER
    companions: Companions = field(default_factory=Companions)

    def limits(self, batch: Batch) -> Floats:
        """Limit of each series, shape (n,): the threshold, else the first value of its companion, else NaN."""
        if self.threshold is not None:
            return np.full(batch.panel.rows, self.threshold)
        found = self.companions.values(batch, self.meaning.limit)
        if found is None:
            return np.full(batch.panel.rows, np.nan)
        first = np.argmax(np.isfinite(found), axis=1)
        limits: Floats = found[np.arange(len(found)), first]
        return limits


@dataclass(frozen=True, slots=True)
class _Clock:
    """Blocks of a batch.

    Attributes:
        width: Intervals in a block.
        scale: Length of a block, in blocks of the detector.
        horizons: Default horizons, then that of the column, in the detector's seconds.
    """

    width: int
    scale: float
    horizons: tuple[float, ...]

    @classmethod
    def of(cls, batch: Batch, options: BreachOptions) -> "_Clock":
        width = max(1, round(options.lasting.seconds(batch.interval_seconds) / batch.interval_seconds))
        scale = width * batch.interval_seconds / BLOCK_SECONDS
        asked = min(options.horizon.seconds(batch.interval_seconds), LONGEST_SECONDS * scale)
        return cls(width, scale, tuple(sorted({*HORIZONS_SECONDS, asked / scale})))

    def column(self, batch: Batch, options: BreachOptions) -> int:
        """Return the place of the column's horizon among all."""
        asked = min(options.horizon.seconds(batch.interval_seconds) / self.scale, LONGEST_SECONDS)
        return int(np.argmin(np.abs(np.array(self.horizons) - asked)))


def breach_columns(batch: Batch, options: BreachOptions) -> dict[str, Floats]:
    """Columns `breach_probability`, `seconds_to_threshold` and `alert`, each of shape (n, t); NaN while abstaining."""
    shape = batch.panel.values.shape
    columns = {name: np.full(shape, np.nan) for name in NAMES} | {"alert": np.zeros(shape)}
    limits = options.limits(batch)
    if np.isnan(limits).all() and not options.meaning.own_ratio:
        return columns
    clock = _Clock.of(batch, options)
    mean, median = condense(batch.panel.values, clock.width)
    load = options.companions.values(batch, options.meaning.load)
    usage = np.full(mean.shape, np.nan) if load is None else condense(load, clock.width)[1]
    evaluated = _evaluations((mean, median, usage), clock, limits, options)
    state = AlarmState.quiet(batch.panel.rows)
    usual = np.isin(np.array(clock.horizons), HORIZONS_SECONDS)
    place = clock.column(batch, options)
    for end, probability, seconds, beyond in evaluated:
        state = state.step(probability[:, usual], beyond, HORIZONS_SECONDS)
        now = slice(end * clock.width - 1, (end + 1) * clock.width - 1)
        columns["breach_probability"][:, now] = np.where(beyond, 1.0, probability[:, place])[:, None]
        passage = np.where(beyond, 0.0, seconds * clock.scale)
        columns["seconds_to_threshold"][:, now] = np.where(np.isfinite(passage), passage, np.nan)[:, None]
        columns["alert"][:, now] = state.firing[:, None]
    _announce_passed(batch.panel.values, limits, clock.width, columns, below=options.below)
    return columns


def _announce_passed(values: Floats, limits: Floats, width: int, columns: dict[str, Floats], *, below: bool) -> None:
    """Announce a limit that is passed at once, not at the next evaluation."""
    known = np.isfinite(values)
    total = np.cumsum(np.where(known, values, 0.0), axis=1)
    count = np.cumsum(known, axis=1)
    total[:, width:] -= total[:, :-width].copy()
    count[:, width:] -= count[:, :-width].copy()
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    sign = -1.0 if below else 1.0
    passed = sign * mean >= sign * limits[:, None] - 1e-9 * np.abs(limits[:, None])
    passed[:, : width - 1] = False
    columns["breach_probability"][passed] = 1.0
    columns["seconds_to_threshold"][passed] = 0.0
    columns["alert"][passed] = 1.0


def _evaluations(
    condensed: tuple[Floats, Floats, Floats], clock: _Clock, limits: Floats, options: BreachOptions
) -> Iterator[tuple[int, Floats, Floats, Bools]]:
    """Yield in order: number of blocks so far, probabilities (n, h), median seconds (n,), whether beyond (n,)."""
    rows, blocks = condensed[0].shape
    ends = range(min(MIN_BLOCKS, blocks + 1), blocks + 1)
    for group in _groups(ends, rows):
        lengths = min(group[0], WINDOW)
        picked = [slice(end - lengths, end) for end in group]
        window = _blocks(*(np.concatenate([each[:, part] for part in picked]) for each in condensed))
        traits = _traits(np.tile(limits, len(group)), options)
        found = evaluate(window, traits, horizons_seconds=clock.horizons, calibration=shipped())
        for index, end in enumerate(group):
            own = slice(index * rows, (index + 1) * rows)
            yield end, found.passage.probability[own], found.passage.seconds[own, 1], found.beyond[own]


def _groups(ends: Sequence[int], rows: int) -> Iterator[Sequence[int]]:
    """Moments that are evaluated together: each alone until there are two days, then as many as fit."""
    at = 0
    while at < len(ends):
        count = 1 if ends[at] < WINDOW else max(1, ROWS_AT_ONCE // rows)
        yield ends[at : at + count]
        at += count


def _blocks(mean: Floats, median: Floats, load: Floats) -> Blocks:
    return Blocks(mean, median, load, np.zeros(mean.shape, np.int64), np.full(mean.shape, -1, np.int64))


def _traits(limits: Floats, options: BreachOptions) -> Traits:
    meaning, rows = options.meaning, len(limits)
    return Traits(
        limit=limits,
        baseline_ratio=np.full(rows, meaning.own_ratio or np.nan),
        below=np.full(rows, options.below),
        resolution=np.full(rows, meaning.resolution),
        settling_blocks=np.full(rows, round(meaning.settling_seconds / BLOCK_SECONDS), np.int64),
    )
