"""Everything about a recorded series that does not depend on the detector's state, for all its rows at once.

The formulas are those of the array models (`levels`, `tails`, `runs`, `season`, `evidence`), in float32 as there, so
that each number is equal to theirs bit for bit. Pairs have one entry for full learning and one for that inside an
episode, where it is multiplied by `AnomalySettings.frozen`.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.anomalies import levels
from kernelcast.predictor.anomalies.detector import DAY_SECONDS
from kernelcast.predictor.anomalies.evidence import isolated_factor
from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.arrays import Bools, Floats

Float32s: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """Properties of the rows (intervals) of one series that its values alone decide; each of shape (t,).

    Attributes:
        values: float64; NaN where a value is missing.
        known: Where there is a value.
        count: float32, values before the row.
        unchanged: Where the value equals the one before.
        warm: Where a score above 0 is possible.
        fresh: Where an episode may open: the daily rhythm is known, or the value is outside of the earlier range.
        isolated: float32, factor on the evidence of the first value beyond its quantile.
        inside: Where the value lies in the range of the earlier ones.
        trust: float32, weight of evidence for an alarm; less for values in the range of the earlier ones.
        ready: Where deviations from the season count.
        scale: float32, -log10 of a probability at score 1.
    """

    values: Floats
    known: Bools
    count: Float32s
    unchanged: Bools
    warm: Bools
    fresh: Bools
    isolated: Float32s
    inside: Bools
    trust: Float32s
    ready: Bools
    scale: Float32s


def schedule(values: Floats, interval_seconds: float, season_rows: int, settings: AnomalySettings) -> RowSchedule:
    """Compute the schedule of a series, shape (t,)."""
    known = np.isfinite(values)
    count = (np.cumsum(known) - known).astype(np.float32)
    intervals = DAY_SECONDS / np.asarray(interval_seconds, np.float64)
    bar = np.log10(np.maximum(intervals, 1) / settings.false_alarms_per_day).astype(np.float32)
    days = count / intervals.astype(np.float32)
    inside = _inside(values, known)
    return RowSchedule(
        values=values,
        known=known,
        count=count,
        unchanged=known & (values == _before(values, known)),
        warm=(count >= settings.warm_up) & (days >= settings.warm_up_days),
        fresh=(days >= settings.rhythm_days) | ~inside,
        isolated=isolated_factor(np.asarray(days, np.float32), settings),
        inside=inside,
        trust=np.where(inside, np.float32(settings.familiar), np.float32(1)),
        ready=(season_rows > 1) & (count >= settings.cycles * season_rows),
        scale=bar * (1 + np.float32(settings.first_day) * (1 - np.minimum(days, 1))),
    )


def pair(factor: Float32s, settings: AnomalySettings) -> tuple[Float32s, Float32s]:
    """A factor with full learning, and with that inside an episode."""
    return factor, factor * np.float32(settings.frozen)


def share(least: float | np.float32, count: Float32s, offset: int) -> Float32s:
    """Weight of the newest value: the mean of all values at first, at least `least` later; shape (t,)."""
    return np.maximum(np.float32(least), 1 / (count + offset))


def _before(values: Floats, known: Bools) -> Floats:
    """The last value before each row; NaN before the first."""
    place = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    latest: Floats = np.concatenate([[np.nan], values])[place + 1]
    return _earlier(latest, np.nan)


def _inside(values: Floats, known: Bools) -> Bools:
    lowest = _earlier(np.minimum.accumulate(np.where(known, values, np.inf)), np.inf)
    highest = _earlier(np.maximum.accumulate(np.where(known, values, -np.inf)), -np.inf)
    margin = np.where(highest > lowest, levels.RANGE_MARGIN * (highest - lowest), 0.0)
    within: Bools = (values >= lowest - margin) & (values <= highest + margin)
    return within


def _earlier(values: Floats, first: float) -> Floats:
    return np.concatenate([[first], values])[:-1]
