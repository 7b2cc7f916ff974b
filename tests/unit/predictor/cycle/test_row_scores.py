"""The live cycle scores its published forecasts."""

import numpy as np
import pytest
from tests.unit.predictor.conftest import Fleet, device_subject, fast

from kernelcast.predictor.cycle.detector_state import DetectorState
from kernelcast.predictor.cycle.row_scores import RowScores
from kernelcast.predictor.scoring.classes import CLASSES, series_number
from kernelcast.predictor.scoring.published import scores
from kernelcast.predictor.settings import JudgeSettings, SeriesMatcher

GPU_TEMP = "DCGM_FI_DEV_GPU_TEMP"
TEMPERATURE = CLASSES.index("temperature")


def watched() -> Fleet:
    judge = JudgeSettings(thresholds={GPU_TEMP: 87.0})
    return Fleet(fast().model_copy(update={"judge": judge, "publish": (SeriesMatcher(metric=GPU_TEMP),)}))


def noise(scale: float, rng: np.random.Generator) -> float:
    return float(rng.normal(0.0, scale))


@pytest.fixture(scope="module")
def scored() -> Fleet:
    """Two GPUs after a quarter of an hour, of which one has become too hot."""
    fleet, rng = watched(), np.random.default_rng(7)
    fleet.device(GPU_TEMP, lambda _second: 70.0 + noise(0.3, rng), gpu="0")
    fleet.device(GPU_TEMP, lambda second: min(70.0 + max(second - 300, 0) / 15, 95.0) + noise(0.3, rng), gpu="1")
    fleet.run(900)
    return fleet


@pytest.mark.slow
def test_forecasts_and_probabilities_of_live_series_are_scored_by_class_and_horizon(scored: Fleet) -> None:
    scoring = scored.cycle.row_scores.scoring
    claims = scoring.breaches.cells["count"][TEMPERATURE]

    assert scoring.intervals.cells["count"][TEMPERATURE, 0] >= 2
    assert claims[0] > 2 * claims[1] > 0
    assert scoring.unscored < claims.sum() / 4
    assert scoring.alerts.right[TEMPERATURE] == 1
    assert 1300 < scoring.alerts.gpu_days * 86_400 <= 1800
    found = {one.metric.prometheus_name for one in scores(scoring)}
    assert {"kernelcast_forecast_brier_score", "kernelcast_forecast_interval_coverage_ratio"} <= found
    assert all(np.isfinite(one.value) for one in scores(scoring))


@pytest.mark.slow
def test_scores_continue_under_the_same_series_after_a_restart(scored: Fleet) -> None:
    after, rng = watched(), np.random.default_rng(8)
    for gpu in ("1", "0"):
        after.device(GPU_TEMP, lambda _second: 70.0 + noise(0.3, rng), gpu=gpu)
    after.second = scored.second
    after.run(150)
    pending = scored.cycle.row_scores.scoring.breaches.pending
    counted = scored.cycle.row_scores.scoring.breaches.cells["count"].sum()
    assert len(pending) > 0
    after.cycle.row_scores.scoring.load(scored.cycle.row_scores.scoring.dump())
    known = {series_number(subject.metric, subject.labels) for subject in scored.series}
    assert set(pending.columns["series"].tolist()) <= known
    after.run(150)

    assert after.cycle.row_scores.scoring.breaches.cells["count"].sum() > counted
    assert set(after.cycle.row_scores.scoring.breaches.pending.columns["series"].tolist()) <= known


def test_horizons_that_change_keep_the_scores_of_the_others(scored: Fleet) -> None:
    row_scores = RowScores((60.0, 300.0), scored.cycle.block_seconds, lambda _row: None)
    row_scores.scoring.load(scored.cycle.row_scores.scoring.dump())
    counted = row_scores.scoring.breaches.cells["count"][TEMPERATURE, 0]
    row_scores.use_horizons((60.0, 120.0, 600.0))

    assert counted > 0
    assert row_scores.scoring.breaches.cells["count"][TEMPERATURE].tolist() == [counted, 0, 0]


def test_a_gpu_whose_block_ends_a_cycle_later_than_others_counts_as_observed() -> None:
    rows, generations = np.arange(2), np.ones(2, np.int64)
    row_scores = RowScores((300.0,), 300.0, lambda row: device_subject(GPU_TEMP, gpu=str(row)))
    state = DetectorState(1)
    row_scores.sync(rows, generations)
    state.sync(rows, generations)
    for blocks in ([1, 0], [1, 1], [2, 1], [2, 2]):
        row_scores.settle(rows, np.array(blocks), state, rows, lambda some, _block: np.zeros(len(some)))

    assert row_scores.scoring.alerts.gpu_days == pytest.approx(5 * 300 / 86_400)


def claimed(blocks: list[list[int]]) -> RowScores:
    """Outcomes of three series on three GPUs after these newest blocks; probabilities are claimed in each."""
    rows, generations = np.arange(3), np.ones(3, np.int64)
    row_scores = RowScores((300.0, 900.0), 300.0, lambda row: device_subject(GPU_TEMP, gpu=str(row)))
    state = DetectorState(2)
    row_scores.sync(rows, generations)
    state.sync(rows, generations)
    state.probability[:] = 0.1
    for newest in blocks:
        state.evaluated[rows] = newest
        row_scores.settle(rows, np.array(newest), state, rows, lambda some, _block: np.zeros(len(some)))
        row_scores.claim_breaches(rows, state, lambda some: np.ones((len(some), 2), np.bool_))
    return row_scores


def test_a_host_whose_clock_is_far_behind_takes_no_score_from_the_others() -> None:
    first, wrong = 6_000_000, -1_000_000
    scored = claimed([[block, block, block + wrong] for block in range(first, first + 8)]).scoring
    two = claimed([[block, block, 0] for block in range(first, first + 8)]).scoring
    assert scored.breaches.cells["count"][TEMPERATURE].tolist() == [2 * 7, 2 * 2]
    assert scored.unscored == 0
    assert scored.alerts.gpu_days == two.alerts.gpu_days == pytest.approx(2 * 8 * 300 / 86_400)


def test_claims_of_a_series_that_begins_again_are_given_up() -> None:
    row_scores = claimed([[block] * 3 for block in range(1000, 1003)])
    pending = len(row_scores.scoring.breaches.pending)
    row_scores.sync(np.arange(3), np.array([2, 1, 1]))
    assert len(row_scores.scoring.breaches.pending) == pending - 2
    assert row_scores.scoring.unscored == 2
