"""All steps of the anomaly detector for one recorded series.

A step of `AnomalyDetector` costs about 300 calls of numpy however few series there are. For a long series alone, the
same arithmetic on scalars costs a small part of that. What does not depend on the detector's state is computed for all
rows at once.

`backtest.anomalies` calls `series_steps` for recordings of one series; a test compares it with the detector.
"""

from typing import Final, NamedTuple

import numpy as np

from kernelcast.predictor.anomalies.detector import SHIFT_AGE, AnomalyDetector, AnomalyStep, bounded
from kernelcast.predictor.anomalies.evidence import LARGEST_CONSTANT_RARITY, LARGEST_MISSING_RARITY
from kernelcast.predictor.anomalies.kinds import AnomalyKind
from kernelcast.predictor.anomalies.levels import FEATURES, JUMP, SEASON, SHIFT
from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.anomalies.single.episodes import SingleEpisodes
from kernelcast.predictor.anomalies.single.levels import SingleLevels
from kernelcast.predictor.anomalies.single.runs import EventRun
from kernelcast.predictor.anomalies.single.schedule import schedule
from kernelcast.predictor.anomalies.single.season import Season
from kernelcast.predictor.anomalies.single.tails import Rates, Tails
from kernelcast.predictor.arrays import Floats

_ZERO: Final = np.float32(0)


class _Evidence(NamedTuple):
    """Evidence of one row: the fields of `anomalies.evidence.AnomalyEvidence`."""

    every: np.float32 = _ZERO
    new: np.float32 = _ZERO
    alarm_every: np.float32 = _ZERO
    alarm_new: np.float32 = _ZERO
    direction: int = 0
    kind: int = int(AnomalyKind.NONE)

    def with_run(self, rarity: np.float32, kind: AnomalyKind) -> "_Evidence":
        """Return the stronger one of this evidence and that of a run."""
        direction, own = (0, int(kind)) if rarity > self.new else (self.direction, self.kind)
        return _Evidence(
            max(self.every, rarity),
            max(self.new, rarity),
            max(self.alarm_every, rarity),
            max(self.alarm_new, rarity),
            direction,
            own,
        )


def series_steps(
    values: Floats, interval_seconds: float, season: int = 0, settings: AnomalySettings | None = None
) -> AnomalyStep:
    """Compute what `AnomalyDetector.step` returns for each row of one series, from its beginning.

    Args:
        values: float64, shape (t,), NaN or infinite where a value is missing.
        interval_seconds: Length of a step.
        season: Steps of the season; 0 for none.
        settings: Settings of the detector.

    Returns:
        Arrays of shape (t,); equal to the detector's bit for bit.
    """
    settings = settings or AnomalySettings()
    found = AnomalyStep(*np.zeros((2, len(values))), *np.zeros((2, len(values)), np.int8))
    if settings.frozen <= 0:
        _step_arrays(found, AnomalyDetector(1, interval_seconds, season, settings), values)
    else:
        with np.errstate(over="ignore"):  # as in `TailModel.surprise`
            _Series(bounded(values), interval_seconds, season, settings).run(found)
    return found


def _step_arrays(found: AnomalyStep, detector: AnomalyDetector, values: Floats) -> None:
    for row in range(len(values)):
        step = detector.step(values[row : row + 1])
        found.score[row], found.onset[row] = step.score[0], step.onset[0]
        found.direction[row], found.kind[row] = step.direction[0], step.kind[0]


