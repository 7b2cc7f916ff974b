"""Converts the scores to values of the catalogue's metrics with labels; `cycle_loop` hands them to the publisher."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.intervals import COVERAGES
from kernelcast.predictor.scoring.probabilities import BINS
from kernelcast.predictor.scoring.scores import Scoring
from kernelcast.wire.catalogue import forecast_scores as rows
from kernelcast.wire.catalogue.model import Metric

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


@dataclass(frozen=True, slots=True)
class Score:
    """One value of a metric.

    Attributes:
        metric: Row of the catalogue.
        labels: Pairs of name and value, sorted.
        value: The value; never NaN.
    """

    metric: Metric
    labels: tuple[tuple[str, str], ...]
    value: float


def scores(scoring: Scoring) -> list[Score]:
    """All scores that have a value."""
    return [*_cells(scoring), *_bins(scoring), *_alerts(scoring), *_abstentions(scoring)]


def _cells(scoring: Scoring) -> Iterator[Score]:
    intervals, breaches = scoring.intervals, scoring.breaches
    for kind, cells in (("interval", intervals.cells), ("breach", breaches.cells)):
        yield from _each(rows.SCORED_CLAIMS, np.where(cells["count"] > 0, cells["count"], np.nan), scoring, kind=kind)
    covered = intervals.coverage()
    for place, (nominal, _, _) in enumerate(COVERAGES):
        yield from _each(rows.INTERVAL_COVERAGE, covered[:, :, place], scoring, level=f"{nominal:g}")
    yield from _each(rows.PINBALL_LOSS, intervals.pinball(), scoring)
    for reference, skill in intervals.skill().items():
        yield from _each(rows.SKILL, skill, scoring, reference=reference)
    yield from _each(rows.BRIER_SCORE, breaches.brier(), scoring)
    yield from _each(rows.BRIER_SKILL, breaches.brier_skill(), scoring)


def _bins(scoring: Scoring) -> Iterator[Score]:
    claims, said, came = scoring.breaches.reliability()
    for place, (low, high) in enumerate(pairwise(BINS)):
        name = f"{low:g}-{high:g}"
        known = np.where(claims[:, :, place] > 0, claims[:, :, place], np.nan)
        yield from _each(rows.RELIABILITY_CLAIMS, known, scoring, bin=name)
        yield from _each(rows.RELIABILITY_SAID, said[:, :, place], scoring, bin=name)
        yield from _each(rows.RELIABILITY_CAME, came[:, :, place], scoring, bin=name)


def _alerts(scoring: Scoring) -> Iterator[Score]:
    alerts = scoring.alerts
    columns = (
        (rows.ALERT_LEAD, alerts.median_lead_seconds()),
        (rows.ALERT_PRECISION, alerts.precision()),
        (rows.ANNOUNCED_BREACHES, alerts.announced()),
        (rows.FALSE_ALARMS, alerts.false_alarms_per_gpu_day()),
    )
    for metric, values in columns:
        for name, value in zip(CLASSES, values.tolist(), strict=True):
            if np.isfinite(value):
                yield Score(metric, (("class", name),), value)


def _abstentions(scoring: Scoring) -> Iterator[Score]:
    for (number, reason), count in sorted(scoring.abstentions.items()):
        yield Score(rows.ABSTAINED, (("class", CLASSES[number]), ("reason", reason)), float(count))


def _each(metric: Metric, values: Floats, scoring: Scoring, **labels: str) -> Iterator[Score]:
    """One score for each class and horizon that has a value; `values` of shape (classes, horizons)."""
    for number, horizon in np.argwhere(np.isfinite(values)).tolist():
        cell = {"class": CLASSES[number], "horizon": duration_label(float(scoring.horizons_seconds[horizon]))}
        yield Score(metric, tuple(sorted({**cell, **labels}.items())), float(values[number, horizon]))


def duration_label(seconds: float) -> str:
    """Seconds as Prometheus writes a duration: `5m`, `1h`, `90s`."""
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:g}s"
