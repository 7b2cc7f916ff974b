"""Fits at their origins, applied causally, and used only where they have been better than the fast methods."""

from collections.abc import Sequence

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.deep.messages import FitAnswer, FitRequest
from kernelcast.predictor.forecasting.deep.models import LinearModel
from kernelcast.predictor.forecasting.deep.panel import FittedPanel, winsorised
from kernelcast.predictor.forecasting.deep.recorded import fitted_panel
from kernelcast.predictor.forecasting.deep.schedule import BLOCKS, OLDEST_USED, schedule_of
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.path import forecast_leads, forecast_path
from kernelcast.predictor.forecasting.selection import selected

LENGTH = 400
LEVELS = (0.025, 0.975)
PERIOD = 10


def constant(level: float, name: str = "ets") -> LinearModel:
    """A model that always forecasts one level."""
    one = np.ones((1, 1))
    return LinearModel(name, one, np.zeros(1), np.ones(1), np.array([level]), np.zeros(0), 0.0, 1.0)


def wave() -> LinearModel:
    """A model that knows the season of ten intervals that the fast methods are not given."""
    profile = np.sin(2 * np.pi * np.arange(PERIOD) / PERIOD)
    return LinearModel("ets", np.eye(1), np.full(1, 0.1), np.ones(1), np.zeros(1), profile, 50.0, 5.0)


def panel(values: Floats) -> Panel:
    return Panel(np.atleast_2d(values), 0, 1, np.zeros(len(np.atleast_2d(values)), np.int64))


def waves(rows: int = 1) -> Floats:
    rng = np.random.default_rng(4)
    return np.asarray(
        50 + 5 * np.sin(2 * np.pi * np.arange(LENGTH) / PERIOD) + rng.normal(0, 0.3, (rows, LENGTH)), np.float64
    )


def answering(model: LinearModel, seen: list[FitRequest] | None = None) -> object:
    def fit_all(requests: Sequence[FitRequest]) -> list[FitAnswer]:
        if seen is not None:
            seen.extend(requests)
        return [FitAnswer((model,)) for _ in requests]

    return fit_all


def test_origins_follow_from_interval_numbers_alone() -> None:
    late = BLOCKS.origins(1000, 2000)
    assert all(origin % BLOCKS.every == 0 and origin >= 1000 + BLOCKS.least - 1 for origin in late)
    assert set(BLOCKS.origins(1000, 1500)) == {origin for origin in late if origin <= 1500}
    assert not BLOCKS.origins(1000, 1000 + BLOCKS.least - 2)


@pytest.mark.parametrize(("seasons", "season"), [((24, 168), 24), ((288, 2016), 0), ((), 0), ((48,), 48)])
def test_a_season_is_fitted_where_a_window_holds_four_of_it(seasons: Sequence[int], season: int) -> None:
    assert schedule_of(seasons).season == season


def test_a_fit_sees_its_window_and_is_used_from_the_next_interval_until_the_next_fit() -> None:
    fits = {96: [constant(1.0)], 144: [constant(2.0)]}
    found = FittedPanel(waves(), LENGTH - 1, [fits], BLOCKS).forecasts(3, slice(0, 1))["ets"][0]
    end = 144 + OLDEST_USED * BLOCKS.every
    assert np.isnan(found[:97]).all()
    assert np.isnan(found[end:]).all()
    np.testing.assert_array_equal(found[97:145], 1.0)
    np.testing.assert_array_equal(found[145:end], 2.0)


def test_windows_end_at_their_origin_and_have_the_gaps_of_the_series() -> None:
    seen: list[FitRequest] = []
    values = waves()
    values[0, 90:94] = np.nan
    fitted_panel(values, BLOCKS, answering(wave(), seen))  # type: ignore[arg-type]
    assert [each.last for each in seen] == list(range(48, LENGTH, 48))
    for each in seen:
        begin = max(0, each.last + 1 - BLOCKS.window)
        assert len(each.values) == each.last + 1 - begin
        np.testing.assert_array_equal(np.isnan(each.values), np.isnan(values[0, begin : each.last + 1]))


def test_forecasts_depend_on_no_later_value() -> None:
    whole = waves()
    cut = whole[:, : LENGTH - 60]
    found = [
        forecast(panel(values), 2, LEVELS, (), fitted_panel(values, BLOCKS, answering(wave())))  # type: ignore[arg-type]
        for values in (whole, cut)
    ]
    np.testing.assert_allclose(found[0].center[:, : LENGTH - 60], found[1].center)
    np.testing.assert_allclose(found[0].quantiles[:, :, : LENGTH - 60], found[1].quantiles)


