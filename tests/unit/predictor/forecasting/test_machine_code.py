"""Machine code of forecasts equals numpy's results to the last bit, whatever gaps, ties and sizes the series have."""

import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.forecasting import combination, rolling
from kernelcast.predictor.forecasting.methods import NAIVE
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.path import forecast_leads

NEVER = sys.maxsize


def use_machine_code(replace: pytest.MonkeyPatch, *, always: bool) -> None:
    replace.setattr(combination, "LEAST_VALUES", 0 if always else NEVER)
    replace.setattr(rolling, "LEAST_WINDOWS", 0 if always else NEVER)


@st.composite
def forecasts_of_methods(draw: st.DrawFn) -> tuple[dict[str, Floats], Floats, Bools, int]:
    methods, rows, length = draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 60))
    # Few distinct values, so that forecasts and errors are often equal.
    element = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
    values = draw(arrays(float, (rows, length), elements=element))
    found = {NAIVE: values}
    for number in range(methods):
        made = draw(arrays(float, (rows, length), elements=element))
        made[:, : draw(st.integers(0, length))] = np.nan
        found[str(number)] = made
    known = draw(arrays(bool, (rows, length)))
    return found, values, known, draw(st.integers(1, 8))


@settings(deadline=None)
@example(({NAIVE: np.zeros((1, 4)), "0": np.zeros((1, 4))}, np.zeros((1, 4)), np.zeros((1, 4), bool), 5))
@given(forecasts_of_methods())
def test_weighted_medians_equal_numpys(drawn: tuple[dict[str, Floats], Floats, Bools, int]) -> None:
    with pytest.MonkeyPatch.context() as replace:
        use_machine_code(replace, always=False)
        center, since = combination.combined(*drawn)
        use_machine_code(replace, always=True)
        same_center, same_since = combination.combined(*drawn)
    np.testing.assert_array_equal(same_center, center)
    np.testing.assert_array_equal(same_since, since)


@settings(deadline=None)
@given(
    arrays(
        float,
        st.tuples(st.integers(1, 3), st.integers(1, 50)),
        elements=st.one_of(st.integers(-3, 3).map(float), st.floats(-1e9, 1e9)),
    ),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_rolling_medians_equal_numpys(values: Floats, length: int, every: int) -> None:
    with pytest.MonkeyPatch.context() as replace:
        use_machine_code(replace, always=False)
        found = rolling.rolling_median(values, length, every)
        use_machine_code(replace, always=True)
        np.testing.assert_array_equal(rolling.rolling_median(values, length, every), found)


@pytest.mark.parametrize("seasons", [(), (24,), (24, 168)])
def test_forecasts_with_gaps_and_empty_series_equal_numpys(
    seasons: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    values = 60 + np.cumsum(rng.normal(0, 0.1, (6, 500)), axis=1) + 5 * np.sin(np.arange(500) * 2 * np.pi / 24)
    values[0, :100] = values[1, 300:350] = values[2] = np.nan
    values[3] = np.rint(values[3])
    panel = Panel(values, 0, 1, np.zeros(len(values), np.int64))
    found = {}
    for always in (False, True):
        use_machine_code(monkeypatch, always=always)
        found[always] = forecast_leads(panel, (1, 12, 48), (0.1, 0.5, 0.9), seasons)
    for expected, same in zip(found[False], found[True], strict=True):
        np.testing.assert_array_equal(same, expected)
