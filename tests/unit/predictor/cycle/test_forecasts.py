"""Published forecasts of a series rest on its own past alone, whatever is forecast beside it."""

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.cycle.forecasts import Forecasts, SeriesForecast

BLOCKS, HOURS, HOUR_BLOCKS = 576, 840, 12
BLOCK_SECONDS = 300.0
HORIZONS = (900.0, 3600.0, 14_400.0, 28_800.0, 86_400.0)
NEWEST = 20_000


class Fleet:
    """Histories of series of different ages, given in blocks."""

    hour_blocks = HOUR_BLOCKS

    def __init__(self, *ages: int) -> None:
        noise = [np.random.default_rng(age).normal(50, 1, HOURS * HOUR_BLOCKS) for age in ages]
        self._values = np.stack(noise)
        for row, age in enumerate(ages):
            self._values[row, : len(noise[row]) - age] = np.nan

    def blocks(self, rows: Ints, _newest: int) -> tuple[Floats, Floats]:
        values = self._values[rows, -BLOCKS:]
        return values, values

    def hours(self, rows: Ints, _newest: int) -> Floats:
        return np.asarray(self._values[rows].reshape(len(rows), HOURS, HOUR_BLOCKS).mean(axis=2))


def forecast_of_first(*ages: int) -> SeriesForecast:
    rows = np.arange(len(ages))
    forecasts = Forecasts(Fleet(*ages), BLOCK_SECONDS)  # type: ignore[arg-type]
    forecasts.make(rows, np.zeros(len(rows), np.int64), NEWEST, HORIZONS)
    found = forecasts.get(0, 0)
    assert found is not None
    return found


@pytest.mark.parametrize("age", [25, 60, 300, 575, 600, 1500])
@pytest.mark.parametrize("others", [(8000,), (25, 700, 8000)])
def test_a_young_series_has_the_same_horizons_and_bounds_beside_older_ones(age: int, others: tuple[int, ...]) -> None:
    alone, beside = forecast_of_first(age), forecast_of_first(age, *others)
    assert set(alone.bounds) == set(HORIZONS)
    assert beside.bounds == alone.bounds
    assert beside.next_block == alone.next_block
    np.testing.assert_equal(beside.surprise, alone.surprise)


def test_a_series_shorter_than_two_hours_has_no_forecast_yet() -> None:
    for others in ((), (8000,)):
        assert not forecast_of_first(24, *others).bounds
