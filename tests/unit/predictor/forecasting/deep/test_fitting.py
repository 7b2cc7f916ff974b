"""Models fitted by statsmodels and applied as linear recursions, with statsmodels' own forecasts as the oracle."""

from collections.abc import Callable

import numpy as np
import pytest
from statsmodels.tsa.exponential_smoothing.ets import ETSModel
from statsmodels.tsa.statespace.structural import UnobservedComponents

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.deep.fitting import NotConvergedError, Parts, components, damped_trend, fit
from kernelcast.predictor.forecasting.deep.messages import MODELS, FitAnswer, FitOutcome, FitRequest
from kernelcast.predictor.forecasting.deep.models import LinearModel

WINDOW, LEADS = 144, 24
ALL_FITTED = dict.fromkeys(MODELS, FitOutcome.FITTED)


pytestmark = pytest.mark.filterwarnings("ignore")


def wandering(length: int = WINDOW, *, seed: int = 3) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(70 + np.cumsum(rng.normal(0.02, 0.3, length)) + rng.normal(0, 0.5, length))


def request(values: Floats, season: int = 0) -> FitRequest:
    return FitRequest(values, last=len(values) - 1, season=season)


def from_the_origin(model: LinearModel, last: int) -> Floats:
    return np.array([model.forecasts(model.state[None], last, lead)[0] for lead in range(1, LEADS + 1)])


def standard(values: Floats) -> Floats:
    return np.asarray((values - np.median(values)) / values.std())


def model_of(parts: Parts, name: str = "x") -> LinearModel:
    return LinearModel(name, *parts, profile=np.zeros(0), centre=0.0, scale=1.0)


def test_the_forecast_of_exponential_smoothing_is_that_of_statsmodels() -> None:
    values = standard(wandering())
    fitted = ETSModel(values, error="add", trend="add", damped_trend=True, initialization_method="heuristic").fit(
        disp=False, maxiter=200
    )
    ours = from_the_origin(model_of(damped_trend(values)), WINDOW - 1)
    np.testing.assert_allclose(ours, fitted.forecast(LEADS), rtol=1e-6, atol=1e-9)


