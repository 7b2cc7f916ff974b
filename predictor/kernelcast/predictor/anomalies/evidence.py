"""Evidence of an anomaly: how improbable each feature and each run of a series is at the newest interval.

`AnomalyDetector` asks for it in each interval (`gather`), and lets the models learn the interval afterwards
(`learn`). Improbabilities are -log10 of probabilities: 3 means one in a thousand.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.anomalies.levels import FEATURES, SHIFT, Levels
from kernelcast.predictor.anomalies.runs import RunModel
from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.anomalies.tails import Peaks, TailModel
from kernelcast.predictor.arrays import Bools, Floats

Float32s: TypeAlias = NDArray[np.float32]

LARGEST_MISSING_RARITY: Final = 1.3
"""Largest -log10 of the probability of a missing value: four in a row are needed, however reliable the series was."""
LARGEST_CONSTANT_RARITY: Final = 0.4
"""The same of a value that equals the one before."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The newest interval of a block of series; shapes (n,).

    Attributes:
        values: The value; the level where it is missing.
        known: Where there is a value.
        count: Values before this one.
        latest: The last value before this one; NaN before the first.
        deviation: Mean deviation from the season; None if no series has one.
        explained: Where the season explains the series: its values are nearer to the profile than to the level.
        season: Intervals of the season; 0 for none.
        days: Length of the history: values before this one, as days.
    """

    values: Floats
    known: Bools
    count: Float32s
    latest: Floats
    deviation: Float32s | None
    explained: Bools
    season: Float32s
    days: Float32s

    def unchanged(self) -> Bools:
        """Return the series whose value equals the one before."""
        unchanged: Bools = self.known & (self.values == self.latest)
        return unchanged


@dataclass(frozen=True, slots=True)
class AnomalyEvidence:
    """Improbability of an interval, -log10 of its probability; shapes (n,).

    Attributes:
        every: Of the present values.
        new: The same where it exceeds all earlier evidence of the series; else 0.
        alarm_every: As `every`, with less weight for values that were there before: an alarm needs this evidence.
        alarm_new: The same of `new`.
    """

    every: Float32s
    new: Float32s
    alarm_every: Float32s
    alarm_new: Float32s


class LearntInterval(NamedTuple):
    """Results of `EvidenceModel.gather` that `learn` uses.

    Attributes:
        peaks: Of the levels' features, and of the deviation from the season where there is one.
        clipped: Shape (n,), values without far outliers.
    """

    peaks: list[Peaks]
    clipped: Floats


class EvidenceModel:
    """Levels, tails and runs of each series. Not safe for several threads."""

    def __init__(self, rows: int, settings: AnomalySettings, *, seasonal: bool) -> None:
        self._settings = settings
        self.levels = Levels(rows, settings)
        self._tails = TailModel(FEATURES, rows, settings, immediate=SHIFT)
        self._season_tails = TailModel(1, rows if seasonal else 0, settings)
        self._missing = RunModel(rows, LARGEST_MISSING_RARITY)
        self._constant = RunModel(rows, LARGEST_CONSTANT_RARITY)

    def gather(self, rows: slice, interval: Interval) -> tuple[AnomalyEvidence | None, LearntInterval]:
        """The evidence of an interval, None where no series has had enough values; and what `learn` takes afterwards.

        Args:
            rows: Which series.
            interval: Their newest interval.
        """
        features, clipped = self.levels.features(rows, interval.values, interval.count)
        peaks = [self._tails.peaks(rows, features)]
        if interval.deviation is not None:
            peaks.append(self._season_tails.peaks(rows, interval.deviation[None]))
        seen = LearntInterval(peaks, clipped)
        warm = (interval.count >= self._settings.warm_up) & (interval.days >= self._settings.warm_up_days)
        return (self._evidence(rows, interval, peaks, warm) if warm.any() else None), seen

    def _evidence(self, rows: slice, interval: Interval, peaks: list[Peaks], warm: Bools) -> AnomalyEvidence:
        smallest = self.levels.smallest(rows)
        isolated = isolated_factor(interval.days, self._settings)
        every, new = self._tails.surprise(peaks[0], smallest, interval.count, isolated)
        inside = self.levels.inside(rows, interval.values)
        # In the first days a return to earlier values opens no episode: the series' daily rhythm is not known yet.
        new *= (interval.days >= self._settings.rhythm_days) | ~inside
        trust = [np.where(inside, np.float32(self._settings.familiar), np.float32(1))] * FEATURES
        if interval.deviation is not None:
            more = self._season_tails.surprise(peaks[1], smallest, interval.count, isolated)
            ready = (interval.season > 1) & (interval.count >= self._settings.cycles * interval.season)
            every, new = (np.concatenate([a, b * ready], axis=1) for a, b in zip((every, new), more, strict=True))
            trust.append(np.where(interval.explained | ~inside, np.float32(1), np.float32(self._settings.unexplained)))
        missing = self._missing.surprise(rows, ~interval.known & warm)
        constant = self._constant.surprise(rows, interval.unchanged() & warm)
        usable = interval.known & warm
        return _strongest((every * usable, new * usable), np.stack(trust), np.maximum(missing, constant))

    def learn(self, rows: slice, interval: Interval, seen: LearntInterval, weight: Float32s) -> None:
        """Let all models learn the newest interval.

        Args:
            rows: Which series.
            interval: Their newest interval.
            seen: From `gather`.
            weight: Shape (n,), factor on learning, 0 where the value is missing.
        """
        count, known = interval.count, interval.known.astype(np.float32)
        self.levels.learn(rows, (interval.values, seen.clipped), count, known, weight)
        self._tails.learn(rows, seen.peaks[0], count, weight)
        if interval.deviation is not None:
            since = count - interval.season
            seasonal = weight * ((since >= 0) & (interval.season > 1))
            self._season_tails.learn(rows, seen.peaks[1], np.maximum(since, 0), seasonal)
        self._missing.learn(rows, ~interval.known, count, np.ones_like(count))
        self._constant.learn(rows, interval.unchanged(), count, weight)


def isolated_factor(days: Float32s, settings: AnomalySettings) -> Float32s:
    """Factor on the evidence of a value that is the first one off, by the days that were seen."""
    unseen = 1 - np.minimum(days / np.float32(settings.rhythm_days), 1)
    factor: Float32s = np.float32(settings.isolated) * (1 - np.float32(settings.isolated_first) * unseen)
    return factor


def _strongest(rarities: tuple[Float32s, Float32s], trust: Float32s, runs: Float32s) -> AnomalyEvidence:
    """Merge the evidence of all features and of both runs.

    Args:
        rarities: Of the present values and of new records, each of shape (2, k, n).
        trust: Shape (k, n), weight of a feature's evidence for an alarm.
        runs: Shape (n,), of missing or constant values.
    """
    every, new = rarities
    parts = (every, new, every * trust, new * trust)
    return AnomalyEvidence(*(np.maximum(one.max(axis=(0, 1)), runs) for one in parts))