def test_a_model_that_is_better_is_used_once_that_is_known() -> None:
    values = waves(3)
    fits = {origin: [wave()] for origin in range(48, LENGTH, 48)}
    fitted = FittedPanel(values, LENGTH - 1, [fits, {}, {48: [constant(-5.0)]}], BLOCKS)
    plain, deep = forecast(panel(values), 3, LEVELS, ()), forecast(panel(values), 3, LEVELS, (), fitted)
    np.testing.assert_array_equal(deep.center[:, :97], plain.center[:, :97])
    np.testing.assert_array_equal(deep.center[1:], plain.center[1:])
    errors = [np.abs(values[0, 203:] - each.center[0, 200:-3]).mean() for each in (plain, deep)]
    assert errors[1] < 0.8 * errors[0]
    widths = [np.diff(each.quantiles[:, 0, -1], axis=0)[0] for each in (plain, deep)]
    assert widths[1] < widths[0]


def test_live_forecasts_are_those_of_the_last_interval_and_say_where_models_are_used() -> None:
    values = waves(2)
    fits = {origin: [wave(), constant(50.0, "components")] for origin in range(48, LENGTH, 48)}
    fitted = FittedPanel(values, LENGTH - 1, [fits, {}], BLOCKS)
    center, quantiles, _ = forecast_leads(panel(values), (1, 3, 20), LEVELS, (), fitted)
    path, bounds = forecast_path(panel(values), 20, LEVELS, (), fitted)
    assert fitted.used.tolist() == [True, False]
    for place, lead in enumerate((1, 3, 20)):
        whole = forecast(panel(values), lead, LEVELS, (), fitted)
        np.testing.assert_allclose(center[:, place], whole.center[:, -1])
        np.testing.assert_allclose(quantiles[:, :, place], whole.quantiles[:, :, -1])
        np.testing.assert_allclose(path[:, lead - 1], whole.center[:, -1])
        np.testing.assert_allclose(bounds[:, :, lead - 1], whole.quantiles[:, :, -1])


def test_two_models_together_are_used_where_their_mean_is_best() -> None:
    values = np.zeros((1, LENGTH))
    values[0, 1::2] = 1.0
    fast, known = np.full_like(values, 3.0), np.ones(values.shape, np.bool_)
    models = {"low": np.full_like(values, -4.0), "high": np.full_like(values, 2.0)}
    center, shares = selected(fast, models, values, known, 1)
    np.testing.assert_allclose(center[0, -1], 1 / 3)
    np.testing.assert_allclose(shares, np.full((1, 3), 1 / 3))


def test_a_model_without_advantage_changes_nothing() -> None:
    values = waves()
    fast = values + 1.0
    known = np.ones(values.shape, np.bool_)
    center, shares = selected(fast, {"same": fast * (1 + 1e-12)}, values, known, 1)
    np.testing.assert_array_equal(center, fast)
    np.testing.assert_array_equal(shares, [[1.0, 0.0]])


def test_a_burst_does_not_reach_the_fit_and_a_step_does() -> None:
    values = np.random.default_rng(1).normal(50, 1, (1, LENGTH))
    values[0, 200:202] = 900.0
    values[0, 300:] += 40.0
    cut = winsorised(values)
    assert cut[0, 200:202].max() < 60
    np.testing.assert_allclose(cut[0, 312:].mean(), 90, atol=1)
    assert np.abs(cut - values)[0, :200].max() < 3


def test_hours_keep_their_phase() -> None:
    schedule, last = schedule_of((24,)), 7200 + 503
    hours = np.arange(504)
    profile = np.sin(2 * np.pi * np.arange(24) / 24)
    model = LinearModel("ets", np.eye(1), np.zeros(1), np.ones(1), np.zeros(1), profile, 0.0, 1.0)
    values = np.sin(2 * np.pi * hours / 24)[None]
    found = FittedPanel(values, last, [{7200 + 240: [model]}], schedule).forecasts(5, slice(0, 1))
    columns = np.flatnonzero(np.isfinite(found["ets"][0, :-5]))
    np.testing.assert_allclose(found["ets"][0, columns], values[0, columns + 5], atol=1e-9)
