"""Forecasts of many series at once, with statsmodels and plain loops as oracles."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.tsa.holtwinters import Holt

from kernelcast.predictor.forecasting import combination, methods
from kernelcast.predictor.forecasting.combination import forecast, weighted_median
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.rolling import (
    damped_trend,
    exponential_mean,
    forward_filled,
    lagged,
    recent_mean,
    rolling_median,
    seasonal_mean,
)

MINUTE_NS = 60 * 10**9


def panel(values: Any, season: int = 0) -> Panel:
    rows = np.atleast_2d(np.asarray(values, float))
    return Panel(rows, 0, MINUTE_NS, np.full(len(rows), season))


def noise(rows: int, length: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=(rows, length))


@given(st.floats(0.05, 0.95), st.floats(0.01, 0.5), st.floats(0.8, 0.995), st.integers(0, 10_000))
def test_level_and_slope_are_those_of_statsmodels(alpha: float, beta: float, phi: float, seed: int) -> None:
    values = 50 + np.cumsum(noise(1, 40, seed), axis=1)
    model = Holt(pd.Series(values[0]), damped_trend=True, initialization_method="known", **_start(values))
    fit = model.fit(smoothing_level=alpha, smoothing_trend=beta, damping_trend=phi, optimized=False)

    level, slope = damped_trend(values, alpha, beta, phi)

    np.testing.assert_allclose(level[0], fit.level, rtol=1e-8)
    np.testing.assert_allclose(slope[0], fit.trend, rtol=1e-6, atol=1e-9)


def _start(values: Any) -> dict[str, float]:
    return {"initial_level": float(values[0, 0]), "initial_trend": 0.0}


@given(
    st.integers(0, 10_000), st.lists(st.integers(1, 40), min_size=1, max_size=4), st.sampled_from([(), (6,), (6, 15)])
)
def test_methods_that_share_their_work_between_leads_forecast_as_each_lead_alone(
    seed: int, leads: list[int], seasons: tuple[int, ...]
) -> None:
    values = 20 + np.cumsum(noise(3, 50, seed), axis=1)
    (shared,) = methods.for_leads([methods.built_in], values)
    for lead in leads:
        found, alone = shared(values, lead, seasons), methods.built_in(values, lead, seasons)
        assert list(found) == list(alone)
        for name in alone:
            np.testing.assert_array_equal(found[name], alone[name])


def test_exponential_mean_is_its_recursion() -> None:
    values, level = noise(1, 30), 0.0
    expected = []
    for index, value in enumerate(values[0]):
        level = value if index == 0 else 0.3 * value + 0.7 * level
        expected.append(level)

    np.testing.assert_allclose(exponential_mean(values, 0.3)[0], expected)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3))
def test_a_seasonal_mean_reads_the_same_phase_of_earlier_seasons(season: int, lead: int, cycles: int) -> None:
    values = noise(2, 50)
    found = seasonal_mean(values, season, lead, cycles)

    for origin in range(50):
        phases = [origin + lead - season * cycle for cycle in range(1, 60)]
        past = [values[1, at] for at in phases if 0 <= at <= origin][:cycles]
        np.testing.assert_allclose(found[1, origin], np.mean(past) if past else np.nan)


def test_a_rolling_median_in_groups_of_rows_is_the_one_in_a_single_group(monkeypatch: pytest.MonkeyPatch) -> None:
    values = noise(5, 40)
    whole = rolling_median(values, 7)
    monkeypatch.setattr("kernelcast.predictor.forecasting.rolling.BYTES_AT_ONCE", 1)

    np.testing.assert_array_equal(rolling_median(values, 7), whole)
    np.testing.assert_allclose(whole[3, 20], np.median(values[3, 14:21]))


@given(st.integers(1, 40), st.integers(1, 9))
def test_a_rolling_median_that_is_computed_seldom_is_held_until_the_next_one(length: int, every: int) -> None:
    values = noise(2, 60)
    dense, found = rolling_median(values, length), rolling_median(values, length, every)

    np.testing.assert_array_equal(found, dense[:, np.arange(60) // every * every])


def test_gaps_are_filled_with_what_came_before() -> None:
    filled = forward_filled(np.array([[np.nan, 1, np.nan, 3], [np.nan] * 4]))

    assert filled.tolist() == [[1, 1, 1, 3], [0, 0, 0, 0]]
    assert np.isnan(lagged(filled, 9)).all()


def test_a_recent_mean_leaves_out_what_is_not_valid() -> None:
    found = recent_mean(np.array([5.0, 100.0, 5.0]), np.array([True, False, True]), 10.0)

    np.testing.assert_allclose(found, 5.0)
    assert np.isnan(recent_mean(np.array([1.0]), np.array([False]), 10.0)).all()


@given(st.lists(st.tuples(st.floats(-100, 100), st.integers(1, 5)), min_size=1, max_size=7))
def test_a_weighted_median_is_the_median_of_repeated_values(pairs: list[tuple[float, int]]) -> None:
    values, weights = (np.array(column, float)[:, None, None] for column in zip(*pairs, strict=True))
    repeated = np.sort(np.repeat(values.ravel(), weights.ravel().astype(int)))

    assert weighted_median(values, weights)[0, 0] == repeated[(len(repeated) - 1) // 2]


@pytest.mark.parametrize("lead", [1, 5])
def test_no_forecast_knows_the_future(lead: int) -> None:
    values = np.cumsum(noise(3, 300), axis=1)
    changed = values.copy()
    changed[:, 200:] += 1000.0

    before, after = (forecast(panel(each), lead, [0.1, 0.9], [24]) for each in (values, changed))

    np.testing.assert_array_equal(before.center[:, :200], after.center[:, :200])
    np.testing.assert_array_equal(before.quantiles[:, :, :200], after.quantiles[:, :, :200])


def test_a_season_is_used_where_it_helps() -> None:
    hours = np.arange(24 * 20)
    values = 10 * np.sin(hours * np.pi / 12) + 0.1 * noise(1, len(hours))
    found = forecast(panel(values), 12, [0.5], [24])

    errors = np.abs(values[:, 300:] - lagged(found.center, 12)[:, 300:])
    assert errors.mean() < 0.3
    assert np.abs(values[:, 300:] - lagged(values, 12)[:, 300:]).mean() > 5


def test_a_random_walk_is_forecast_by_its_last_value() -> None:
    values = np.cumsum(noise(20, 600), axis=1)
    found = forecast(panel(values), 6, [0.5], [24])
    ratio = (
        np.abs(values - lagged(found.center, 6))[:, 300:].mean() / np.abs(values - lagged(values, 6))[:, 300:].mean()
    )

    assert ratio < 1.05


def test_a_level_that_returns_after_hours_is_forecast_by_the_median_of_a_day() -> None:
    """Load of a queue: bursts of two hours, a fifth of the time; six hours later most of them are over."""
    rng = np.random.default_rng(8)
    bursts = np.repeat(rng.random((10, 60)) < 0.2, 24, axis=1)
    values = 20 + 60 * bursts + rng.normal(0, 1, bursts.shape)
    found = forecast(panel(values), 72, [0.5], [])
    error = np.abs(values - lagged(found.center, 72))[:, 600:].mean()

    assert error < 1.3 * np.abs(values - 20)[:, 600:].mean()


def test_a_rise_after_a_day_without_one_is_soon_forecast_better_than_by_the_last_value() -> None:
    """A GPU of 58 °C that begins to warm by 0.3 °C an interval; forecasts for 12 intervals later, in the first hour."""
    since = np.arange(348) - 288
    values = 58 + 0.3 * np.maximum(since, 0) + 0.4 * noise(30, len(since))
    found = forecast(panel(values), 12, [0.5], [])
    begun = slice(288 + 15 + 12, None)
    ours, last = (np.abs(values - lagged(each, 12))[:, begun].mean() for each in (found.center, values))

    assert ours < 0.93 * last


@pytest.mark.parametrize("lead", [1, 6])
def test_intervals_cover_what_they_say(lead: int) -> None:
    found = forecast(panel(noise(40, 800)), lead, [0.025, 0.25, 0.75, 0.975], [])
    truth = noise(40, 800)[:, 400:]
    low, lower, upper, high = (lagged(each, lead)[:, 400:] for each in found.quantiles)

    assert 0.93 < np.mean((truth >= low) & (truth <= high)) < 0.97
    assert 0.46 < np.mean((truth >= lower) & (truth <= upper)) < 0.54


def test_rows_with_gaps_or_few_values_say_so() -> None:
    values = noise(3, 60)
    values[0, 5:] = np.nan
    values[1] = 7.0
    values[2, ::2] = np.nan
    found = forecast(panel(values), 1, [0.5], [])

    assert np.isnan(found.quantiles[0, 0]).all()  # five values are too few for an interval
    assert (found.center[1] == 7.0).all()
    assert found.quantiles[0, 1, -1] == 7.0
    assert not np.isnan(found.quantiles[0, 2, -1])


def test_a_plug_in_that_is_better_is_used_and_one_that_is_worse_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    values = noise(4, 400)

    def oracle(shown: Any, lead: int, _seasons: Any) -> dict[str, Any]:
        return {"oracle": np.concatenate([values[:, lead:], shown[:, -lead:]], axis=1), "wild": shown * 50}

    monkeypatch.setattr(combination, "installed", lambda: [methods.built_in, oracle])
    found = forecast(panel(values), 3, [0.5], [])

    np.testing.assert_allclose(found.center[:, 100:-3], values[:, 103:])


def test_packages_are_searched_for_methods_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[str] = []

    def entry_points(*, group: str) -> list[Any]:
        searches.append(group)
        return []

    monkeypatch.setattr(methods, "entry_points", entry_points)
    methods.installed.cache_clear()
    try:
        assert methods.installed() == methods.installed() == (methods.built_in,)
    finally:
        methods.installed.cache_clear()
    assert searches == [methods.ENTRY_POINTS]


@pytest.mark.parametrize("weeks", [5, 8])
def test_errors_without_the_week_do_not_widen_the_bounds_of_forecasts_that_know_it(weeks: int) -> None:
    """The week counts after two of them: errors of the time before say nothing about later forecasts."""
    hours = np.arange(168 * weeks)
    weekend = np.where(hours % 168 >= 120, 8.0, 0.0)
    values = 60 + 3 * np.sin(hours * np.pi / 12) + weekend + 0.2 * noise(6, len(hours))
    found = forecast(panel(values), 24, [0.025, 0.975], [24, 168])

    width = found.quantiles[1, :, -1] - found.quantiles[0, :, -1]
    assert np.median(width) < 3.0
