"""Probability, time and state of the breaches that are published, for `Publication` and `explain`."""

from dataclasses import dataclass

import numpy as np

from kernelcast.predictor.arrays import Bools, Ints
from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.predictions import Degradation
from kernelcast.predictor.passage.alert_rule import RAISE_PROBABILITY
from kernelcast.predictor.passage.first_passage import QUANTILES
from kernelcast.predictor.series.attributes import SeriesAttributes


@dataclass(frozen=True, slots=True, eq=False)
class Degradations:
    """Reads results of the detector by row; it keeps no state. A horizon is *carried* if the history suffices for it.

    Attributes:
        detection: The detector.
        attributes: Of the rows.
        block_seconds: Length of a block.
    """

    detection: Detection
    attributes: SeriesAttributes
    block_seconds: float

    def answered(self, rows: Ints) -> Bools:
        """Whether the history of each row carries each horizon, and the row has it, shape (n, h)."""
        every = np.array(self.detection.horizons_seconds)
        reach = self.detection.state.reach[rows]
        reach_seconds = reach * self.block_seconds * self.attributes.settings.judge.max_extrapolation
        carried = (every <= reach_seconds[:, None]) & self.detection.state.answered[rows]
        # A forecast without a limit is limited by the errors that it needs.
        carried |= ~self.attributes.judged[rows][:, None]
        answered: Bools = self.attributes.asked(rows, self.detection.horizons_seconds) & carried
        return answered

    def horizons(self, row: int) -> tuple[float, ...]:
        """Horizons of a row, seconds."""
        return self.attributes.horizon_sets[int(self.attributes.horizons[row])]

    def carried(self, row: int) -> list[float]:
        """Horizons of a row that its history carries, seconds."""
        answered = self.answered(np.array([row]))[0].tolist()
        return [each for each, carried in zip(self.detection.horizons_seconds, answered, strict=True) if carried]

    def probability(self, row: int) -> dict[float, float]:
        """Probability of a breach within each horizon in seconds that the history carries; 1 if the limit is passed."""
        state, every = self.detection.state, self.detection.horizons_seconds
        if state.has_passed(row):
            return dict.fromkeys(self.horizons(row), 1.0)
        carried = {each: float(state.probability[row, every.index(each)]) for each in self.carried(row)}
        return {each: value for each, value in carried.items() if np.isfinite(value)}

    def seconds(self, row: int, now_seconds: float) -> dict[float, float]:
        """Time until a share of the probability has reached the limit, by that share; 0 if the limit is passed.

        Times beyond the horizons that the history carries are absent.

        Args:
            row: The row.
            now_seconds: Unix time from which to count: a block is evaluated at its end, and counts down until the next.
        """
        state, scale = self.detection.state, self.detection.seconds_scale
        if state.has_passed(row):
            return dict.fromkeys(QUANTILES, 0.0)
        longest = max(self.carried(row), default=0.0)
        passed_by = now_seconds - (int(state.evaluated[row]) + 1) * self.block_seconds
        times = zip(QUANTILES, (state.seconds[row] * scale).tolist(), strict=True)
        return {quantile: max(seconds - passed_by, 0.0) for quantile, seconds in times if seconds <= longest}

    def contradicts(self, row: int, horizon_seconds: float, forecast: float) -> bool:
        """Whether a forecast falls short of the limit that the series probably reaches within its horizon.

        It comes from past errors and does not follow a trend as far; beside the prediction it would deny it. Once the
        limit is passed, the forecast may well be that the series comes back.
        """
        state, every = self.detection.state, self.detection.horizons_seconds
        if state.has_passed(row) or not state.probability[row, every.index(horizon_seconds)] > RAISE_PROBABILITY:
            return False
        return bool((forecast > state.limit[row]) if self.attributes.below[row] else (forecast < state.limit[row]))

    def of(self, row: int, cause: FoundCause, now_seconds: float) -> Degradation:
        """The degradation of a row whose cause is known; times count from `now_seconds`, Unix."""
        state = self.detection.state
        passed = state.has_passed(row)
        return Degradation(
            cause=cause.cause,
            severity=cause.severity,
            evidence=cause.evidence,
            threshold=float(state.limit[row]),
            probability=self.probability(row),
            seconds=self.seconds(row, now_seconds),
            passed=passed,
            crossed_ns=int(state.crossed_ns[row]),
            firing=passed or bool(state.firing[row]),
        )
