"""Lines of long drifts since their onset."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.passage.detector import Evaluation, evaluate
from kernelcast.predictor.passage.onset import onset_line
from kernelcast.predictor.passage.series import SeriesBlocks, Traits

_HOUR = 12
_ROWS = 100
_SPREAD = 0.8


def evaluated(values: Floats, *, limit: float = 99.0, settling: int = 5) -> Evaluation:
    rows = len(values)
    blocks = SeriesBlocks(
        mean=values,
        median=values,
        load=np.full(values.shape, np.nan),
        process=np.zeros(values.shape, np.int64),
        version=np.full(values.shape, -1, np.int64),
    )
    traits = Traits(
        limit=np.full(rows, limit),
        baseline_ratio=np.full(rows, np.nan),
        below=np.zeros(rows, np.bool_),
        resolution=np.zeros(rows),
        settling_blocks=np.full(rows, settling, np.int64),
    )
    return evaluate(blocks, traits)


def drifting(*, hours: float, per_hour: float, length_hours: int = 36) -> Floats:
    """Series at 60 with noise, and a line over the last hours."""
    time = np.arange(length_hours * _HOUR) / _HOUR
    rng = np.random.default_rng(11)
    line = np.maximum(time - (length_hours - hours), 0.0) * per_hour
    return 60.0 + line + rng.normal(0.0, _SPREAD, (_ROWS, len(time)))


def slope_per_hour(found: Evaluation, limit: float = 99.0) -> Floats:
    return found.trend.straight * limit * _HOUR


def test_the_slope_of_a_long_drift_is_measured_since_its_onset() -> None:
    found = evaluated(drifting(hours=18, per_hour=1.0))
    deviation = np.median(np.abs(slope_per_hour(found) - 1.0))
    # Least squares over eight hours would have this one.
    newest = 0.6745 * _SPREAD * np.sqrt(12.0 / (8 * _HOUR) ** 3) * _HOUR
    assert deviation < 0.5 * newest
    assert np.median(np.abs(found.trend.level * 99.0 - 78.0)) < 0.2 * _SPREAD


def test_the_error_of_that_slope_is_honest() -> None:
    found = evaluated(drifting(hours=18, per_hour=1.0))
    score = (slope_per_hour(found) - 1.0) / (found.trend.error * 99.0 * _HOUR)
    assert 0.6 < np.sqrt(np.mean(score**2)) < 1.6


def test_a_drift_that_becomes_steeper_has_its_present_slope() -> None:
    values = drifting(hours=20, per_hour=0.5)
    time = np.arange(values.shape[1]) / _HOUR
    found = evaluated(values + np.maximum(time - 32.0, 0.0) * 2.5)
    assert np.median(slope_per_hour(found)) == pytest.approx(3.0, abs=0.5)


def test_a_temperature_keeps_the_line_of_its_newest_hours() -> None:
    values = drifting(hours=18, per_hour=1.0)
    short, long = (slope_per_hour(evaluated(values, settling=blocks)) for blocks in (15, 5))
    assert np.median(np.abs(short - 1.0)) > 2.0 * np.median(np.abs(long - 1.0))


def test_a_level_series_has_no_line() -> None:
    found = evaluated(drifting(hours=0, per_hour=0.0))
    assert (found.passage.probability.max(axis=1) < 0.2).mean() > 0.97


@given(seed=st.integers(0, 2**31), length=st.integers(30, 300), gaps=st.floats(0.0, 0.4))
def test_all_onsets_at_once_are_those_fitted_one_by_one(seed: int, length: int, gaps: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(0.0, 1.0, length) + 0.1 * np.maximum(np.arange(length) - length / 2, 0.0)
    values[rng.random(length) < gaps] = np.nan
    values[-1], first = 5.0, int(rng.integers(0, length // 2))
    found = onset_line(values[None], np.array([first]), np.array([1.0]), np.array([0.3]))
    start = max(first, length - 288)
    expected = slowly(values[start:], 1.0 * 1.3 / 0.7, min(length, 288))
    actual = np.array([found.slope[0], found.error[0], found.level[0], found.age[0]])
    assert actual == pytest.approx(expected, rel=1e-5, abs=1e-7)


def slowly(values: Floats, variance: float, window: int) -> Floats:
    """Slope, error, level and age by a least-squares fit for each onset."""
    place, known = np.arange(len(values)), np.isfinite(values)
    rows = []
    for age in range(1, min(len(values), window - 1) + 1):
        risen = np.maximum(place - (len(values) - 1) + age, 0.0)
        design = np.stack([np.ones(known.sum()), risen[known]], axis=1)
        spread = ((design[:, 1] - design[:, 1].mean()) ** 2).sum()
        if spread < 1e-6:
            continue
        (level, slope), *_ = np.linalg.lstsq(design, values[known], rcond=None)
        likelihood = 0.5 * slope**2 * spread / variance - 0.5 * np.log(spread)
        rows.append((likelihood, slope, variance / spread, level + slope * age, age))
    likelihoods, slopes, variances, levels, ages = np.array(rows).T
    weight = np.exp(likelihoods - likelihoods.max())
    weight /= weight.sum()
    slope = weight @ slopes
    error = np.sqrt(weight @ (slopes**2 + variances) - slope**2)
    return np.array([slope, error, weight @ levels, weight @ ages])
