"""Forecasts of single series, as a distribution of simulated paths.

Exponential smoothing with additive errors and an additive, possibly damped trend: Hyndman & Athanasopoulos,
Forecasting: Principles and Practice (3rd ed.), sections 8.2 and 8.7;
`statsmodels.tsa.exponential_smoothing.ets.ETSModel`. Intervals of such models leave out the error of the estimated
trend (section 5.5), so it is drawn for every path. ETS returns NaN for NaN without a word: `clean.prepare` hands it
none.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from statsmodels.tsa.exponential_smoothing.ets import ETSModel

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.clean import CleanSegment, robust_line

PATHS: Final = 200
LEVEL: Final = 0.95
_MAX_EVALUATIONS: Final = 60
_SMALLEST_WEIGHT: Final = 1e-6
_TREND_WEIGHT: Final = 0.1
"""Bound of the trend's smoothing weight, divided by the number of observations. The screen hands over segments of one
steady trend; one that may follow the noise makes every interval useless some lengths of the segment ahead."""

ETS: Final = "ets"
ETS_DAMPED: Final = "ets_damped"
DRIFT: Final = "drift"
CONSTANT: Final = "constant"
MODELS: Final = (ETS, ETS_DAMPED, DRIFT, CONSTANT)


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast in the series' own unit.

    Attributes:
        model: One of MODELS.
        mean, lower, upper: Shape (steps,); the interval is a 95 % one.
        paths: Shape (PATHS, steps).
        intervals: Grid intervals per step.
        parameters: The model's, to be used again on the next window; None where there are none.
        failed: Whether the model asked for could not be fitted, so that this is the fallback.
    """

    model: str
    mean: Floats
    lower: Floats
    upper: Floats
    paths: Floats
    intervals: int
    parameters: Floats | None = None
    failed: bool = False


def forecast(
    segment: CleanSegment,
    *,
    intervals: int,
    damped: bool,
    rng: np.random.Generator,
    parameters: Floats | None = None,
) -> Forecast:
    """Forecast a segment.

    Args:
        segment: The past values.
        intervals: Horizon in grid intervals, at least 1.
        damped: Whether the trend is damped.
        rng: Source of the paths.
        parameters: Of an earlier fit of the same model; None estimates them.

    Returns:
        The model's forecast, or that of a robust drift where the model cannot be fitted.
    """
    steps = -(-intervals // segment.intervals)
    if segment.constant:
        return _in_unit(segment, CONSTANT, np.zeros((PATHS, steps)))
    model = ETS_DAMPED if damped else ETS
    try:
        paths, parameters = _ets_paths(segment.endog, steps, damped=damped, rng=rng, parameters=parameters)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        return _in_unit(segment, DRIFT, _drift_paths(segment.endog, steps, rng), failed=True)
    if not np.isfinite(paths).all():
        return _in_unit(segment, DRIFT, _drift_paths(segment.endog, steps, rng), failed=True)
    return _in_unit(segment, model, paths, parameters=parameters)


def _ets_paths(
    endog: Floats, steps: int, *, damped: bool, rng: np.random.Generator, parameters: Floats | None
) -> tuple[Floats, Floats]:
    # A plain series on a RangeIndex: prediction from bare arrays is broken in statsmodels.
    series = pd.Series(endog, index=pd.RangeIndex(len(endog)))
    slope, level = robust_line(endog)
    # Convergence is judged by the paths, which must be finite. Warning filters belong to the whole process; so numpy is
    # silenced for this thread only, and statsmodels by its own argument.
    with np.errstate(all="ignore"):
        model = ETSModel(
            series,
            error="add",
            trend="add",
            damped_trend=damped,
            initialization_method="known",
            initial_level=level - slope,  # the state before the first observation
            initial_trend=slope,
            bounds={"smoothing_trend": (_SMALLEST_WEIGHT, _TREND_WEIGHT / len(endog))},
        )
        if parameters is None:
            result = model.fit(disp=False, maxiter=_MAX_EVALUATIONS, warn_convergence=False)
        else:
            result = model.smooth(parameters)
        residuals = np.asarray(result.resid, np.float64)[2:]
        errors = rng.choice(residuals - residuals.mean(), size=(steps, PATHS))
        simulated = result.simulate(steps, anchor="end", repetitions=PATHS, random_errors=errors)
    paths = np.asarray(simulated, np.float64).T
    phi = float(result.params[2]) if damped else 1.0
    # The error of a line turns about the middle of the observations.
    reach = len(endog) / 2 + np.cumsum(phi ** np.arange(steps))
    return paths + rng.normal(0, _slope_error(endog), (PATHS, 1)) * reach, np.asarray(result.params, np.float64)


def _slope_error(endog: Floats) -> float:
    """Standard error of a line's slope through the observations, per step."""
    n = len(endog)
    slope, level = robust_line(endog)
    rest = endog - level - slope * np.arange(n)
    # Neighbouring residuals resemble each other, so n observations say less than n independent ones.
    alike = float(np.clip(np.corrcoef(rest[1:], rest[:-1])[0, 1], 0, 0.95)) if np.ptp(rest) > 0 else 0.0
    return float(np.std(rest) * np.sqrt(12.0 / n**3 * (1 + alike) / (1 - alike)))


def _drift_paths(endog: Floats, steps: int, rng: np.random.Generator) -> Floats:
    slope, level = robust_line(endog)
    rest = endog - level - slope * np.arange(len(endog))
    ahead = np.arange(len(endog), len(endog) + steps)
    slopes = slope + rng.normal(0, _slope_error(endog), (PATHS, 1))
    line = level + slope * (len(endog) - 1) + slopes * (ahead - len(endog) + 1)
    noisy: Floats = line + rng.choice(rest, size=(PATHS, steps))
    return noisy


def _in_unit(
    segment: CleanSegment, model: str, paths: Floats, *, parameters: Floats | None = None, failed: bool = False
) -> Forecast:
    paths = segment.restore(paths)
    lower, upper = np.quantile(paths, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Forecast(model, paths.mean(axis=0), lower, upper, paths, segment.intervals, parameters, failed)
