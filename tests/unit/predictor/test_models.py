"""Forecasts of single series: plausible on drifts, and safe on everything that real series do."""

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting import models
from kernelcast.predictor.forecasting.clean import prepare, winsorise
from kernelcast.predictor.forecasting.models import CONSTANT, DRIFT, ETS, Forecast, forecast
from kernelcast.wire.errors import WindowError


def predict(window: Floats, *, intervals: int = 60, damped: bool = False, span: int | None = None) -> Forecast:
    segment = prepare(window, span=span or len(window))
    return forecast(segment, intervals=intervals, damped=damped, rng=np.random.default_rng(1))


def drift(n: int = 120, *, slope: float = 0.15, noise: float = 0.5) -> Floats:
    rng = np.random.default_rng(2)
    return np.asarray(70.0 + slope * np.arange(n) + rng.normal(0, noise, n), np.float64)


def test_a_drift_is_carried_on_within_its_interval() -> None:
    found = predict(drift())
    assert found.model == ETS
    assert found.mean[-1] == pytest.approx(70 + 0.15 * 179, abs=1.5)
    assert found.lower[-1] < 70 + 0.15 * 179 < found.upper[-1]
    assert found.paths.shape == (models.PATHS, 60)


def test_a_damped_trend_goes_less_far() -> None:
    assert predict(drift(), intervals=240, damped=True).mean[-1] < predict(drift(), intervals=240).mean[-1]


@pytest.mark.slow
def test_intervals_hold_about_what_they_promise() -> None:
    rng = np.random.default_rng(11)
    held = []
    for _ in range(100):
        truth = 70.0 + 0.1 * np.arange(140) + rng.normal(0, 0.5, 140)
        found = predict(truth[:120], intervals=20)
        held.append(float(found.lower[-1]) <= truth[139] <= float(found.upper[-1]))
    assert np.mean(held) >= 0.9


def test_gaps_do_not_reach_the_forecast() -> None:
    window = drift()
    window[np.random.default_rng(3).random(120) < 0.3] = np.nan
    found = predict(window)
    assert np.isfinite(found.paths).all()
    assert found.mean[-1] == pytest.approx(70 + 0.15 * 179, abs=3.0)


def test_one_spike_of_a_million_does_not_spoil_the_intervals() -> None:
    window = drift()
    window[60] = 1e6
    found = predict(window)
    assert found.upper[-1] - found.lower[-1] < 20
    assert winsorise(window).max() < 200


def test_a_constant_is_forecast_as_itself() -> None:
    found = predict(np.full(60, 70.0))
    assert found.model == CONSTANT
    assert set(found.mean.tolist()) == set(found.upper.tolist()) == {70.0}


def test_after_a_step_only_the_new_level_counts() -> None:
    window = np.concatenate([np.full(100, 40.0), 80.0 + np.random.default_rng(5).normal(0, 0.3, 60)])
    found = predict(window, span=60, damped=True)
    assert found.mean[-1] == pytest.approx(80.0, abs=1.5)
    assert found.upper[-1] - found.lower[-1] < 8


@pytest.mark.parametrize("scale", [1e-9, 1e-5, 1e6, 1e12])
def test_the_unit_of_a_series_does_not_matter(scale: float) -> None:
    found = predict(drift() * scale)
    assert found.model == ETS
    assert found.mean[-1] == pytest.approx((70 + 0.15 * 179) * scale, rel=0.03)


def test_parameters_of_an_earlier_fit_are_used_again() -> None:
    first = predict(drift())
    again = forecast(
        prepare(drift(), span=120),
        intervals=60,
        damped=False,
        rng=np.random.default_rng(1),
        parameters=first.parameters,
    )
    np.testing.assert_array_equal(again.parameters, first.parameters)
    assert again.mean[-1] == pytest.approx(first.mean[-1], abs=0.5)


def test_a_model_that_cannot_be_fitted_falls_back_to_a_robust_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("singular")

    monkeypatch.setattr(models, "_ets_paths", refuse)
    found = predict(drift())
    assert (found.model, found.failed) == (DRIFT, True)
    assert found.mean[-1] == pytest.approx(70 + 0.15 * 179, abs=1.5)
    assert found.lower[-1] < found.upper[-1]


def test_too_few_observations_and_mostly_gaps_are_refused() -> None:
    with pytest.raises(WindowError, match="needs 12"):
        prepare(drift(8), span=8)
    window = drift()
    window[np.arange(120) % 3 != 0] = np.nan
    with pytest.raises(WindowError, match="missing"):
        prepare(window, span=120)
