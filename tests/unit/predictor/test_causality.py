"""Results of an interval rest on it and on earlier ones: a prefix of a series has the same results."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pytest

from kernelcast.predictor.anomalies import AnomalyDetector
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.breaches import BreachOptions, breach_columns
from kernelcast.predictor.backtest.grid import GriddedSeries, SeriesBatch
from kernelcast.predictor.forecasting.combination import forecast, lowest
from kernelcast.predictor.forecasting.deep.messages import FitAnswer, FitRequest
from kernelcast.predictor.forecasting.deep.models import LinearModel
from kernelcast.predictor.forecasting.deep.panel import winsorised
from kernelcast.predictor.forecasting.deep.recorded import fitted_panel
from kernelcast.predictor.forecasting.deep.schedule import BLOCKS
from kernelcast.predictor.forecasting.methods import built_in
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.rolling import (
    begun,
    damped_trend,
    exponential_mean,
    forward_filled,
    lagged,
    recent_mean,
    rolling_median,
    seasonal_mean,
)
from kernelcast.predictor.forecasting.spikes import without_spikes
from kernelcast.predictor.passage.run import replaced_within, trailing_mean
from kernelcast.predictor.passage.series import condense

LENGTH: Final = 240
LEAD: Final = 5
SEASON: Final = 24
LEVELS: Final = (0.025, 0.5, 0.975)

Preparation = Callable[[Floats], Floats]
"""Series of shape (n, t) in; results of shape (..., t) out, of which the last axis is the interval."""


def series(seed: int) -> Floats:
    """Noise, drifts, seasons and steps with single broken readings; some with gaps, one of them at the beginning."""
    rng = np.random.default_rng(seed)
    times = np.arange(LENGTH)
    values = rng.normal(60.0, 1.0, (8, LENGTH))
    values[1] += 0.1 * times
    values[2] += 10 * np.sin(2 * np.pi * times / SEASON)
    values[3] = np.where(rng.random(LENGTH) < 0.05, 81.0, 80.0)
    values[4, LENGTH // 2 :] += 40.0
    values[5] = rng.standard_t(2, LENGTH)
    spikes = rng.random(values.shape) < 0.01
    values[spikes] += rng.choice([-1e4, 300.0, 1e6], int(spikes.sum()))
    values[6, rng.random(LENGTH) < 0.2] = np.nan
    values[7, : rng.integers(20, 120)] = np.nan
    return values


def filled(each: Preparation) -> Preparation:
    """Leave out what stands before the first value of a series: it is filled with that value, and no result."""
    return lambda values: np.where(begun(values), each(forward_filled(values)), np.nan)


def forecasts(part: str, values: Floats) -> Floats:
    panel = Panel(values, 0, 1, np.zeros(len(values), np.int64))
    return np.asarray(getattr(forecast(panel, LEAD, LEVELS, (SEASON,)), part))


def by_method(values: Floats) -> Floats:
    """The forecasts of each method that knows nothing of a season, then of one that does."""
    found = built_in(values, LEAD, (SEASON,))
    seasonal = f"season {SEASON} mean of 1"
    plain = [each for name, each in found.items() if not name.startswith("season")]
    return np.stack([*plain, found.get(seasonal, np.full(values.shape, np.nan))])


def last_values(request: FitRequest) -> FitAnswer:
    """Fit a model whose forecast is the mean of the window it was fitted to."""
    one, mean = np.ones((1, 1)), np.array([np.nanmean(request.values)])
    return FitAnswer((LinearModel("mean", one, np.zeros(1), np.ones(1), mean, np.zeros(0), 0.0, 1.0),))


def fitted(values: Floats) -> Floats:
    models = fitted_panel(values, BLOCKS, lambda requests: [last_values(each) for each in requests])
    return models.forecasts(LEAD, slice(None)).get("mean", np.full(values.shape, np.nan))


def batch(values: Floats) -> SeriesBatch:
    at = np.arange(values.shape[1])
    rows = at.tolist()
    one = [
        GriddedSeries((0, (str(row),)), rows, at, each, 0.0, 300.0, (), np.zeros(len(each), bool))
        for row, each in enumerate(values)
    ]
    return SeriesBatch(one, Panel(values, 0, 1, np.zeros(len(values), np.int64)))


def breaches(values: Floats) -> Floats:
    found = breach_columns(batch(values), BreachOptions(threshold=90.0))
    return np.stack(list(found.values()))


def passed(values: Floats) -> Floats:
    mean = trailing_mean(values, 3)
    replaced = replaced_within((np.nan_to_num(values) > 70).astype(np.int64), 3)
    return np.where(replaced, np.nan, mean)


def anomalies(values: Floats) -> Floats:
    detector = AnomalyDetector(len(values), 300.0, SEASON)
    steps = [detector.step(each) for each in values.T.copy()]
    return np.stack([[step.score for step in steps], [step.onset for step in steps]]).transpose(0, 2, 1)


PREPARATIONS: Final[dict[str, Preparation]] = {
    "without_spikes": without_spikes,
    "forward_filled": filled(lambda values: values),
    "lagged": partial(lagged, lag=LEAD),
    "exponential_mean": filled(partial(exponential_mean, alpha=0.2)),
    "damped_trend": filled(lambda values: np.stack(damped_trend(values, 0.3, 0.1, 0.9))),
    "rolling_median": filled(partial(rolling_median, length=12)),
    "seasonal_mean": filled(partial(seasonal_mean, season=SEASON, lead=LEAD, cycles=3)),
    "recent_mean": filled(lambda values: recent_mean(values, values > 0, 40.0)),
    "winsorised": filled(winsorised),
    "lowest": filled(lowest),
    "every method": filled(by_method),
    "fitted models": fitted,
    "forecast, center": partial(forecasts, "center"),
    "forecast, quantiles": partial(forecasts, "quantiles"),
    "forecast, last value": partial(forecasts, "naive"),
    "anomaly score": anomalies,
    "breach probability": breaches,
    "limit passed": passed,
    "condense": lambda values: np.stack(condense(values, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PREPARATIONS)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_follows_does_not_change_earlier_results(name: str, seed: int) -> None:
    prepare, values = PREPARATIONS[name], series(seed)
    whole = prepare(values)
    broken = np.flatnonzero((np.abs(values) > 200).any(axis=0))
    places = np.random.default_rng(seed).integers(2, LENGTH, 2)
    for end in {*places.tolist(), 30, int(broken[-1]) + 1}:
        prefix = prepare(values[:, :end].copy())
        np.testing.assert_allclose(whole[..., : prefix.shape[-1]], prefix, rtol=1e-6, atol=1e-6)
