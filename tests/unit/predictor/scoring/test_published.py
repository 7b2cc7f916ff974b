"""Scores as rows of the catalogue."""

import numpy as np

from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.intervals import LEVELS
from kernelcast.predictor.scoring.published import scores
from kernelcast.predictor.scoring.scores import Scoring
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, forecast_scores

MEMORY = CLASSES.index("memory")
"""No factors are shipped for it at five minutes."""


def published(scoring: Scoring) -> dict[tuple[str, ...], float]:
    """Value by name and values of the labels, in the labels' order."""
    return {
        (
            one.metric.prometheus_name.removeprefix("kernelcast_forecast_"),
            *(value for _, value in one.labels),
        ): one.value
        for one in scores(scoring)
    }


def test_before_any_outcome_no_score_is_published() -> None:
    assert published(Scoring((300.0, 3600.0), 300.0)) == {}


def test_each_score_has_its_class_and_horizon() -> None:
    scoring = Scoring((300.0, 5400.0), 300.0)
    series, classes = np.arange(4, dtype=np.int64), np.full(4, MEMORY)
    quantiles = np.tile(np.linspace(-3, 3, len(LEVELS)), (4, 1))
    scoring.claim_forecasts(0, series, classes, 300.0, quantiles, np.full(4, 2.0))
    scoring.claim_breaches(0, series, classes, np.array([[0.9, 0.99]] * 4))
    scoring.abstain(MEMORY, "no_baseline", 7)
    passed, none = np.array([True, True, True, False]), np.zeros(4, np.bool_)
    scoring.settle(1, series, classes, np.array([0.0, 0.0, 2.5, 9.0]), passed, none, gpus=4)
    found = published(scoring)

    assert found["interval_coverage_ratio", "memory", "5m", "0.5"] == 0.5
    assert found["interval_coverage_ratio", "memory", "5m", "0.95"] == 0.75
    assert found["scored_claims", "memory", "5m", "breach"] == 4
    assert found["skill", "memory", "5m", "naive"] == 0.0
    assert found["reliability_came_ratio", "0.8-0.95", "memory", "5m"] == 0.75
    assert abs(found["brier_score", "memory", "5m"] - (3 * 0.01 + 0.81) / 4) < 1e-6
    assert found["announced_breaches_ratio", "memory"] == found["alert_lead_seconds", "memory"] == 0.0
    assert found["alert_precision_ratio", "memory"] == 1.0
    assert found["abstained_claims", "memory", "no_baseline"] == 7
    assert ("skill", "memory", "5m", "seasonal_naive") not in found
    assert not any(np.isnan(value) for value in found.values())


def test_every_label_is_one_of_the_catalogue() -> None:
    scoring = Scoring((300.0,), 300.0)
    scoring.abstain(0, "short_history")
    for one in scores(scoring):
        assert {name for name, _ in one.labels} == set(one.metric.labels)
        assert BY_PROMETHEUS_NAME[one.metric.prometheus_name] is one.metric
    assert len(forecast_scores.ROWS) == 14
