"""Coverage of intervals on simulated series."""

import numpy as np
import pytest
from benchmarks.predictor.breaches.interval_coverage import coverage, interval_score, lines
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.profile import Grid


def test_intervals_of_healthy_series_are_covered_as_they_say_and_each_window_counts_once() -> None:
    found = coverage([generate(1, {"healthy-kernel": 60}, Grid(history=600, length=960))])
    cells = found["classes"]["kernel"]

    assert list(found["classes"]) == ["kernel"]
    for horizon, windows in (("300", 72), ("900", 24), ("3600", 6)):
        assert 60 * (windows - 1) * 0.95 <= cells[horizon]["claims"] <= 60 * windows
    for covered, nominal in zip(cells["300"]["covered"], (0.5, 0.8, 0.95), strict=True):
        assert abs(covered - nominal) < 0.06
    assert found["largest_deviation"] >= abs(cells["300"]["covered"][0] - 0.5) - 1e-3
    assert "kernel" in lines(found)[1]
    assert cells["300"]["width"] == pytest.approx(1.0, abs=0.2)
    assert 0.7 < cells["300"]["interval_score"] < 1.05  # the shipped half-widths make them better, never much worse
    assert cells["300"]["loss"] == pytest.approx(1.0, abs=0.05)


def test_the_right_interval_has_the_least_score() -> None:
    truth = np.random.default_rng(2).standard_normal(20_000)
    scores = [interval_score(truth, np.full(20_000, -half), np.full(20_000, half), 0.95) for half in (1.5, 1.96, 2.5)]

    assert scores[1] == min(scores)
    assert scores[1] == pytest.approx(2 * 2.338, abs=0.05)  # 2/.05 of the normal density at 1.96