def test_later_values_are_smoothed_as_statsmodels_smooths_them() -> None:
    values = standard(wandering(WINDOW + 40))
    options = {"error": "add", "trend": "add", "damped_trend": True, "initialization_method": "heuristic"}
    fitted = ETSModel(values[:WINDOW], **options).fit(disp=False, maxiter=200)
    start = {
        "initialization_method": "known",
        "initial_level": fitted.initial_level,
        "initial_trend": fitted.initial_trend,
    }
    whole = ETSModel(values, **(options | start)).smooth(fitted.params)
    model = model_of(damped_trend(values[:WINDOW]))
    states = model.states(values[WINDOW:], WINDOW)
    np.testing.assert_allclose(states[:, 0], np.asarray(whole.level)[WINDOW:], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(states[:, 1], np.asarray(whole.slope)[WINDOW:], rtol=1e-6, atol=1e-9)


def test_unobserved_components_with_gaps_are_those_of_statsmodels() -> None:
    values = standard(wandering(WINDOW + 40))
    values[30:36] = np.nan
    model = model_of(components(values[:WINDOW]))
    fitted = UnobservedComponents(values[:WINDOW], level="llevel", autoregressive=1).fit(
        disp=False, maxiter=200, method="lbfgs", cov_type="none"
    )
    np.testing.assert_allclose(from_the_origin(model, WINDOW - 1), fitted.forecast(LEADS), rtol=1e-6, atol=1e-9)
    # The gain is that of the last value; Kalman's filter has settled by then.
    states = model.states(values[WINDOW:], WINDOW)
    appended = fitted.append(values[WINDOW:]).filter_results.filtered_state[:, WINDOW:].T
    np.testing.assert_allclose(states, appended, atol=1e-3)


@pytest.mark.slow
def test_a_fit_does_not_depend_on_the_unit() -> None:
    values = wandering()
    plain = fit(request(values)).models
    huge = fit(request(1e12 * values)).models
    for one, other in zip(plain, huge, strict=True):
        np.testing.assert_allclose(
            1e12 * from_the_origin(one, WINDOW - 1), from_the_origin(other, WINDOW - 1), rtol=1e-6
        )


@pytest.mark.slow
def test_a_season_is_taken_out_and_added_to_the_forecast_of_its_phase() -> None:
    hours = np.arange(240 + LEADS)
    values = 50 + 8 * np.sin(2 * np.pi * hours / 24) + np.random.default_rng(1).normal(0, 0.3, len(hours))
    answer = fit(request(values[:240], season=24))
    assert answer.outcomes == ALL_FITTED
    for model in answer.models:
        assert np.abs(from_the_origin(model, 239) - values[240:]).mean() < 1.0


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_gaps_are_no_reason_not_to_fit(missing: float) -> None:
    values = wandering()
    values[np.random.default_rng(5).random(WINDOW) < missing] = np.nan
    answer = fit(request(values))
    assert answer.outcomes == ALL_FITTED
    assert all(np.abs(from_the_origin(model, WINDOW - 1) - 70).max() < 30 for model in answer.models)


@pytest.mark.parametrize(
    "values",
    [
        np.full(WINDOW, 70.0),
        np.zeros(WINDOW),
        np.full(WINDOW, np.nan),
        wandering(23),
        np.where(np.arange(WINDOW) < 20, wandering(), np.nan),
    ],
    ids=["constant", "zero", "empty", "short", "mostly a gap"],
)
def test_a_window_without_information_is_not_fitted(values: Floats) -> None:
    answer = fit(request(values))
    assert answer.models == ()
    assert set(answer.outcomes.values()) == {FitOutcome.NOT_FITTABLE}


def not_converging(_values: Floats) -> Parts:
    raise NotConvergedError


def failing(_values: Floats) -> Parts:
    raise np.linalg.LinAlgError("singular matrix")


def infinite(values: Floats) -> Parts:
    return damped_trend(values)._replace(state=np.array([np.inf, 0.0]))


@pytest.mark.parametrize(
    ("method", "outcome"),
    [(not_converging, FitOutcome.NOT_CONVERGED), (failing, FitOutcome.FAILED), (infinite, FitOutcome.FAILED)],
)
def test_a_fit_that_fails_is_counted_and_spares_the_others(
    method: Callable[[Floats], Parts], outcome: FitOutcome
) -> None:
    answer = fit(request(wandering()), {"bad": method, "ets": damped_trend})
    assert answer.outcomes == {"bad": outcome, "ets": FitOutcome.FITTED}
    assert [model.name for model in answer.models] == ["ets"]


def test_an_optimiser_that_stops_early_has_not_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelcast.predictor.forecasting.deep.fitting.MOST_ITERATIONS", 1)
    assert set(fit(request(wandering())).outcomes.values()) == {FitOutcome.NOT_CONVERGED}


@pytest.mark.slow
def test_requests_and_answers_survive_the_way() -> None:
    values = wandering()
    values[3] = np.nan
    sent = FitRequest.decode(FitRequest(values, 511, 24).encode())
    np.testing.assert_array_equal(sent.values, values)
    assert (sent.last, sent.season) == (511, 24)
    answer = fit(request(values))
    back = FitAnswer.decode(answer.encode())
    assert (back.outcomes, back.seconds) == (answer.outcomes, answer.seconds)
    for one, other in zip(answer.models, back.models, strict=True):
        np.testing.assert_array_equal(from_the_origin(one, 5), from_the_origin(other, 5))


@pytest.mark.parametrize(
    "message",
    [
        b"\xff",
        b"[]",
        b"{}",
        b'{"models": 7, "outcomes": {}, "seconds": 0}',
        b'{"models": [{"name": "ets"}], "outcomes": {}, "seconds": 0}',
        b'{"models": [], "outcomes": [], "seconds": 0}',
        b'{"models": [], "outcomes": {"ets": "diverged"}, "seconds": 0}',
        b'{"models": [], "outcomes": {}, "seconds": null}',
    ],
)
def test_an_answer_of_another_version_is_a_value_error(message: bytes) -> None:
    # An upgrade replaces the files under a running predictor; its next worker runs the new ones.
    with pytest.raises(ValueError, match="no answer of this version"):
        FitAnswer.decode(message)
