"""Intervals learn from how the past ones came out."""

import numpy as np
import pytest

from kernelcast.predictor.cycle.scoring import MAX_WIDENING, MIN_SCORED, ForecastClaim, Scores
from kernelcast.predictor.forecasting.clean import prepare
from kernelcast.predictor.forecasting.models import forecast

WINDOW, AHEAD = 120, 60


def drifts(*, bends: bool, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A noisy drift; with `bends`, one that goes on at another slope from some moment on."""
    n = WINDOW + AHEAD
    first = rng.uniform(0.02, 0.2)
    second = first * rng.uniform(0, 2) if bends else first
    slope = np.where(np.arange(n) < rng.integers(30, n), first, second)
    return 70.0 + np.cumsum(slope) + rng.normal(0, 0.5, n)


def settle(scores: Scores, seen: float) -> None:
    scores.settle(lambda _row, _generation: 1000, lambda _row, _due: seen)


def shares_held(*, bends: bool) -> tuple[float, float]:
    """Of a hundred and fifty forecasts: the share that the model's own intervals held, and that the published did."""
    rng, scores = np.random.default_rng(1), Scores()
    own, published = [], []
    for number in range(150):
        truth = drifts(bends=bends, rng=rng)
        found = forecast(prepare(truth[:WINDOW], span=WINDOW), intervals=AHEAD, damped=False, rng=rng)
        mean, lower, upper = (float(values[-1]) for values in (found.mean, found.lower, found.upper))
        claim = ForecastClaim(number, 0, 1, "m", 60.0, mean, lower, upper, scores.widening("m", 60.0))
        scores.claim(claim)
        settle(scores, float(truth[-1]))
        if number >= 2 * MIN_SCORED:
            own.append(lower <= truth[-1] <= upper)
            published.append(claim.bounds[1] <= truth[-1] <= claim.bounds[2])
    return float(np.mean(own)), float(np.mean(published))


@pytest.mark.slow
def test_intervals_come_near_their_promise_although_trends_change() -> None:
    own, published = shares_held(bends=True)
    assert own < 0.7
    assert published > 0.88


@pytest.mark.slow
def test_intervals_that_keep_their_promise_stay_as_they_are() -> None:
    own, published = shares_held(bends=False)
    assert own > 0.9
    assert published == pytest.approx(own, abs=0.05)


def settled(seen: float, *, upper: float = 1.0, horizon_seconds: float = 60.0) -> Scores:
    scores = Scores()
    for due in range(MIN_SCORED):
        scores.claim(ForecastClaim(due, 0, 1, "m", horizon_seconds, 0.0, -upper, upper))
    settle(scores, seen)
    return scores


def test_each_metric_and_horizon_learns_by_itself_and_never_narrows() -> None:
    scores = settled(3.0)
    assert scores.widening("m", 60.0) == 3.0
    assert scores.widening("m", 300.0) == scores.widening("other", 60.0) == 1.0
    assert settled(0.1).widening("m", 60.0) == 1.0


def test_the_widening_by_broken_series_is_limited() -> None:
    assert settled(1e9).widening("m", 60.0) == MAX_WIDENING
    assert settled(1.0, upper=0.0).widening("m", 60.0) == 1.0


def test_no_published_bound_is_negative() -> None:
    claim = ForecastClaim(1, 0, 1, "DCGM_FI_DEV_POWER_USAGE", 60.0, mean=-3.0, lower=-40.0, upper=20.0, widening=2.0)
    assert claim.bounds == (0.0, 0.0, 43.0)
