"""Clocks of hosts that are ahead: their series are as those of the others, also once the clock is set back."""

import numpy as np
import pytest
from tests.unit.predictor.conftest import SECOND_NS, START_SECONDS, Fleet, device_subject, fast, kernel_subject

from kernelcast.predictor.explain import explain
from kernelcast.predictor.intake import not_ahead
from kernelcast.predictor.scoring.classes import series_number
from kernelcast.predictor.settings import JudgeSettings, SeriesMatcher
from kernelcast.wire.identity import Versions

GPU_TEMP = "DCGM_FI_DEV_GPU_TEMP"
DAY_SECONDS = 86_400
AFTER_SECONDS = 120


@pytest.fixture(scope="module")
def after() -> Fleet:
    """Two GPUs of hosts whose clocks were ten days ahead for ten seconds, two minutes after they were set back."""
    judge = JudgeSettings(thresholds={GPU_TEMP: 87.0})
    fleet = Fleet(fast().model_copy(update={"judge": judge, "publish": (SeriesMatcher(metric=GPU_TEMP),)}))
    rng = np.random.default_rng(7)
    for gpu in ("0", "1"):
        fleet.device(GPU_TEMP, lambda _second: 70.0 + float(rng.normal(0.0, 0.3)), gpu=gpu)
    fleet.run(300)
    fleet.second += 10 * DAY_SECONDS
    fleet.run(10)
    fleet.second -= 10 * DAY_SECONDS
    fleet.gpu_days_before = fleet.cycle.row_scores.scoring.alerts.gpu_days  # type: ignore[attr-defined]
    fleet.run(AFTER_SECONDS)
    return fleet


@pytest.mark.slow
def test_the_time_of_a_cycle_is_the_right_one(after: Fleet) -> None:
    seconds = [report.time_ns / 1e9 - START_SECONDS for report in after.reports[-20:]]
    assert seconds == pytest.approx([after.second - 5 * back for back in range(19, -1, -1)], abs=5)


def test_gpus_are_observed_again(after: Fleet) -> None:
    observed_days = after.cycle.row_scores.scoring.alerts.gpu_days - after.gpu_days_before  # type: ignore[attr-defined]
    assert observed_days * DAY_SECONDS >= 2 * (AFTER_SECONDS - 10)


def test_a_cycle_before_the_first_series_has_no_time(fleet: Fleet) -> None:
    assert [report.time_ns for report in fleet.run(10)] == [0, 0]


def test_a_host_whose_clock_is_ahead_hides_no_fallen_clock_of_another_gpu(fleet: Fleet) -> None:
    for host in ("n1", "n2"):
        fleet.device("DCGM_FI_DEV_SM_CLOCK", lambda second: 1410.0 if second < 100 else 900.0, host=host)
        fleet.add(kernel_subject("gemm", host=host), lambda second: 1e-3 if second < 100 else 1.56e-3)
    fleet.ahead_seconds["n2"] = DAY_SECONDS
    fleet.run(120)
    (found,) = explain(fleet.cycle, fleet.windows, 'cuda_kernel_duration_seconds{Hostname="n1"}')
    assert found["decided"].startswith("abstains (clock_fell)")
    assert not fleet.alarms


def test_a_deploy_of_a_program_counts_on_each_host_by_its_own_clock(fleet: Fleet) -> None:
    hosts = ("n1", "n2", "n3")
    for host in hosts:
        fleet.add(kernel_subject("gemm", host=host), lambda second: 1e-3 if second < 100 else 1.4e-3)
    fleet.ahead_seconds["n3"] = DAY_SECONDS
    fleet.run(100)
    fleet.run(60, redeployed={("train", (host, "GPU-0", "")): Versions("v1") for host in hosts})
    assert not fleet.alarms
    known = fleet.cycle.detection.state.baseline[:3]
    assert known == pytest.approx([1.4e-3] * 3)


def test_intervals_of_other_hosts_are_scored_beside_one_whose_clock_is_ahead() -> None:
    fleet = Fleet(fast().model_copy(update={"publish": (SeriesMatcher(metric=GPU_TEMP),)}))
    rng = np.random.default_rng(8)
    for host in ("n1", "n2", "n3"):
        fleet.device(GPU_TEMP, lambda _second: 70.0 + float(rng.normal(0.0, 0.3)), host=host)
    fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _second: 90.0)
    fleet.ahead_seconds["n3"] = DAY_SECONDS
    fleet.run(150)
    assert set(fleet.cycle.coverage.by_metric()) == {GPU_TEMP}
    assert fleet.cycle.coverage.dropped == 0
    ended = [fleet.windows.row(device_subject(GPU_TEMP, host=host)) for host in ("n2", "n3")]
    fleet.windows.drop(np.array(ended))
    fleet.series = {subject: shape for subject, shape in fleet.series.items() if subject.label("Hostname") == "n1"}
    fleet.run(10)
    assert {row for row, _ in fleet.cycle.coverage.pending_rows()} == {0}
    fleet.second -= 5000
    fleet.run(30)
    assert not fleet.cycle.coverage.pending_rows()


def test_a_deploy_under_a_clock_that_was_ahead_counts_when_it_is_set_back(fleet: Fleet) -> None:
    fleet.add(kernel_subject("gemm"), lambda second: 1e-3 if second < 100 else 1.4e-3)
    fleet.run(90)
    fleet.ahead_seconds["n1"] = 600
    fleet.run(10)
    fleet.run(10, redeployed={("train", ("n1", "GPU-0", "")): Versions("v1")})
    fleet.ahead_seconds["n1"] = 0
    fleet.run(60)
    assert not fleet.alarms
    assert fleet.cycle.detection.state.baseline[0] == pytest.approx(1.4e-3)


