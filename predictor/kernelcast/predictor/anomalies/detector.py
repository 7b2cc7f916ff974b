"""The online anomaly detector: one value per series and step, one score on the same scale for all.

Each series is described by features: distance of the newest value from a slow level, jump from a fast level, shift of a
short mean, deviation from the season. A tail model per feature says how improbable each is in the light of the series'
own past; runs of missing and of constant values have their own probability. The score is the largest -log10 of these
probabilities, divided by that of the false-alarm rate that the user accepts: 1 means act.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcast.predictor.anomalies.episodes import Episodes
from kernelcast.predictor.anomalies.evidence import EvidenceModel, Interval
from kernelcast.predictor.anomalies.season import grouped
from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.arrays import Bools, Floats

Float32s: TypeAlias = NDArray[np.float32]

_BLOCK_ROWS: Final = 8192
"""Series that are computed together: the arrays of such a block fit into the processor's cache."""
DAY_SECONDS: Final = 86_400.0
_LARGEST: Final = 1e30
"""Larger values count as this one: sums and products of float32, in which the models compute, overflow beyond 3e38."""
_UNUSED: Final = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class AnomalyStep:
    """Result of one interval; each of shape (n,).

    Attributes:
        score: float64, 0 or more; 1 means act. Stays at 1 or more in an episode with an alarm while there is evidence.
        onset: float64, the score in the first interval of an episode, and where it first reaches 1; else 0.
    """

    score: Floats
    onset: Floats


class AnomalyDetector:
    """Scores of `rows` series, causal: a step uses its own values and earlier ones.

    Not safe for several threads. A series' result does not depend on the others.
    """

    def __init__(
        self,
        rows: int,
        interval_seconds: ArrayLike,
        season: ArrayLike = 0,
        settings: AnomalySettings | None = None,
    ) -> None:
        """Begin without any knowledge.

        Args:
            rows: How many series.
            interval_seconds: Length of a step, of each series or of all.
            season: Steps of the season of each series or of all; 0 for none.
            settings: Settings for all series.
        """
        self._settings = settings or AnomalySettings()
        intervals = DAY_SECONDS / np.asarray(interval_seconds, np.float64)
        scale = np.log10(np.maximum(intervals, 1) / self._settings.false_alarms_per_day)
        self._scale: Float32s = np.broadcast_to(scale.astype(np.float32), (rows,))  # -log10 of a probability at score 1
        self._intervals_per_day: Float32s = np.broadcast_to(intervals.astype(np.float32), (rows,))
        seasons = np.broadcast_to(np.asarray(season, np.int64), (rows,))
        self._seasons = grouped(seasons, self._settings)
        self._season: Float32s = np.broadcast_to(np.asarray(season, np.float32), (rows,))
        self._count: Float32s = np.zeros(rows, np.float32)
        self._latest: Floats = np.full(rows, np.nan)
        self._evidence = EvidenceModel(rows, self._settings, seasonal=bool(self._seasons))
        self._episodes = Episodes(rows, self._settings)

    def step(self, values: Floats) -> AnomalyStep:
        """Score one value of each series, and learn it.

        Args:
            values: float64, shape (rows,), NaN or infinite where a value is missing.

        Raises:
            ValueError: The shape is another.
        """
        if values.shape != self._latest.shape:
            message = (
                f"values have the shape {values.shape}; the detector has {len(self._latest)} series; pass one each"
            )
            raise ValueError(message)
        values = bounded(values)
        known = np.isfinite(values)
        filled = np.where(known, values, self._evidence.levels.expected(slice(None)))
        weight = self._episodes.learning(slice(None)) * known
        smallest = self._evidence.levels.smallest(slice(None)) if self._seasons else _UNUSED
        deviation, explained = self._season_deviation(filled, smallest)
        score, onset = np.zeros((2, len(values)))
        for start in range(0, len(values), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            interval = self._interval(rows, filled, known, (deviation, explained))
            score[rows], onset[rows] = self._step_block(rows, interval, weight[rows])
        for group in self._seasons:
            part = group.rows
            group.learn(
                filled[part],
                self._count[part],
                smallest[part],
                known[part].astype(np.float32),
                weight[part],
            )
        self._count += known
        np.copyto(self._latest, values, where=known)
        return AnomalyStep(score, onset)

    def _season_deviation(self, filled: Floats, smallest: Float32s) -> tuple[Float32s | None, Bools]:
        """Deviations from the season, None without any season, and where it explains the series."""
        explained = np.zeros(len(filled), np.bool_)
        if not self._seasons:
            return None, explained
        deviation = np.zeros(len(filled), np.float32)
        for group in self._seasons:
            part = group.rows
            deviation[part] = group.deviation(filled[part], self._count[part], smallest[part])
            explained[part] = group.explains(self._evidence.levels.spread(part))
        return deviation, explained

    def _interval(self, rows: slice, filled: Floats, known: Bools, season: tuple[Float32s | None, Bools]) -> Interval:
        deviation, explained = season
        return Interval(
            values=filled[rows],
            known=known[rows],
            count=self._count[rows],
            latest=self._latest[rows],
            deviation=None if deviation is None else deviation[rows],
            explained=explained[rows],
            season=self._season[rows],
            days=self._count[rows] / self._intervals_per_day[rows],
        )

    def _step_block(self, rows: slice, interval: Interval, weight: Float32s) -> tuple[Float32s, Float32s]:
        """Score and onset of a block of series."""
        evidence, seen = self._evidence.gather(rows, interval)
        if evidence is None:
            self._evidence.learn(rows, interval, seen, weight)
            return self._episodes.pass_interval(rows)
        scale = self._scale[rows] * (1 + np.float32(self._settings.first_day) * (1 - np.minimum(interval.days, 1)))
        alarming = evidence.alarm_every / scale, evidence.alarm_new / scale
        score, onset = self._episodes.step(rows, evidence.every / scale, evidence.new / scale, alarming)
        self._evidence.learn(rows, interval, seen, weight)
        return score, onset


def bounded(values: Floats) -> Floats:
    """The values as the models learn them: of bounded size, NaN where one is missing."""
    return np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), np.nan)
