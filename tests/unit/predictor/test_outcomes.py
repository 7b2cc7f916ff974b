"""The live cycle scores its published forecasts."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.predictor.conftest import Fleet, device_subject

from kernelcast.predictor.cycle.memory import DetectorMemory
from kernelcast.predictor.cycle.scores.outcomes import Outcomes
from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.published import scores
from kernelcast.predictor.settings import JudgeSettings, PredictorSettings, SeriesMatcher

GPU_TEMP = "DCGM_FI_DEV_GPU_TEMP"
TEMPERATURE = CLASSES.index("temperature")


def watched(settings: PredictorSettings) -> Fleet:
    judge = JudgeSettings(thresholds={GPU_TEMP: 87.0})
    return Fleet(settings.model_copy(update={"judge": judge, "publish": (SeriesMatcher(metric=GPU_TEMP),)}))


def test_forecasts_and_probabilities_of_live_series_are_scored_by_class_and_horizon(
    fast_settings: PredictorSettings, noise: Callable[[float], float]
) -> None:
    fleet = watched(fast_settings)
    fleet.device(GPU_TEMP, lambda _second: 70.0 + noise(0.3), gpu="0")
    fleet.device(GPU_TEMP, lambda second: min(70.0 + max(second - 300, 0) / 15, 95.0) + noise(0.3), gpu="1")
    fleet.run(900)
    scoring = fleet.cycle.outcomes.scoring
    claims = scoring.breaches.cells["count"][TEMPERATURE]

    assert scoring.intervals.cells["count"][TEMPERATURE, 0] >= 2
    assert scoring.breaches.crossings[TEMPERATURE].max() == 1
    assert claims[0] > 2 * claims[1] > 0
    assert scoring.unscored < claims.sum() / 4
    assert scoring.alerts.right[TEMPERATURE] == 1
    assert 1300 < scoring.alerts.gpu_days * 86_400 <= 1800
    found = {one.metric.prometheus_name for one in scores(scoring)}
    assert {"kernelcast_forecast_brier_score", "kernelcast_forecast_interval_coverage_ratio"} <= found
    assert all(np.isfinite(one.value) for one in scores(scoring))


def test_scores_continue_under_the_same_series_after_a_restart(
    fast_settings: PredictorSettings, noise: Callable[[float], float]
) -> None:
    before, after = watched(fast_settings), watched(fast_settings)
    for fleet, gpus in ((before, ("0", "1")), (after, ("1", "0"))):
        for gpu in gpus:
            fleet.device(GPU_TEMP, lambda _second: 70.0 + noise(0.3), gpu=gpu)
    before.run(400)
    after.second = before.second
    after.run(200)
    pending = before.cycle.outcomes.scoring.breaches.pending
    counted = before.cycle.outcomes.scoring.breaches.cells["count"].sum()
    assert len(pending) > 0
    after.cycle.outcomes.scoring.load(before.cycle.outcomes.scoring.dump())
    known = set(pending.columns["series"].tolist())
    after.run(400)

    assert after.cycle.outcomes.scoring.breaches.cells["count"].sum() > counted
    assert set(after.cycle.outcomes.scoring.breaches.pending.columns["series"].tolist()) <= known


def test_horizons_that_change_keep_the_scores_of_the_others(
    fast_settings: PredictorSettings, noise: Callable[[float], float]
) -> None:
    fleet = watched(fast_settings)
    fleet.device(GPU_TEMP, lambda _second: 70.0 + noise(0.3))
    fleet.run(600)
    outcomes = fleet.cycle.outcomes
    counted = outcomes.scoring.breaches.cells["count"][TEMPERATURE, 0]
    outcomes.use_horizons((60.0, 120.0, 600.0))

    assert counted > 0
    assert outcomes.scoring.breaches.cells["count"][TEMPERATURE].tolist() == [counted, 0, 0]


def test_a_gpu_whose_block_ends_a_cycle_later_than_others_counts_as_observed() -> None:
    rows, generations = np.arange(2), np.ones(2, np.int64)
    outcomes = Outcomes((300.0,), 300.0, lambda row: device_subject(GPU_TEMP, gpu=str(row)))
    memory = DetectorMemory(1)
    outcomes.sync(rows, generations)
    memory.sync(rows, generations)
    for blocks in ([1, 0], [1, 1], [2, 1], [2, 2]):
        outcomes.settle(rows, np.array(blocks), memory, rows, lambda some, _block: np.zeros(len(some)))

    assert outcomes.scoring.alerts.gpu_days == pytest.approx(5 * 300 / 86_400)
