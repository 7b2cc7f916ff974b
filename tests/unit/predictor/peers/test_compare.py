"""The vectorised comparison with peers, against plain loops."""

import math

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.predictor.peers.compare import (
    LOW_QUANTILE,
    LOW_QUANTILE_OF_NORMAL,
    log_ratio,
    others_median,
    scatter,
)

GRIDS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 6)),
    elements=st.one_of(st.just(math.nan), st.floats(0.1, 10.0)),
)


@given(GRIDS)
def test_the_median_of_the_others_is_what_a_loop_computes(grid: np.ndarray) -> None:
    found = others_median(grid)
    for row, column in np.ndindex(*grid.shape):
        others = np.delete(grid[row], column)
        others = others[~np.isnan(others)]
        expected = np.median(others) if len(others) else math.nan
        assert found[row, column] == pytest.approx(expected, nan_ok=True)


@given(GRIDS)
def test_the_lower_median_is_one_of_the_values(grid: np.ndarray) -> None:
    found = others_median(grid, lower=True)
    assert np.isin(found[~np.isnan(found)], grid).all()


def test_a_third_dimension_is_compared_unit_by_unit() -> None:
    grid = np.random.default_rng(1).random((3, 5, 2))
    for unit in range(2):
        np.testing.assert_allclose(others_median(grid)[:, :, unit], others_median(grid[:, :, unit]))


def test_two_slow_members_of_four_do_not_widen_the_scatter_beyond_a_fifth() -> None:
    healthy = np.random.default_rng(2).normal(0, 0.01, (16, 8))
    healthy[:, :2] += 0.5
    healthy[:, 2:4] -= 0.2
    assert 0.008 < scatter(healthy) < 0.03


@given(arrays.arrays(np.float64, st.integers(1, 70), elements=st.floats(-5, 5) | st.just(math.nan)))
def test_the_scatter_is_the_quantile_of_numpy(deviations: np.ndarray) -> None:
    known = np.abs(deviations[~np.isnan(deviations)])
    expected = np.quantile(known, LOW_QUANTILE) / LOW_QUANTILE_OF_NORMAL if len(known) else np.nan
    np.testing.assert_array_equal(scatter(deviations), expected)


def test_a_ratio_without_a_positive_time_is_missing() -> None:
    assert np.isnan(log_ratio(np.array([0.0, 1.0, np.nan]), np.array([1.0, 0.0, 1.0]))).all()
