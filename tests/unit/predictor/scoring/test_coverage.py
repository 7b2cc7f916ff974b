"""Coverage of published intervals by metric: the share that contained the value that came."""

import pytest

from kernelcast.predictor.scoring.coverage import ForecastClaim, IntervalCoverage


def test_coverage_is_absent_until_enough_forecasts_have_come_due() -> None:
    coverage = IntervalCoverage()
    for due in range(30):
        coverage.add(ForecastClaim(due, 0, 1, "m", 0.0, 1.0 if due % 10 else 0.1))
    coverage.settle(lambda _row, _generation: 9, lambda _row, _due: 0.5)
    assert coverage.by_metric() == {}
    coverage.settle(lambda _row, _generation: 40, lambda _row, _due: 0.5)
    assert coverage.by_metric() == {"m": pytest.approx(0.9)}


def test_a_bound_is_scored_as_it_was_published_not_below_zero() -> None:
    claim = ForecastClaim(1, 0, 1, "DCGM_FI_DEV_POWER_USAGE", lower=-83.0, upper=-1.0)
    assert claim.contains(0.0)
    assert not claim.contains(-2.0)


def test_forecasts_whose_series_is_gone_are_dropped_and_counted() -> None:
    coverage = IntervalCoverage()
    coverage.add(ForecastClaim(5, 0, 1, "m", 0.0, 1.0))
    coverage.settle(lambda _row, _generation: None, lambda _row, _due: 0.5)
    assert coverage.dropped == 1
