"""Lines through daily peaks: weekends, days that differ, growth that accelerates, and series that do not grow."""

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.passage.detector import evaluate
from kernelcast.predictor.passage.peaks import peak_line
from kernelcast.predictor.passage.series import SeriesBlocks, Traits, hours_of
from kernelcast.predictor.passage.trend import Trend

HOUR = 12
DAY = 24 * HOUR
LIMIT = 100.0
NOISE = 0.3
"""Standard deviation of a block."""
UNEVEN = np.array([0.98, 1.03, 0.95, 1.01, 1.05, 0.96, 1.02, 0.94, 1.04, 0.97, 1.0, 1.03, 0.95, 1.02])
"""Levels of days of traffic."""


def days_of(peaks: Floats, *, idle: float = 40.0, after: int = 0) -> Floats:
    """Blocks of days whose load rises and falls about noon between `idle` and a peak, and some hours of the next."""
    hours = np.arange(len(peaks) * DAY + after * HOUR) / HOUR
    load = np.clip(np.cos((hours % 24 - 12) * np.pi / 12), 0.0, None) ** 0.3
    height = np.append(peaks, peaks[-1])[(hours // 24).astype(np.int64)] - idle
    return np.asarray(idle + load * height + np.random.default_rng(6).normal(0, NOISE, len(hours)), np.float64)


def line_of(
    values: Floats, *, known_hours: int = 840, means: Floats | None = None, load: Floats | None = None
) -> Trend:
    """The line of one series of medians, and of means where they differ."""
    hours, phase = hours_of(values[None], values[None], np.zeros(1, np.bool_), 0)
    power = np.full(values.shape, np.nan) if load is None else load
    load_hours, _ = hours_of(power[None], power[None], np.zeros(1, np.bool_), 0)
    blocks = (values if means is None else means)[None, -2 * DAY :]
    return peak_line(hours[:, -known_hours:], load_hours[:, -known_hours:], blocks, phase, np.array([NOISE]), 24)


def highest_probability(values: Floats) -> float:
    """Probability of reaching the limit within a day."""
    row, number = values[None], np.zeros((1, len(values)), np.int64)
    whole = SeriesBlocks.of(row, row, np.full(row.shape, np.nan), number, number - 1)
    flag = np.array([False])
    traits = Traits(np.array([LIMIT]), np.array([np.nan]), flag, np.zeros(1), np.array([5]), flag)
    return float(evaluate(whole.until(len(values)), traits).passage.probability.max())


@pytest.mark.parametrize("low", [[], [5, 6], [6, 7], [4], [8, 9]])
def test_the_line_passes_over_low_days(low: list[int]) -> None:
    peaks = 60.0 + 2.0 * np.arange(10.0)
    peaks[low] = 45.0
    line = line_of(days_of(peaks))
    assert line.slope[0] * DAY == pytest.approx(2.0, abs=0.1)
    assert line.level[0] == pytest.approx(78.0, abs=1.0)
    assert line.slope[0] > 8 * line.error[0]


@pytest.mark.parametrize(("known", "points"), [(4, 0), (5, 4), (7, 4), (8, 6), (14, 6)])
def test_the_line_has_six_days_or_of_a_new_series_four(known: int, points: int) -> None:
    peaks = np.r_[50.0 + np.zeros(14 - points), 50.0 + 3.0 * np.arange(1.0, points + 1.0)]
    line = line_of(days_of(peaks), known_hours=24 * known)
    assert np.isfinite(line.level[0]) == (points > 0)
    if points:
        assert line.slope[0] * DAY == pytest.approx(3.0, abs=0.1)


def test_a_series_that_was_silent_for_three_days_has_no_line() -> None:
    values = days_of(60.0 + 2.0 * np.arange(12.0))
    assert np.isfinite(line_of(values[: -3 * DAY]).level[0])
    values[-3 * DAY :] = np.nan
    assert np.isnan(line_of(values).level[0])


def test_the_level_is_that_of_the_highest_block_of_a_day() -> None:
    values = days_of(60.0 + 2.0 * np.arange(10.0), after=5)
    means = values.copy()
    means[12 * HOUR :: DAY] += 4.0
    assert line_of(values, means=means).level[0] - line_of(values).level[0] == pytest.approx(4.0, abs=1.0)


def test_a_line_is_the_same_whatever_is_evaluated_with_it() -> None:
    values = days_of(60.0 + 2.0 * np.arange(9.0))
    alone = line_of(values, known_hours=6 * 24 + 5)
    hours, phase = hours_of(values[None], values[None], np.zeros(1, np.bool_), 0)
    hours[:, : -6 * 24 - 5] = np.nan
    together = peak_line(hours, np.full(hours.shape, np.nan), values[None, -2 * DAY :], phase, np.array([NOISE]), 24)
    assert together.level[0] == alone.level[0]
    assert together.slope[0] == alone.slope[0]


@pytest.mark.parametrize("share", [0.05, 0.02])
def test_peaks_that_rise_with_the_load_are_no_line_and_peaks_at_the_same_load_are(share: float) -> None:
    """Power grows by a share each day, from 400 W; then the power stays and the heat per watt grows."""
    watts = days_of(400.0 * (1.0 + share * np.arange(9.0)), idle=60.0)
    busier = line_of(35.0 + 0.06 * watts, load=watts)
    assert not busier.slope[0] > 3.0 * busier.error[0]
    steady = days_of(np.full(9, 400.0), idle=60.0)
    worn = line_of(35.0 + days_of(0.06 * 400.0 * (1.0 + share * np.arange(9.0)), idle=3.6), load=steady)
    assert worn.slope[0] * DAY == pytest.approx(24.0 * share, rel=0.2)
    assert worn.slope[0] > 3.0 * worn.error[0]


def test_days_of_unlike_loads_are_not_compared_where_the_effect_of_the_load_is_unknown() -> None:
    """Each new day has a load that no day before has shown."""
    peaks = 45.0 + 6.0 * np.arange(7.0)
    load = days_of(100.0 + 90.0 * np.arange(7.0), idle=60.0)
    assert np.isnan(line_of(days_of(peaks), load=load).level[0])


@pytest.mark.parametrize("power", [0.9, 1.6])
def test_a_peak_that_grows_over_days_of_uneven_traffic_and_weekends_reaches_the_limit(power: float) -> None:
    growth = np.clip(np.arange(14.0) - 5, 0, None) ** power
    peaks = 70.0 * UNEVEN + 26.0 * growth / growth[-1]
    peaks[[5, 6, 12]] -= 15.0
    values = days_of(peaks, after=6)
    assert values.max() < LIMIT - 1.0
    assert highest_probability(values) > 0.8


def test_uneven_days_and_weekends_that_do_not_grow_reach_no_limit() -> None:
    peaks = 90.0 * UNEVEN
    peaks[[5, 6, 12, 13]] -= 15.0
    values = days_of(peaks)
    assert values.max() < LIMIT
    ends = range(3 * DAY, len(values) + 1, 3 * HOUR)
    assert max(highest_probability(values[:end]) for end in ends) < 0.4


def test_a_return_to_work_after_holidays_is_no_line() -> None:
    values = days_of(np.array([45.0, 45.0, 45.0, 45.0, 45.0, 45.0, 92.0, 94.0, 93.0, 94.0, 92.5, 94.0]), idle=35.0)
    ends = range(7 * DAY, len(values) + 1, 3 * HOUR)
    assert max(highest_probability(values[:end]) for end in ends) < 0.4
