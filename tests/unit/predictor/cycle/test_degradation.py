"""Predictions and abstentions of whole cycles over a synthetic fleet."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.predictor.conftest import Fleet, kernel_subject

from kernelcast.predictor.cycle.predictions import Abstention
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.settings import JudgeSettings, PredictorSettings
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.identity import Versions

Noise = Callable[[float], float]

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
SLOWDOWN = "DCGM_FI_DEV_SLOWDOWN_TEMP"
POWER = "DCGM_FI_DEV_POWER_USAGE"
UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
CLOCK = "DCGM_FI_DEV_SM_CLOCK"
USED = "DCGM_FI_DEV_FB_USED"
FREE = "DCGM_FI_DEV_FB_FREE"
TOTAL_MIB = 40_000.0


def steady_load(fleet: Fleet, noise: Noise) -> None:
    fleet.device(SLOWDOWN, lambda _: 90.0)
    fleet.device(POWER, lambda _: 280.0 + noise(4.0))
    fleet.device(UTILISATION, lambda _: 97.0 + noise(1.0))
    fleet.device(CLOCK, lambda _: 1410.0)


def memory(fleet: Fleet, used: Callable[[int], float]) -> None:
    fleet.device(USED, used)
    fleet.device(FREE, lambda second: TOTAL_MIB - used(second))


@pytest.mark.parametrize("slope", [0.05, 0.15, 0.3])
def test_a_thermal_drift_is_predicted_before_the_slowdown_temperature_is_reached(
    fleet: Fleet, noise: Noise, slope: float
) -> None:
    steady_load(fleet, noise)
    crossing = 60 + round(25 / slope)
    fleet.device(TEMPERATURE, lambda second: float(round(65.0 + slope * max(second - 60, 0) + noise(0.5))))
    fleet.run(crossing)
    assert fleet.causes() == {Cause.THERMAL}
    number, alarm = fleet.alarms[0]
    assert crossing - number * 5 >= 20
    assert alarm.degradation is not None
    assert alarm.degradation.threshold == 90.0
    ahead = [(number, one.degradation) for number, one in fleet.alarms if one.degradation]
    number, last = next((number, one) for number, one in reversed(ahead) if not one.passed)
    remaining = crossing - number * 5
    assert last.seconds[0.5] == pytest.approx(remaining, abs=max(15.0, 0.3 * remaining))


def test_a_drift_of_0_15_degrees_a_second_shows_within_a_minute_of_samples(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)
    fleet.device(TEMPERATURE, lambda second: float(round(68.0 + 0.15 * second + noise(0.5))))
    fleet.run(61)
    assert fleet.causes() == {Cause.THERMAL}


def test_a_series_counts_as_judged_once_its_history_carries_a_horizon_and_only_while_it_reports(
    fleet: Fleet, noise: Noise
) -> None:
    steady_load(fleet, noise)
    reporting = {"until": 400}

    def temperature(second: int) -> float:
        return float(round(70.0 + noise(0.6))) if second < reporting["until"] else math.nan

    fleet.device(TEMPERATURE, temperature)
    assert [report.judged for report in fleet.run(10)] == [0, 0]
    assert fleet.run(390)[-1].judged == 1
    assert fleet.run(60)[-1].judged == 0


def test_a_series_whose_first_value_is_in_an_unfinished_block_is_not_judged(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)
    begins = 44
    fleet.device(TEMPERATURE, lambda second: float(round(70.0 + noise(0.6))) if second >= begins else math.nan)
    assert [report.judged for report in fleet.run(begins + 10)] == [0] * ((begins + 10) // 5)


def test_a_hot_but_stable_gpu_raises_nothing(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)
    fleet.device(TEMPERATURE, lambda _: float(round(87.0 + noise(0.6))))
    fleet.run(400)
    assert not fleet.alarms


@pytest.mark.slow
def test_temperature_that_follows_its_load_raises_nothing(fleet: Fleet, noise: Noise) -> None:
    def wave(second: int) -> float:
        return math.cos(2 * math.pi * second / 300)

    fleet.device(SLOWDOWN, lambda _: 90.0)
    fleet.device(POWER, lambda second: 200.0 + 120.0 * wave(second) + noise(0.5))
    fleet.device(UTILISATION, lambda second: 55.0 + 40.0 * wave(second) + noise(1.0))
    fleet.device(TEMPERATURE, lambda second: float(round(65.0 + 17.0 * wave(second - 1) + noise(0.5))))
    fleet.run(900)
    assert not fleet.alarms


def test_a_gpu_that_warms_up_to_a_stable_level_raises_nothing(fleet: Fleet, noise: Noise) -> None:
    fleet.device(SLOWDOWN, lambda _: 90.0)
    fleet.device(POWER, lambda second: (60.0 if second < 60 else 280.0) + noise(4.0))
    fleet.device(UTILISATION, lambda second: 0.0 if second < 60 else 97.0)
    fleet.device(
        TEMPERATURE,
        lambda second: float(
            round(38.0 + (42.0 * (1 - math.exp(-(second - 60) / 12)) if second > 60 else 0) + noise(0.5))
        ),
    )
    fleet.run(400)
    assert not fleet.alarms


def test_a_memory_leak_is_predicted_with_the_time_that_is_left(fleet: Fleet, noise: Noise) -> None:
    def leak(second: int) -> float:
        return min(20_000.0 + 60.0 * max(second - 60, 0) + noise(20.0), TOTAL_MIB)

    memory(fleet, leak)
    fleet.run(200)
    assert fleet.causes() == {Cause.MEMORY_LEAK}
    last = fleet.alarms[-1][1].degradation
    assert last is not None
    assert last.threshold == pytest.approx(0.97 * TOTAL_MIB, rel=0.01)
    left = (0.97 * TOTAL_MIB - leak(199)) / 60.0
    assert last.seconds[0.5] == pytest.approx(left, rel=0.25)


def test_preallocated_memory_raises_nothing(fleet: Fleet, noise: Noise) -> None:
    memory(fleet, lambda second: (3_000.0 if second < 100 else 38_000.0) + noise(2.0))
    fleet.run(400)
    assert not fleet.alarms


def test_a_restart_that_refills_its_memory_raises_nothing(fleet: Fleet, noise: Noise) -> None:
    def used(second: int) -> float:
        if second < 150:
            return 30_000.0 + noise(5.0)
        return min(500.0 + 400.0 * (second - 150), 30_000.0) + noise(5.0)

    memory(fleet, used)
    fleet.run(450)
    assert not fleet.alarms


def test_one_kernel_that_slows_down_while_its_clock_holds_is_a_kernel_slowdown(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)
    fleet.add(kernel_subject("gemm"), lambda second: (1e-3 if second < 120 else 1.6e-3) * (1 + noise(0.02)))
    fleet.add(kernel_subject("relu"), lambda _: 1e-4 * (1 + noise(0.02)))
    fleet.add(kernel_subject("norm"), lambda _: 2e-4 * (1 + noise(0.02)))
    fleet.run(200)
    assert fleet.causes() == {Cause.KERNEL_SLOWDOWN}
    assert {one.subject.label("kernel") for _, one in fleet.alarms} == {"gemm"}
    last = fleet.alarms[-1][1].degradation
    assert last is not None
    assert last.passed
    assert last.probability == {60.0: 1.0, 300.0: 1.0}
    assert set(last.seconds.values()) == {0.0}


def test_a_kernel_that_slows_down_gradually_is_predicted_before_its_threshold(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)
    fleet.add(
        kernel_subject("gemm", variant="v1"),
        lambda second: 1e-3 * (1 + 0.001 * max(second - 100, 0)) * (1 + noise(0.01)),
    )
    fleet.run(200)
    assert fleet.causes() == {Cause.KERNEL_SLOWDOWN}
    _, first = fleet.alarms[0]
    assert first.value < 1.2e-3
    assert first.subject.without_variant.metric == "cuda_kernel_duration_seconds"


def test_rising_load_with_steady_kernels_raises_nothing(fleet: Fleet, noise: Noise) -> None:
    fleet.device(UTILISATION, lambda second: min(20.0 + 0.3 * second, 99.0) + noise(0.5))
    fleet.device(POWER, lambda second: min(100.0 + second, 300.0) + noise(3.0))
    fleet.add(kernel_subject("gemm"), lambda _: 1e-3 * (1 + noise(0.02)))
    fleet.run(240)
    assert not fleet.alarms


def test_a_deploy_that_changes_most_kernels_begins_a_new_regime(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)

    def deployed(slow: float) -> Callable[[int], float]:
        return lambda second: 1e-3 * (1.0 if second < 150 else slow) * (1 + noise(0.02))

    for number in range(6):
        fleet.add(kernel_subject(f"k{number}"), deployed(1.3 + 0.1 * number))
    fleet.run(400)
    assert not fleet.alarms
    assert sum(report.regimes_begun for report in fleet.reports) >= 6


def test_a_new_code_version_begins_a_new_regime(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)
    fleet.add(kernel_subject("gemm"), lambda second: (1e-3 if second < 100 else 1.6e-3) * (1 + noise(0.02)))
    fleet.run(100)
    fleet.run(5, redeployed={("train", kernel_subject("gemm").device): Versions("v1")})
    fleet.run(200)
    assert not fleet.alarms


def test_kernels_that_slow_down_with_their_clock_are_not_called_slow(fleet: Fleet, noise: Noise) -> None:
    fleet.device(CLOCK, lambda second: 1410.0 if second < 120 else 900.0)
    fleet.add(kernel_subject("gemm"), lambda second: (1e-3 if second < 120 else 1.56e-3) * (1 + noise(0.02)))
    fleet.run(170)
    assert not fleet.alarms
    assert Abstention.CLOCK_FELL in fleet.abstentions()


def test_programs_that_slow_down_together_on_one_gpu_contend(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)
    for program in ("train", "serve"):
        for number in range(3):
            fleet.add(
                kernel_subject(f"k{number}", program=program),
                lambda second: 1e-3 * (1.0 if second < 120 else 1.6) * (1 + noise(0.02)),
            )
    fleet.run(180)
    assert fleet.causes() == {Cause.CONTENTION}


def test_collectives_are_not_judged_by_how_long_they_wait(fleet: Fleet, noise: Noise) -> None:
    fleet.add(
        kernel_subject("nccl", kernel_class="collective"),
        lambda second: (1e-3 if second < 120 else 3e-3) * (1 + noise(0.02)),
    )
    fleet.run(200)
    assert not fleet.alarms


def test_kernels_whose_baseline_is_wide_are_not_judged(fleet: Fleet) -> None:
    rng = np.random.default_rng(3)
    fleet.add(kernel_subject("gemm"), lambda second: float(rng.lognormal(-7, 0.8)) * (1 if second < 120 else 2))
    fleet.run(240)
    assert not fleet.alarms


def test_a_prediction_ends_when_the_drift_ends(fleet: Fleet, noise: Noise) -> None:
    steady_load(fleet, noise)
    fleet.device(TEMPERATURE, lambda second: float(round(66.0 + 0.15 * min(max(second - 60, 0), 80) + noise(0.5))))
    fleet.run(140)
    assert fleet.causes() == {Cause.THERMAL}
    late = [one for report in fleet.run(300)[-10:] for one in report.predictions if one.degradation is not None]
    assert not late


def test_horizons_far_beyond_the_history_are_not_answered(fast_settings: PredictorSettings, noise: Noise) -> None:
    fleet = Fleet(fast_settings.model_copy(update={"judge": JudgeSettings(max_extrapolation=4.0)}))
    steady_load(fleet, noise)
    fleet.device(TEMPERATURE, lambda second: float(round(66.0 + 0.4 * second + noise(0.4))))
    fleet.run(50)
    assert {tuple(one.degradation.probability) for one in fleet.degradations if one.degradation} == {(60.0,)}


@pytest.mark.slow
def test_contention_of_many_kernels_is_found_in_one_pass_over_the_series(
    fleet: Fleet, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    is_judged_kernel = vars(Subject)["is_judged_kernel"].fget

    def count(subject: Subject) -> bool:
        nonlocal asked
        asked += 1
        return bool(is_judged_kernel(subject))

    for program in ("train", "serve"):
        for number in range(40):
            fleet.add(
                kernel_subject(f"k{number}", program=program),
                lambda second: 1e-3 * (1.0 if second < 60 else 1.6) * (1 + noise(0.02)),
            )
    fleet.run(115)
    monkeypatch.setattr(Subject, "is_judged_kernel", property(count))
    fleet.run(6)
    assert fleet.causes() == {Cause.CONTENTION}
    assert asked <= 2 * len(fleet.series)
