"""Forecasts 48 hours ahead of hourly series, scored as the M4 competition does; peers in the same run.

With `--data FOLDER` the series are those of M4's files (`Hourly-train.csv`, `Hourly-test.csv`), else simulated ones of
the same kind. OWA is relative to Naive2 of the same run. Sources: Makridakis, Spiliotis and Assimakopoulos, The M4
competition, 2020: sMAPE, MASE, OWA, MSIS.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from benchmarks.predictor.hourly import DAY, STEPS, WEEK, Hourly, from_folder, simulated
from benchmarks.predictor.options import Options
from statsmodels.tsa.holtwinters import ExponentialSmoothing
from statsmodels.tsa.seasonal import seasonal_decompose

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.deep.pool import pooled_fits
from kernelcast.predictor.forecasting.deep.recorded import FitAll, fitted_panel
from kernelcast.predictor.forecasting.deep.schedule import schedule_of
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.path import forecast_path

HOUR_NS: Final = 3600 * 10**9
LEVELS: Final = (0.025, 0.975)
STATSMODELS_SERIES: Final = 20
"""Holt-Winters by statsmodels takes up to a second for a series, so it forecasts the first ones only."""
ACF_LIMIT: Final = 1.645


def run(options: Options) -> dict[str, Any]:
    """Forecast all series and score them."""
    series = simulated(options.seed) if options.data is None else from_folder(options.data)
    peers: dict[str, Callable[[Hourly], Floats]] = {"Naive2": naive2, "seasonal naive": seasonal_naive}
    point = {name: [method(one) for one in series] for name, method in peers.items()}
    ours, lower, upper = _ours(series)
    point["kernelcast"] = ours
    if options.deep:
        with pooled_fits(1) as fit_all:
            point["kernelcast with fits"], lower, upper = _ours(series, fit_all)
    scores = {name: _point_scores(series, forecasts) for name, forecasts in point.items()}
    few = series[:STATSMODELS_SERIES]
    scores["Holt-Winters (statsmodels, damped, first series)"] = _point_scores(few, [holt_winters(one) for one in few])
    base = scores["Naive2"]
    for each in scores.values():
        each["owa"] = (each["smape"] / base["smape"] + each["mase"] / base["mase"]) / 2
    return {
        "data": "simulated" if options.data is None else "recorded",
        "series": len(series),
        "seed": options.seed,
        "scores": scores,
        "coverage_95": _mean(
            [
                np.mean((one.future >= low) & (one.future <= high))
                for one, low, high in zip(series, lower, upper, strict=True)
            ]
        ),
        "msis": _mean([_msis(one, low, high) for one, low, high in zip(series, lower, upper, strict=True)]),
    }


def table(result: dict[str, Any]) -> str:
    """The scores as text."""
    lines = [f"{result['series']} {result['data']} hourly series, {STEPS} hours ahead (seed {result['seed']})"]
    lines += [f"{'':50}{'sMAPE':>8}{'MASE':>8}{'OWA':>8}"]
    for name, each in result["scores"].items():
        lines.append(f"{name:50}{each['smape']:8.2f}{each['mase']:8.3f}{each['owa']:8.3f}")
    return "\n".join([*lines, f"95 % bounds cover {result['coverage_95']:.3f}, MSIS {result['msis']:.2f}"])


def _ours(series: Sequence[Hourly], fit_all: FitAll | None = None) -> tuple[list[Floats], list[Floats], list[Floats]]:
    """Medians and bounds of each series, with fitted models on request; series of equal length go together."""
    found: dict[int, tuple[Floats, Floats, Floats]] = {}
    for length in {len(one.history) for one in series}:
        rows = [index for index, one in enumerate(series) if len(one.history) == length]
        values = np.stack([series[index].history for index in rows])
        panel = Panel(values, length * HOUR_NS, HOUR_NS, np.full(len(rows), DAY))
        models = None if fit_all is None else fitted_panel(values, schedule_of((DAY, WEEK)), fit_all)
        center, quantiles = forecast_path(panel, STEPS, LEVELS, (DAY, WEEK), models)
        found |= {index: (center[row], quantiles[0, row], quantiles[1, row]) for row, index in enumerate(rows)}
    parts = [found[index] for index in range(len(series))]
    return [part[0] for part in parts], [part[1] for part in parts], [part[2] for part in parts]


def seasonal_naive(one: Hourly) -> Floats:
    """The last day again."""
    return np.resize(one.history[-DAY:], STEPS)


def naive2(one: Hourly) -> Floats:
    """The last value of the seasonally adjusted series, where its daily autocorrelation is significant."""
    values = one.history
    if not _seasonal(values) or values.min() <= 0:
        return np.full(STEPS, values[-1])
    factors = seasonal_decompose(values, model="multiplicative", period=DAY, extrapolate_trend="period").seasonal
    phases = np.resize(factors[-DAY:], STEPS)
    return np.asarray(values[-1] / factors[-1] * phases)


def _seasonal(values: Floats) -> bool:
    centred = values - values.mean()
    total = float(centred @ centred)
    if total == 0:
        return False
    acf = np.array([float(centred[lag:] @ centred[: len(centred) - lag]) / total for lag in range(1, DAY + 1)])
    return bool(abs(acf[-1]) > ACF_LIMIT * np.sqrt((1 + 2 * np.sum(acf[:-1] ** 2)) / len(values)))


def holt_winters(one: Hourly) -> Floats:
    """Additive season, damped trend, by statsmodels."""
    model = ExponentialSmoothing(
        pd.Series(one.history), trend="add", damped_trend=True, seasonal="add", seasonal_periods=DAY
    )
    return np.asarray(model.fit().forecast(STEPS))


def _scale(one: Hourly) -> float:
    return max(float(np.mean(np.abs(one.history[DAY:] - one.history[:-DAY]))), 1e-12)


def _point_scores(series: Sequence[Hourly], forecasts: Sequence[Floats]) -> dict[str, float]:
    smape, mase = [], []
    for one, forecast in zip(series, forecasts, strict=True):
        error = np.abs(one.future - forecast)
        smape.append(200 * np.mean(error / np.maximum(np.abs(one.future) + np.abs(forecast), 1e-12)))
        mase.append(error.mean() / _scale(one))
    return {"smape": _mean(smape), "mase": _mean(mase)}


def _msis(one: Hourly, lower: Floats, upper: Floats) -> float:
    below, above = np.maximum(lower - one.future, 0), np.maximum(one.future - upper, 0)
    return float(np.mean(upper - lower + 40 * (below + above)) / _scale(one))


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values))