class _Series:
    """State of the detector for one series. Not safe for several threads."""

    # The columns of `RowSchedule`, which describes them, are held in lists: a scalar of a list is read faster.

    def __init__(self, values: Floats, interval_seconds: float, season: int, settings: AnomalySettings) -> None:
        rows = self._rows = schedule(values, interval_seconds, season, settings)
        self._count, self._warm = list(rows.count), rows.warm.tolist()
        self._fresh, self._ready = rows.fresh.tolist(), rows.ready.tolist()
        self._inside, self._trust, self._isolated = rows.inside.tolist(), list(rows.trust), list(rows.isolated)
        self._unexplained = np.float32(settings.unexplained)
        self._levels = SingleLevels(rows.count, settings)
        self._tails, self._rates = Tails(FEATURES, settings, immediate=SHIFT), Rates(rows.count, settings)
        self._season = Season(season, rows.count, settings) if season > 1 else None
        self._season_tails = Tails(1, settings)
        self._season_rates = self._rates if self._season is None else Rates(self._season.since, settings)
        self._missing = EventRun(rows.count, settings, LARGEST_MISSING_RARITY)
        self._constant = EventRun(rows.count, settings, LARGEST_CONSTANT_RARITY)
        self._episodes = SingleEpisodes(settings)
        self._direction, self._kind = 0, int(AnomalyKind.NONE)

    def run(self, found: AnomalyStep) -> None:
        """Fill the results of all rows."""
        rows = self._rows
        columns = zip(rows.values.tolist(), rows.known.tolist(), rows.unchanged.tolist(), rows.scale, strict=True)
        for row, (value, known, unchanged, scale) in enumerate(columns):
            frozen = self._episodes.frozen()
            evidence = self._step_known(row, value, frozen, unchanged=unchanged) if known else self._step_missing(row)
            alarming = evidence.alarm_every / scale, evidence.alarm_new / scale
            found.score[row], found.onset[row] = self._episodes.step(
                evidence.every / scale, evidence.new / scale, alarming
            )
            self._describe(evidence.direction, evidence.kind)
            found.direction[row], found.kind[row] = self._direction, self._kind

    def _step_known(self, row: int, value: float, frozen: int, *, unchanged: bool) -> _Evidence:
        """Evidence of a row that has a value; and learning."""
        levels, season, count = self._levels, self._season, self._count[row]
        smallest = levels.smallest()
        features = levels.features(row, value, smallest, first=count == 0)
        found = self._tails.find_peaks(features)
        seasonal = season is not None and season.start(row, np.float32(value))
        deviation = (season.deviation(row, smallest),) if season is not None and seasonal else (_ZERO,)
        found = (seasonal and self._season_tails.find_peaks(deviation)) or found
        evidence = _Evidence()
        if self._warm[row]:
            if found:
                evidence = self._strongest(row, features + deviation * self._ready[row], smallest, count)
            constant = self._constant.surprise() if unchanged else _ZERO
            evidence = evidence.with_run(constant, AnomalyKind.FLATLINE)
        levels.learn(row, value, frozen)
        self._tails.learn(features, self._rates, row, frozen)
        if seasonal:
            self._season_tails.learn(deviation, self._season_rates, row, frozen)
        if season is not None:
            season.learn(row, np.float32(value), smallest, frozen)
        self._missing.learn(row, 0, event=False)
        self._constant.learn(row, frozen, event=unchanged)
        return evidence

    def _step_missing(self, row: int) -> _Evidence:
        """Evidence of a row without a value; and learning."""
        rarity = self._missing.surprise() if self._warm[row] else _ZERO
        self._tails.forget()
        self._season_tails.forget()
        if self._season is not None:
            filled = np.float32(self._levels.fast)
            self._season.start(row, filled)
            self._season.learn(row, filled, _ZERO, None)
        self._missing.learn(row, 0, event=True)
        self._constant.learn(row, None, event=False)
        return _Evidence().with_run(rarity, AnomalyKind.MISSING)

    def _strongest(
        self, row: int, features: tuple[np.float32, ...], smallest: np.float32, count: np.float32
    ) -> _Evidence:
        """The strongest evidence of the features, the first one of equal ones."""
        most_every = most_new = alarm_every = alarm_new = _ZERO
        direction, jumps, strongest = 0, [False, False], -1
        trust, isolated = self._trusts(row), self._isolated[row]
        for side in (0, 1):
            for place, value in enumerate(features):
                tails, own = (self._season_tails, 0) if place == SEASON else (self._tails, place)
                every, new = tails.surprise((own, side), -value if side else value, smallest, count, isolated)
                most_every, alarm_every = max(most_every, every), max(alarm_every, every * trust[place])
                jumps[side] = jumps[side] or bool(place == JUMP and every > 0)
                if place == SEASON or self._fresh[row]:
                    alarm_new = max(alarm_new, new * trust[place])
                    if new > most_new:
                        most_new, direction, strongest = new, 1 - 2 * side, place
        kind = _kind(strongest, jumps=jumps[direction < 0])
        return _Evidence(most_every, most_new, alarm_every, alarm_new, direction, kind)

    def _trusts(self, row: int) -> tuple[np.float32, ...]:
        """Weight of each feature's evidence for an alarm."""
        trust = self._trust[row]
        explained = self._season is not None and self._season.explains(self._levels.spread())
        seasonal = self._unexplained if self._inside[row] and not explained else np.float32(1)
        return trust, trust, trust, seasonal

    def _describe(self, direction: int, kind: int) -> None:
        """Kind and direction are those of an episode's first row, as in `AnomalyDetector`."""
        age = self._episodes.age
        if age == 1 or (age > 1 and kind == AnomalyKind.MISSING):
            self._kind, self._direction = kind, direction
        if age > SHIFT_AGE and self._kind == AnomalyKind.SPIKE and self._episodes.off:
            self._kind = int(AnomalyKind.LEVEL_SHIFT)
        if age == 0:
            self._kind, self._direction = int(AnomalyKind.NONE), 0


def _kind(strongest: int, *, jumps: bool) -> int:
    """Kind of the strongest feature; -1 for none."""
    if strongest < 0:
        return int(AnomalyKind.NONE)
    if strongest == SEASON:
        return int(AnomalyKind.SEASONAL)
    if not jumps:
        return int(AnomalyKind.DRIFT)
    return int(AnomalyKind.LEVEL_SHIFT if strongest == SHIFT else AnomalyKind.SPIKE)
