"""Intervals learn from how the past ones came out."""

from kernelcast.predictor.cycle.scoring import MAX_WIDENING, MIN_SCORES, ForecastClaim, Scores


def settle(scores: Scores, seen: float) -> None:
    scores.settle(lambda _row, _generation: 1000, lambda _row, _due: seen)


def settled(seen: float, *, upper: float = 1.0, horizon_seconds: float = 60.0) -> Scores:
    scores = Scores()
    for due in range(MIN_SCORES):
        scores.add(ForecastClaim(due, 0, 1, "m", horizon_seconds, 0.0, -upper, upper))
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
