"""Cause of each alert of recorded series: from companions where there are any, else that of the metric itself.

`Backtest` calls `alert_causes` for each batch, after the alerts are known.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.backtest.breaches import BreachOptions
from kernelcast.predictor.backtest.grid import SeriesBatch
from kernelcast.predictor.causes.features import features
from kernelcast.predictor.causes.find import FoundCause, find
from kernelcast.predictor.causes.observed import Around, Observed
from kernelcast.wire.catalogue.cause_rules import RULES
from kernelcast.wire.catalogue.meanings import MEANINGS, Cause, Meaning
from kernelcast.wire.findings import Severity

CAUSES: Final = tuple(Cause)
"""A column of causes has the place of each in this tuple, as columns are numbers."""
AGAIN_SECONDS: Final = 900.0
"""The cause of an alert is found when it begins, and again after this time."""
WINDOW_SECONDS: Final = 86_400.0
"""Time up to a moment from which its cause is found, a day."""
PAIRS_AT_ONCE: Final = 128
"""Moments of series that are computed together, which bounds the memory of their windows."""


def alert_causes(batch: SeriesBatch, alerts: Floats, options: BreachOptions) -> Floats:
    """Cause of each row, shape (n, t), as its place in `CAUSES`; NaN without an alert.

    A cause is found from the rows up to its own alone.

    Args:
        batch: The series.
        alerts: Shape (n, t), 1 while the alert fires.
        options: Judgement of the metric, and its companions.
    """
    firing: Bools = alerts == 1
    numbers = np.where(firing, float(CAUSES.index(options.meaning.cause)), np.nan)
    if not options.companions or not firing.any():
        return numbers
    sources = _Sources.of(batch, options)
    again = max(round(AGAIN_SECONDS / batch.interval_seconds), 1)
    since = _since_begin(firing)
    rows, ends = np.nonzero(firing & (since % again == 0))
    for chunk in _chunks(len(rows)):
        causes = sources.causes(rows[chunk], ends[chunk])
        for row, end, cause in zip(rows[chunk].tolist(), ends[chunk].tolist(), causes, strict=True):
            part = slice(end, end + again)
            lasts = firing[row, part] & (since[row, part] >= since[row, end])
            numbers[row, part][lasts] = CAUSES.index(cause)
    return numbers


def causes_of_breaches(seen: Observed, meaning: Meaning) -> list[FoundCause]:
    """Cause of the breach of each row; without evidence it is the metric's own cause, as a page.

    Args:
        seen: Rows whose metric breaches or will, with their companions.
        meaning: Judgement of that metric.
    """
    allowed = frozenset({meaning.cause}) | meaning.other_causes
    # Rules of another topic answer another question: a hot GPU does not slow a kernel while its clock is as usual.
    rules = [rule for rule in RULES if rule.topic in (None, meaning.topic)]
    own = FoundCause(meaning.cause, Severity.PAGE, ())
    return [row_causes.first_of(allowed) or own for row_causes in find(features(seen), rules)]


def cause_name(place: float) -> str:
    """Name of a cause from its place in `CAUSES`; empty for none."""
    return "" if np.isnan(place) else CAUSES[int(place)].value


def _since_begin(firing: Bools) -> Ints:
    """Intervals since each alert began."""
    places = np.arange(firing.shape[1])
    last_quiet = np.maximum.accumulate(np.where(firing, -1, places), axis=1)
    since: Ints = (places - last_quiet - 1).astype(np.int64)
    return since


def _chunks(count: int) -> Iterator[slice]:
    for begin in range(0, count, PAIRS_AT_ONCE):
        yield slice(begin, min(begin + PAIRS_AT_ONCE, count))


@dataclass(frozen=True, slots=True, eq=False)
class _Sources:
    """Input of the rules about causes for a batch: n series, t intervals.

    Attributes:
        interval_seconds: Length of an interval.
        meaning: Judgement of the metric.
        judged: Prometheus name of the metric.
        values: By Prometheus name, shape (n, t), the metric's own included.
        programs: Shape (n, t), programs on the GPU; None where they are not known.
        siblings: Shape (n, k, t), other kernels on the GPU; None where there are none.
        process: Shape (n, t), number of the process.
        version: Shape (n, t), number of the version.
        limits: Shape (n,).
    """

    interval_seconds: float
    meaning: Meaning
    judged: str
    values: Mapping[str, Floats]
    programs: Floats | None
    siblings: Floats | None
    process: Ints
    version: Ints
    limits: Floats

    @classmethod
    def of(cls, batch: SeriesBatch, options: BreachOptions) -> "_Sources":
        companions, judged = options.companions, metric_of(options.meaning)
        process, version = companions.runs(batch)
        return cls(
            batch.interval_seconds,
            options.meaning,
            judged,
            {**companions.metrics(batch), judged: batch.panel.values},
            companions.programs(batch),
            companions.siblings(batch, judged),
            process,
            np.maximum(version, 0),
            options.limits(batch),
        )

    def causes(self, rows: Ints, ends: Ints) -> list[Cause]:
        """Causes at some moments of some rows, both of shape (pairs,)."""
        limits = self.limits[rows]
        around = Around(
            programs=None if self.programs is None else self._windows(self.programs, rows, ends),
            siblings=None if self.siblings is None else self._windows(self.siblings, rows, ends),
            process=self._numbers(self.process, rows, ends),
            version=self._numbers(self.version, rows, ends),
            limits={self.judged: limits} if np.isfinite(limits).any() else {},
            beyond=np.ones(len(rows)),
        )
        values = {name: self._windows(array, rows, ends) for name, array in self.values.items()}
        # The output has no evidence, so that neither labels nor times are needed.
        seen = Observed(values, self.interval_seconds, [()] * len(rows), [0] * len(rows), around)
        return [cause.cause for cause in causes_of_breaches(seen, self.meaning)]

    def _windows(self, values: Floats, rows: Ints, ends: Ints) -> Floats:
        """The day up to each moment, shape (pairs, …, w); NaN before the first interval."""
        places = self._places(ends)
        values_before = np.moveaxis(values, -1, 1)[rows[:, None], np.maximum(places, 0)]
        values_before[places < 0] = np.nan
        windows: Floats = np.moveaxis(values_before, 1, -1)
        return windows

    def _numbers(self, numbers: Ints, rows: Ints, ends: Ints) -> Ints:
        """The day up to each moment, shape (pairs, w); the first number before the first interval."""
        numbers_before: Ints = numbers[rows[:, None], np.maximum(self._places(ends), 0)]
        return numbers_before

    def _places(self, ends: Ints) -> Ints:
        """Intervals of the day up to each moment, shape (pairs, w); negative before the first interval."""
        width = max(round(WINDOW_SECONDS / self.interval_seconds), 1)
        places: Ints = ends[:, None] - np.arange(width - 1, -1, -1)
        return places


def metric_of(meaning: Meaning) -> str:
    """Prometheus name of the metric that a row of the table judges; empty for a metric that has no row.

    Settings may have changed the row's ratio to its own baseline.
    """
    plain = replace(meaning, own_ratio=0.0)
    same = (name for name, row in MEANINGS.items() if row is meaning)
    changed = (name for name, row in MEANINGS.items() if row.own_ratio and replace(row, own_ratio=0.0) == plain)
    return next(same, "") or next(changed, "")