def test_an_alert_that_began_under_a_clock_that_was_ahead_has_no_begin_in_the_future(fleet: Fleet) -> None:
    fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _second: 90.0)
    fleet.device(GPU_TEMP, lambda _second: 91.0)
    fleet.ahead_seconds["n1"] = DAY_SECONDS
    fleet.run(60)
    fleet.ahead_seconds["n1"] = 0
    fleet.run(60)
    (shown,) = fleet.reports[-1].predictions
    assert shown.degradation is not None
    assert START_SECONDS < shown.degradation.crossed_ns / 1e9 <= START_SECONDS + fleet.second


def test_no_forecast_of_a_clock_that_was_ahead_is_explained_as_one_of_now() -> None:
    update = {"publish": (SeriesMatcher(metric=GPU_TEMP),), "max_fits_per_sweep": 1}
    fleet, rng = Fleet(fast().model_copy(update=update)), np.random.default_rng(3)

    def explained() -> bool:
        (found,) = explain(fleet.cycle, fleet.windows, f'{GPU_TEMP}{{gpu="1"}}')
        return bool(found["forecast"])

    def temperature(_second: int) -> float:
        return 60.0 + float(rng.normal(0, 0.3))

    for gpu in ("0", "1"):
        fleet.device(GPU_TEMP, temperature, gpu=gpu)
    fleet.run(5)
    fleet.second += DAY_SECONDS
    del fleet.series[device_subject(GPU_TEMP)]
    fleet.run(150)
    assert explained()
    fleet.second -= DAY_SECONDS
    fleet.device(GPU_TEMP, temperature)
    fleet.run(30)
    assert not explained()


def test_times_that_were_saved_under_a_clock_that_was_ahead_are_not_in_the_future_after_a_restart(
    fleet: Fleet,
) -> None:
    fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _second: 90.0)
    fleet.device(GPU_TEMP, lambda _second: 91.0)
    fleet.add(kernel_subject("gemm"), lambda _second: 1e-3)
    fleet.write()
    rows, ahead = np.arange(3), START_SECONDS + DAY_SECONDS
    fleet.cycle.restore_regimes(rows, np.tile([float(ahead), np.nan, np.nan], (3, 1)))
    fleet.cycle.restore_alarms(rows, np.array([[0, 0], [ahead * SECOND_NS] * 2, [0, 0]]))
    fleet.run(120)
    (shown,) = fleet.reports[-1].predictions
    assert shown.degradation is not None
    assert START_SECONDS < shown.degradation.crossed_ns / 1e9 <= START_SECONDS + fleet.second
    assert fleet.cycle.detection.state.since_ns[1] <= (START_SECONDS + fleet.second) * SECOND_NS
    assert fleet.cycle.detection.state.baseline[2] == pytest.approx(1e-3)


@pytest.mark.parametrize("ahead", ["n1", "n2"])
def test_of_two_hosts_the_one_that_agrees_with_the_predictors_clock_gives_the_time_of_a_cycle(
    fleet: Fleet, ahead: str
) -> None:
    for host, gpus in (("n1", "01"), ("n2", "012")):
        for gpu in gpus:
            fleet.device(GPU_TEMP, lambda _second: 70.0, host=host, gpu=gpu)
    fleet.ahead_seconds[ahead] = DAY_SECONDS
    fleet.run(60)
    assert fleet.reports[-1].time_ns / 1e9 - START_SECONDS == pytest.approx(fleet.second, abs=5)


def test_a_host_whose_clock_is_ahead_is_scored_as_the_others(fleet: Fleet) -> None:
    for host, gpus in (("n1", "01"), ("n2", "012")):
        for gpu in gpus:
            fleet.device(GPU_TEMP, lambda _second: 70.0, host=host, gpu=gpu)
            fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _second: 90.0, host=host, gpu=gpu)
    fleet.ahead_seconds["n2"] = DAY_SECONDS
    fleet.run(90)
    claimed = set(fleet.cycle.row_scores.scoring.breaches.pending.ints("series").tolist())
    names = {series_number(one.metric, one.labels): one.label("Hostname") for one in fleet.series}
    assert {names[number] for number in claimed} == {"n1", "n2"}


def test_where_the_predictors_clock_is_slow_it_is_the_one_that_counts(fleet: Fleet) -> None:
    for host in ("n1", "n2", "n3"):
        fleet.device(GPU_TEMP, lambda _second: 70.0, host=host)
        fleet.ahead_seconds[host] = 600
    fleet.run(60)
    assert fleet.reports[-1].time_ns / 1e9 - START_SECONDS == pytest.approx(fleet.second, abs=5)


def test_a_host_whose_clock_is_ahead_keeps_its_past_when_it_is_set_back(fleet: Fleet) -> None:
    fleet.device(GPU_TEMP, float)
    fleet.ahead_seconds["n1"] = DAY_SECONDS
    fleet.run(100)
    fleet.ahead_seconds["n1"] = 0
    fleet.run(100)
    (window,) = fleet.windows.matrix(np.array([0]))
    assert window[-200:].tolist() == list(range(200))


@pytest.mark.parametrize(
    ("ahead", "taken"), [(0, 0), (59, 59), (61, 0), (DAY_SECONDS, 0), (-DAY_SECONDS, -DAY_SECONDS)]
)
def test_a_time_that_is_ahead_by_more_than_a_minute_is_taken_as_now(ahead: int, taken: int) -> None:
    times = np.array([START_SECONDS + ahead], np.uint64) * np.uint64(SECOND_NS)
    assert not_ahead(times, float(START_SECONDS)) == [(START_SECONDS + taken) * SECOND_NS]
