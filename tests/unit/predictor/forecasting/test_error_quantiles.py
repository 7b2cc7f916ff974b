"""Quantiles from past errors: they follow the size of the newest errors, and what a bound of a level holds."""

from typing import Any, Final

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.error_quantiles import LARGEST_RATIO, MIN_ERRORS, PastErrors, recent_sizes
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.rolling import lagged

LEAD: Final = 6
QUIET, RESTLESS, LENGTH = 600, 160, 1000
BOUNDS: Final = (0.025, 0.975)


def restless_for_a_while(rows: int) -> Floats:
    """Noise around 0 whose size is five times as large from interval `QUIET` on, for `RESTLESS` intervals."""
    values = np.random.default_rng(3).standard_normal((rows, LENGTH))
    values[:, QUIET : QUIET + RESTLESS] *= 5.0
    return values


def bounds(values: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bound of each value, made `LEAD` intervals before it."""
    found = forecast(Panel(values, 0, 1, np.zeros(len(values), np.int64)), LEAD, BOUNDS, ())
    lower, upper = (lagged(each, LEAD) for each in found.quantiles)
    return lower, upper


def test_bounds_widen_while_a_series_is_restless_and_narrow_again() -> None:
    values = restless_for_a_while(40)
    lower, upper = bounds(values)
    late = slice(QUIET + RESTLESS // 2, QUIET + RESTLESS)
    held = np.mean((values[:, late] >= lower[:, late]) & (values[:, late] <= upper[:, late]))
    width = np.median(upper - lower, axis=0)

    assert held > 0.8  # bounds of the quiet errors hold 0.3
    assert width[late].mean() > 2.0 * width[QUIET - 100 : QUIET].mean()
    assert width[-50:].mean() < 0.6 * width[late].mean()


def test_one_large_error_counts_no_more_than_the_largest_ratio() -> None:
    errors = np.ones((1, 1500))
    errors[0, 400] = 1e9
    found = recent_sizes(errors)

    np.testing.assert_allclose(found[0, :400], 1.0)
    assert found.max() <= np.sqrt(LARGEST_RATIO)
    assert found[0, -1] < 1.0  # a day later the newest ones are the small ones again


@pytest.mark.parametrize("errors", [np.zeros((1, 50)), np.full((1, 50), np.nan)])
def test_errors_without_size_scale_nothing(errors: Any) -> None:
    np.testing.assert_array_equal(recent_sizes(errors), 1.0)


def test_unscaled_quantiles_are_those_of_the_errors() -> None:
    values = np.random.default_rng(4).standard_normal((1, 400))
    found = PastErrors(np.zeros_like(values), values, np.ones_like(values, bool), 1, scaled=False).quantiles_at(
        399, [0.5, 0.9]
    )

    errors = np.sort(values[0, int(392 * 0.3) : 393])  # computed at interval 392, held until 400
    np.testing.assert_allclose(
        found[:, 0], np.interp(np.array([0.5, 0.9]) * (len(errors) + 1) - 1, range(len(errors)), errors)
    )


def test_quantiles_of_few_errors_are_absent() -> None:
    values = np.random.default_rng(5).standard_normal((1, 40))
    found = PastErrors(values, values, np.ones_like(values, bool), 1).quantiles([0.5])

    assert np.isnan(found[0, 0, :MIN_ERRORS]).all()
    assert not np.isnan(found[0, 0, -1])


def test_a_column_is_that_of_all_quantiles() -> None:
    values = restless_for_a_while(3)
    center = np.roll(values, 4, axis=1)
    past = PastErrors(center, values, np.random.default_rng(6).random(values.shape) < 0.9, LEAD)
    whole = past.quantiles(BOUNDS)
    for place in (40, QUIET + 50, LENGTH - 1):
        np.testing.assert_array_equal(past.quantiles_at(place, BOUNDS), whole[:, :, place])
    assert np.isnan(past.quantiles_at(-1, BOUNDS)).all()
