"""Robust slopes, and the labels of horizons."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.robust import row_medians, row_quantiles, shrunk_gain, theil_sen
from kernelcast.predictor.scoring.published import duration_label


@given(
    st.tuples(st.integers(0, 5), st.integers(1, 9)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.floats(-1e9, 1e9) | st.just(np.nan))
    )
)
def test_the_median_of_a_row_leaves_out_what_is_missing(values: Floats) -> None:
    found = row_medians(values)
    assert found.shape == (len(values),)
    for median, row in zip(found, values, strict=True):
        known = np.sort(row[~np.isnan(row)])
        expected = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2 if len(known) else np.nan
        np.testing.assert_array_equal(median, expected)


@given(
    st.tuples(st.integers(0, 5), st.integers(0, 9)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.floats(-1e9, 1e9) | st.just(np.nan))
    ),
    st.sampled_from([0.05, 0.1, 0.5, 0.9, 0.95]),
)
def test_the_quantile_of_a_row_is_that_of_numpy(values: Floats, share: float) -> None:
    for quantile, row in zip(row_quantiles(values, share), values, strict=True):
        known = row[~np.isnan(row)]
        expected = np.quantile(known, share, method="lower") if len(known) else np.nan
        np.testing.assert_array_equal(quantile, expected)


def test_a_gain_is_the_usual_one_where_the_driver_hardly_changes() -> None:
    drivers = np.array([[0.01, -0.01, np.nan, 0.01], [30.0, -20.0, 10.0, np.nan], [30.0, -20.0, 10.0, 5.0]])
    gain = shrunk_gain(drivers * np.array([[5.0], [0.5], [-2.0]]), drivers, usual=1.0, weight=1.0)
    np.testing.assert_allclose(gain, [1.0, 0.5, 0.0], atol=0.01)


def test_theil_sen_agrees_with_scipy() -> None:
    rows = np.random.default_rng(2).normal(size=(30, 24)) + 0.1 * np.arange(24)
    for row, slope in zip(rows, theil_sen(rows), strict=True):
        assert slope == pytest.approx(stats.theilslopes(row).slope)


@pytest.mark.parametrize(("seconds", "text"), [(300, "5m"), (3600, "1h"), (90, "90s"), (86_400, "1d"), (0.5, "0.5s")])
def test_horizons_are_written_as_prometheus_writes_durations(seconds: float, text: str) -> None:
    assert duration_label(seconds) == text
