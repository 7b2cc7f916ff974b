"""Forecasts of some leads from the end of a panel: plausible on drifts, and safe on what real series do."""

import tracemalloc

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.path import forecast_leads, forecast_path
from kernelcast.predictor.forecasting.spikes import without_spikes

LEVELS = (0.025, 0.975)
LENGTH, SLOPE = 240, 0.15


def panel(values: Floats) -> Panel:
    return Panel(np.atleast_2d(values), 0, 1, np.zeros(len(np.atleast_2d(values)), np.int64))


def drift(*, noise: float = 0.5) -> Floats:
    rng = np.random.default_rng(2)
    return np.asarray(70.0 + SLOPE * np.arange(LENGTH) + rng.normal(0, noise, LENGTH), np.float64)


def ahead(values: Floats, lead: int) -> tuple[float, float, float]:
    center, quantiles, _ = forecast_leads(panel(values), (lead,), LEVELS, ())
    return float(center[0, 0]), float(quantiles[0, 0, 0]), float(quantiles[1, 0, 0])


def test_leads_are_those_of_the_forecast_at_the_last_interval() -> None:
    values = np.stack([drift(), np.random.default_rng(4).normal(10, 1, LENGTH)])
    center, quantiles, _ = forecast_leads(panel(values), (1, 7, 40), LEVELS, (24,))
    for place, lead in enumerate((1, 7, 40)):
        whole = forecast(panel(values), lead, LEVELS, (24,))
        np.testing.assert_allclose(center[:, place], whole.center[:, -1])
        np.testing.assert_allclose(quantiles[:, :, place], whole.quantiles[:, :, -1])


def test_a_drift_is_carried_on_within_its_interval() -> None:
    mean, lower, upper = ahead(drift(), 20)
    come = 70 + SLOPE * (LENGTH + 19)
    assert mean == pytest.approx(come, abs=2.5)
    assert lower < come < upper


def test_the_mean_of_a_steady_leak_lies_in_its_own_band() -> None:
    values = 20_000.0 + 12.0 * np.arange(576) + np.random.default_rng(1).normal(0, 3.0, 576)
    leads = (1, 6, 24, 72)
    mean, quantiles, _ = forecast_leads(panel(values), leads, LEVELS, (288,))
    assert (quantiles[0] <= mean).all()
    assert (mean <= quantiles[1]).all()
    path, band = forecast_path(panel(values), 72, LEVELS, (288,))
    assert ((band[0] <= path) & (path <= band[1])).all()
    np.testing.assert_allclose(path[0, -1], 20_000 + 12.0 * (575 + 72), atol=9)


@pytest.mark.parametrize("lead", [19, 20, 25, 39, 40, 100])
def test_a_history_shorter_than_the_lead_has_a_forecast_without_bounds(lead: int) -> None:
    median, lower, upper = ahead(np.arange(20.0) % 3 + 50, lead)
    assert 50 <= median <= 52
    assert np.isnan([lower, upper]).all()


def test_gaps_do_not_reach_the_forecast() -> None:
    values = drift()
    values[np.random.default_rng(3).random(LENGTH) < 0.3] = np.nan
    assert ahead(values, 20)[0] == pytest.approx(70 + SLOPE * (LENGTH + 19), abs=3.0)


def test_one_spike_of_a_million_does_not_spoil_the_intervals() -> None:
    values = drift()
    values[60] = 1e6
    _, lower, upper = ahead(without_spikes(values[None]), 20)
    assert upper - lower < 20


def test_series_that_only_rise_take_little_memory() -> None:
    values = np.cumsum(np.random.default_rng(2).random((100, 576)), axis=1)
    tracemalloc.start()
    without_spikes(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


def test_a_step_and_a_rare_change_are_no_spikes() -> None:
    values = np.r_[np.full(50, 40.0), np.full(50, 80.0), np.full(20, 81.0)][None]
    np.testing.assert_array_equal(without_spikes(values), values)


def test_a_value_far_outside_of_all_earlier_ones_counts_from_its_second_interval_on() -> None:
    values = np.r_[drift(), 1e6, 1e6, 1e6][None]
    found = without_spikes(values)
    assert found[0, LENGTH] < 200
    np.testing.assert_array_equal(found[0, LENGTH + 1 :], 1e6)
    np.testing.assert_array_equal(found[0, :LENGTH], values[0, :LENGTH])


def test_a_step_to_a_level_that_was_there_before_is_no_spike() -> None:
    rng = np.random.default_rng(5)
    values = (np.repeat([20.0, 90.0, 20.0, 90.0, 20.0], 40) + rng.normal(0, 0.2, 200))[None]
    changed = np.flatnonzero(without_spikes(values)[0] != values[0])
    np.testing.assert_array_equal(changed, [40])


def test_a_constant_is_forecast_as_itself() -> None:
    assert ahead(np.full(60, 70.0), 5) == (70.0, 70.0, 70.0)


@pytest.mark.parametrize("scale", [1e-9, 1e-5, 1e6, 1e12])
def test_the_unit_of_a_series_does_not_matter(scale: float) -> None:
    assert ahead(drift() * scale, 20) == pytest.approx(tuple(value * scale for value in ahead(drift(), 20)), rel=1e-6)


def test_a_series_too_short_for_its_errors_has_no_interval() -> None:
    assert np.isnan(ahead(drift()[:30], 20)[1:]).all()
