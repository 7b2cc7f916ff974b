"""Screening of many series at once: drifts, steps and settling, and the rate of false positives."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from kernelcast.predictor.cycle.samples import duration_label
from kernelcast.predictor.cycle.scoring import ForecastClaim, Scores
from kernelcast.predictor.screening.blocks import mann_kendall, theil_sen
from kernelcast.predictor.screening.online import OnlineState
from kernelcast.predictor.screening.screen import Screening, ScreenOptions, screen

OPTIONS = ScreenOptions(min_points=24, drift_z=3.5)
POINTS = 240


def look(rows: NDArray[np.float64]) -> Screening:
    return screen(rows.astype(np.float32), OPTIONS)


def noise(n: int, *, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0.0, 1.0, (n, POINTS))


def test_noise_is_hardly_ever_called_a_drift() -> None:
    assert look(100 + noise(5000)).drift.mean() < 0.001


def test_slow_and_fast_drifts_are_seen_with_their_slope() -> None:
    slow = look(100 + noise(200) + 0.1 * np.arange(POINTS))
    fast = look(100 + noise(200) + 0.2 * np.maximum(np.arange(POINTS) - 180, 0))
    assert slow.drift.all()
    assert np.median(slow.slope) == pytest.approx(0.1, rel=0.1)
    assert fast.drift.mean() > 0.95
    assert np.median(fast.slope[fast.drift]) == pytest.approx(0.2, rel=0.2)


def test_a_step_is_a_step_and_not_a_drift() -> None:
    seen = look(100 + noise(500) + np.where(np.arange(POINTS) >= 150, 20.0, 0.0))
    assert not seen.drift.any()
    assert (np.abs(seen.step_age - 90) <= 10).mean() > 0.95
    assert np.median(seen.step_size) == pytest.approx(20, rel=0.1)


def test_a_curve_that_levels_off_is_settling_and_a_line_is_not() -> None:
    time = np.arange(POINTS)
    levelling = look(100 + noise(200) + 60 * (1 - np.exp(-time / 40)))
    straight = look(100 + noise(200) + 0.25 * time)
    assert levelling.settling[levelling.drift].mean() > 0.9
    assert straight.settling.mean() < 0.05


def test_missing_values_and_constants_are_safe() -> None:
    rows = np.full((4, POINTS), np.nan)
    rows[1] = 70.0
    rows[2, ::7] = 70.0
    rows[3, -30:] = 70.0
    seen = look(rows)
    assert not seen.drift.any()
    assert seen.observed.tolist() == [0, 240, 35, 30]
    assert seen.flat[1]


def test_one_spike_is_neither_drift_nor_step() -> None:
    rows = 100 + noise(50)
    rows[:, 120] = 1e6
    seen = look(rows)
    assert not seen.drift.any()
    assert (seen.step_age == -1).all()


def test_mann_kendall_and_theil_sen_agree_with_scipy() -> None:
    rows = np.random.default_rng(2).normal(size=(30, 24)) + 0.1 * np.arange(24)
    for row, z, slope in zip(rows, mann_kendall(rows), theil_sen(rows), strict=True):
        tau = stats.kendalltau(np.arange(24), row).statistic
        score = tau * 24 * 23 / 2
        deviation = math.sqrt(24 * 23 * 53 / 18)
        assert z == pytest.approx((score - math.copysign(1, score)) / deviation, abs=1e-6)
        assert slope == pytest.approx(stats.theilslopes(row).slope)


def test_the_online_state_notices_a_shift_within_a_few_values_and_keeps_calm_before() -> None:
    rng = np.random.default_rng(3)
    online, rows = OnlineState(), np.arange(200)
    calm = 0.0
    for _ in range(100):
        online.update(rows, 100 + rng.normal(0, 1, 200))
        calm = max(calm, float(online.shifted(rows).mean()))
    assert calm < 0.05
    for _ in range(6):
        online.update(rows, 108 + rng.normal(0, 1, 200))
    assert online.shifted(rows).mean() > 0.95


def test_coverage_is_absent_until_enough_forecasts_have_come_due() -> None:
    scores = Scores()
    for due in range(30):
        scores.claim(ForecastClaim(due, 0, 1, "m", 60.0, 0.05, 0.0, 1.0 if due % 10 else 0.1))
    scores.settle(lambda _row, _generation: 9, lambda _row, _due: 0.5)
    assert scores.coverage() == {}
    scores.settle(lambda _row, _generation: 40, lambda _row, _due: 0.5)
    assert scores.coverage() == {"m": pytest.approx(0.9)}


def test_forecasts_whose_series_is_gone_are_dropped_and_counted() -> None:
    scores = Scores()
    scores.claim(ForecastClaim(5, 0, 1, "m", 60.0, 0.5, 0.0, 1.0))
    scores.settle(lambda _row, _generation: None, lambda _row, _due: 0.5)
    assert scores.dropped == 1


@pytest.mark.parametrize(("seconds", "text"), [(300, "5m"), (3600, "1h"), (90, "90s"), (86_400, "1d"), (0.5, "0.5s")])
def test_horizons_are_written_as_prometheus_writes_durations(seconds: float, text: str) -> None:
    assert duration_label(seconds) == text
