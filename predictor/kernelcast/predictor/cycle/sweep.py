"""One cycle: screens series, derives findings, fits models; never holds the windows' lock for long."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.causes.candidates import Screener, ScreeningResult
from kernelcast.predictor.causes.cases import Abstention, Case, Finding
from kernelcast.predictor.causes.degradation import Degradation, FirstPassage, already_passed, first_passage
from kernelcast.predictor.causes.judge import Judge
from kernelcast.predictor.causes.regimes import Regimes
from kernelcast.predictor.cycle.scoring import ForecastClaim, Scores
from kernelcast.predictor.forecasting.clean import prepare
from kernelcast.predictor.forecasting.models import ETS, ETS_DAMPED, Forecast, forecast
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.wire.errors import WindowError

MAX_FITS_KEPT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Prediction:
    """Forecast and degradation of one series, to be published.

    Attributes:
        case: The series.
        forecast: Its future, in its own unit.
        bounds: By horizon in seconds, for those that its history allows: mean, lower and upper bound, widened by
            the factor that past ones needed. The degradation's probability rests on the model's own paths.
        degradation: None where nothing points to a fault.
    """

    case: Case
    forecast: Forecast
    bounds: Mapping[float, tuple[float, float, float]]
    degradation: Degradation | None

    @property
    def horizons_seconds(self) -> tuple[float, ...]:
        """The horizons that are answered, ascending."""
        return tuple(self.bounds)


@dataclass(slots=True)
class SweepReport:
    """Result and costs of one cycle.

    Attributes:
        predictions: To be published.
        flagged: Series that were flagged.
        abstentions: Flagged series without a prediction, by reason.
        fits: By (model, outcome).
        fit_seconds: Time that models took.
        regimes_begun: Series for which a new regime began.
        seconds: Duration of the cycle.
    """

    predictions: list[Prediction] = field(default_factory=list)
    flagged: int = 0
    abstentions: Counter[Abstention] = field(default_factory=Counter)
    fits: Counter[tuple[str, str]] = field(default_factory=Counter)
    fit_seconds: float = 0.0
    regimes_begun: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Fitted:
    """Parameters of an earlier fit."""

    generation: int
    model: str
    parameters: Floats
    at_seconds: float


class Sweeper:
    """Runs cycles over one set of windows."""

    def __init__(
        self,
        settings: PredictorSettings,
        windows: Windows,
        lock: threading.RLock,
        *,
        seed: int = 0,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._settings = settings
        self._windows = windows
        self._lock = lock
        self._timer = timer
        self._rng = np.random.default_rng(seed)
        self._fitted: dict[int, Fitted] = {}
        self.regimes = Regimes()
        self.scores = Scores()
        self._judge = Judge(settings.judge, windows, self.regimes)
        self._screener = Screener(settings, windows, self.regimes, self._judge, lock)

    def sweep(self, *, now_seconds: float, redeployed: set[str] | None = None) -> SweepReport:
        """Run one cycle over all live series.

        Args:
            now_seconds: This process's clock, the one that windows were written under.
            redeployed: Programs with a new code version since the last cycle.
        """
        begun = self._timer()
        result = self._screener.screen(now_seconds=now_seconds, redeployed=redeployed or set())
        report = SweepReport(flagged=len(result.cases), regimes_begun=result.regimes_begun)
        self._settle_scores()
        chosen = self._choose(result, report)
        self._fit_all(chosen, report, now_seconds)
        report.seconds = self._timer() - begun
        return report

    def fit_of(self, row: int) -> tuple[str, tuple[float, ...]]:
        """Model and parameters of a row's last fit; empty where there is none."""
        fitted = self._fitted.get(row)
        if fitted is None or fitted.generation != self._windows.generation[row]:
            return "", ()
        return fitted.model, tuple(fitted.parameters.tolist())

    def restore_fit(self, row: int, generation: int, fitted: tuple[str, tuple[float, ...]], now_seconds: float) -> None:
        """Restore the fit of a row from a snapshot."""
        model, parameters = fitted
        if model in {ETS, ETS_DAMPED} and parameters:
            self._fitted[row] = Fitted(generation, model, np.array(parameters), now_seconds)

    def _settle_scores(self) -> None:
        def newest(row: int, generation: int) -> int | None:
            return int(self._windows.newest[row]) if self._windows.generation[row] == generation else None

        with self._lock:
            self.scores.settle(newest, self._windows.at)

    def _choose(self, result: ScreeningResult, report: SweepReport) -> list[tuple[Case, Finding]]:
        """Series flagged in enough cycles in a row, with their findings; the nearest to their threshold first."""
        judged = [(case, self._judged(case)) for case in result.cases]
        report.abstentions.update(finding.abstention for _, finding in judged if finding.abstention is not None)
        flagged = {case.row for case, finding in judged if finding.abstention is None}
        limits = self._settings.judge
        self.regimes.note(
            result.rows,
            np.isin(result.rows, np.fromiter(flagged, np.int64, len(flagged))),
            raise_sweeps=limits.raise_sweeps,
            clear_sweeps=limits.clear_sweeps,
        )
        raised = set(result.rows[self.regimes.raised(result.rows, raise_sweeps=limits.raise_sweeps)].tolist())
        chosen = [(case, finding) for case, finding in judged if case.row in raised]
        return sorted(chosen, key=lambda pair: _intervals_left(*pair))

    def _judged(self, case: Case) -> Finding:
        """Derive one finding under the lock: holding it for thousands would block the reading of Kafka."""
        with self._lock:
            return self._judge.judge(case)

    def _fit_all(self, chosen: list[tuple[Case, Finding]], report: SweepReport, now_seconds: float) -> None:
        allowed = self._settings.max_fits_per_sweep
        budget_seconds = self._settings.fit_share_ratio * self._settings.sweep_every_seconds
        begun = self._timer()
        for done, (case, finding) in enumerate(chosen):
            if done >= allowed or self._timer() - begun > budget_seconds:
                report.abstentions[Abstention.OVER_BUDGET] += len(chosen) - done
                break
            prediction = self._predict(case, finding, report, now_seconds)
            if prediction is not None:
                report.predictions.append(prediction)
        report.fit_seconds = self._timer() - begun

    def _predict(self, case: Case, finding: Finding, report: SweepReport, now_seconds: float) -> Prediction | None:
        horizons = self._horizons(case)
        try:
            segment = prepare(case.window, span=case.span)
        except WindowError:
            report.abstentions[Abstention.UNUSABLE_WINDOW] += 1
            return None
        if not horizons:
            report.abstentions[Abstention.UNUSABLE_WINDOW] += 1
            return None
        damped = case.settling or not case.drift
        fitted = self._fitted.get(case.row)
        model = ETS_DAMPED if damped else ETS
        usable = (
            fitted is not None
            and fitted.generation == case.generation
            and fitted.model == model
            and now_seconds - fitted.at_seconds < self._settings.refit_every_seconds
        )
        intervals = round(horizons[-1] / self._settings.interval_seconds)
        found = forecast(
            segment,
            intervals=intervals,
            damped=damped,
            rng=self._rng,
            parameters=fitted.parameters if fitted is not None and usable else None,
        )
        report.fits[found.model, "failed" if found.failed else "reused" if usable else "estimated"] += 1
        self._keep(case, found, now_seconds, usable=usable)
        bounds = {horizon: self._claimed(case, found, horizon) for horizon in horizons}
        return Prediction(case, found, bounds, self._degradation(case, finding, found, horizons))

    def _horizons(self, case: Case) -> tuple[float, ...]:
        known = np.flatnonzero(np.isfinite(case.window[-case.span :]))
        history = (case.span - int(known[0])) * self._settings.interval_seconds if len(known) else 0.0
        reach = history * self._settings.judge.max_extrapolation
        return tuple(horizon for horizon in self._settings.horizons_seconds if horizon <= reach)

    def _degradation(
        self, case: Case, finding: Finding, found: Forecast, horizons: tuple[float, ...]
    ) -> Degradation | None:
        if finding.cause is None:
            return None
        passage = self._passage(case, finding, found, horizons)
        return Degradation(case.subject, finding.cause, finding.threshold, passage, finding.evidence)

    def _passage(self, case: Case, finding: Finding, found: Forecast, horizons: tuple[float, ...]) -> FirstPassage:
        if case.level > finding.threshold:
            return already_passed(horizons)
        step_seconds = found.intervals * self._settings.interval_seconds
        return first_passage(found.paths, finding.threshold, step_seconds=step_seconds, horizons_seconds=horizons)

    def _keep(self, case: Case, found: Forecast, now_seconds: float, *, usable: bool) -> None:
        if found.parameters is None:
            self._fitted.pop(case.row, None)
        elif not usable:
            self._fitted[case.row] = Fitted(case.generation, found.model, found.parameters, now_seconds)
            while len(self._fitted) > MAX_FITS_KEPT:
                del self._fitted[next(iter(self._fitted))]

    def _claimed(self, case: Case, found: Forecast, horizon_seconds: float) -> tuple[float, float, float]:
        """Mean, lower and upper bound at a horizon, remembered until it is known how they came out."""
        step = -(-round(horizon_seconds / self._settings.interval_seconds) // found.intervals) - 1
        metric = case.subject.without_variant.metric
        claim = ForecastClaim(
            due=case.newest + (step + 1) * found.intervals,
            row=case.row,
            generation=case.generation,
            metric=metric,
            horizon_seconds=horizon_seconds,
            mean=float(found.mean[step]),
            lower=float(found.lower[step]),
            upper=float(found.upper[step]),
            widening=self.scores.widening(metric, horizon_seconds),
        )
        self.scores.claim(claim)
        return claim.bounds


def _intervals_left(case: Case, finding: Finding) -> float:
    """A straight line's time to the threshold, in intervals; series without a threshold come last."""
    if finding.cause is None:
        return float("inf")
    if case.level >= finding.threshold:
        return 0.0
    return (finding.threshold - case.level) / case.slope if case.slope > 0 else 1e12
