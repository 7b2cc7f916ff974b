"""Predictions and abstentions of whole cycles over a synthetic fleet.

Most scenarios are hosts of one fleet, which runs once for all of them: a cycle costs nearly the same for many series.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.predictor.conftest import START_SECONDS, Fleet, Shape, fast, kernel_subject

from kernelcast.predictor.cycle.predictions import Abstention, Prediction
from kernelcast.predictor.explain import explain
from kernelcast.predictor.scoring.classes import series_number
from kernelcast.predictor.scoring.published import duration_label
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.settings import JudgeSettings, LimitSettings, SeriesMatcher
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
SLOPES = (0.05, 0.15, 0.3)
WAVE_SECONDS = 300
LENGTH_SECONDS = 600
REDEPLOYED_SECONDS = 100
CYCLE_SECONDS = 5


class Host:
    """One host of a fleet, with noise of its own, whose program has its name; and what was published about it."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, name
        self._rng = np.random.default_rng(7)

    def noise(self, scale: float) -> float:
        return float(self._rng.normal(0.0, scale))

    def device(self, metric: str, shape: Shape) -> None:
        self.fleet.device(metric, shape, host=self.name)

    def kernel(self, name: str, shape: Shape, *, program: str = "", **labels: str) -> None:
        self.fleet.add(kernel_subject(name, program=program or self.name, host=self.name, **labels), shape)

    def steady_load(self) -> None:
        self.device(SLOWDOWN, lambda _: 90.0)
        self.device(POWER, lambda _: 280.0 + self.noise(4.0))
        self.device(UTILISATION, lambda _: 97.0 + self.noise(1.0))
        self.device(CLOCK, lambda _: 1410.0)

    def memory(self, used: Shape) -> None:
        self.device(USED, used)
        self.device(FREE, lambda second: TOTAL_MIB - used(second))

    def alarms(self, seconds: int = LENGTH_SECONDS) -> list[tuple[int, Prediction]]:
        """Predictions with an alert in the first seconds, with the number of their cycle."""
        return [
            (number, one)
            for number, one in self.fleet.alarms
            if one.subject.label("Hostname") == self.name and (number + 1) * CYCLE_SECONDS <= seconds
        ]

    def causes(self, seconds: int = LENGTH_SECONDS) -> set[Cause]:
        return {one.degradation.cause for _, one in self.alarms(seconds) if one.degradation is not None}


def drift_crossing(slope: float) -> int:
    """The second in which the thermal drift reaches the slowdown temperature."""
    return 60 + round(25 / slope)


def drifting(host: Host, slope: float) -> Shape:
    return lambda second: float(round(min(65.0 + slope * max(second - 60, 0) + host.noise(0.5), 95.0)))


def add_temperatures(host: Callable[[str], Host]) -> None:
    for slope in SLOPES:
        one = host(f"drift {slope}")
        one.steady_load()
        one.device(TEMPERATURE, drifting(one, slope))

    rising = host("rising")
    rising.steady_load()
    rising.device(TEMPERATURE, lambda second: float(round(min(68.0 + 0.15 * second + rising.noise(0.5), 95.0))))

    hot = host("hot")
    hot.steady_load()
    hot.device(TEMPERATURE, lambda _: float(round(87.0 + hot.noise(0.6))))

    ended = host("ended drift")
    ended.steady_load()
    ended.device(
        TEMPERATURE, lambda second: float(round(66.0 + 0.15 * min(max(second - 60, 0), 80) + ended.noise(0.5)))
    )


def add_loads(host: Callable[[str], Host]) -> None:
    def wave(second: int) -> float:
        return math.cos(2 * math.pi * second / WAVE_SECONDS)

    following = host("following")
    following.device(SLOWDOWN, lambda _: 90.0)
    following.device(POWER, lambda second: 200.0 + 120.0 * wave(second) + following.noise(0.5))
    following.device(UTILISATION, lambda second: 55.0 + 40.0 * wave(second) + following.noise(1.0))
    following.device(TEMPERATURE, lambda second: float(round(65.0 + 17.0 * wave(second - 1) + following.noise(0.5))))

    warming = host("warming")
    warming.device(SLOWDOWN, lambda _: 90.0)
    warming.device(POWER, lambda second: (60.0 if second < 60 else 280.0) + warming.noise(4.0))
    warming.device(UTILISATION, lambda second: 0.0 if second < 60 else 97.0)
    warming.device(
        TEMPERATURE,
        lambda second: float(
            round(38.0 + (42.0 * (1 - math.exp(-(second - 60) / 12)) if second > 60 else 0) + warming.noise(0.5))
        ),
    )

    rising = host("rising load")
    rising.device(UTILISATION, lambda second: min(20.0 + 0.3 * second, 99.0) + rising.noise(0.5))
    rising.device(POWER, lambda second: min(100.0 + second, 300.0) + rising.noise(3.0))
    rising.kernel("gemm", lambda _: 1e-3 * (1 + rising.noise(0.02)))


def leaking(second: int) -> float:
    return min(20_000.0 + 60.0 * max(second - 60, 0), TOTAL_MIB)


def add_memories(host: Callable[[str], Host]) -> None:
    leak = host("leak")
    leak.memory(lambda second: min(leaking(second) + leak.noise(20.0), TOTAL_MIB))

    preallocated = host("preallocated")
    preallocated.memory(lambda second: (3_000.0 if second < 100 else 38_000.0) + preallocated.noise(2.0))

    refilled = host("refilled")

    def used(second: int) -> float:
        if second < 150:
            return 30_000.0 + refilled.noise(5.0)
        return min(500.0 + 400.0 * (second - 150), 30_000.0) + refilled.noise(5.0)

    refilled.memory(used)


def stepping(host: Host, begin: int, slow: float) -> Shape:
    """A millisecond, and a multiple of it from a second on."""
    return lambda second: 1e-3 * (1.0 if second < begin else slow) * (1 + host.noise(0.02))


def add_slow_kernels(host: Callable[[str], Host]) -> None:
    slow = host("slow kernel")
    slow.steady_load()
    slow.kernel("gemm", stepping(slow, 120, 1.6))
    slow.kernel("relu", lambda _: 1e-4 * (1 + slow.noise(0.02)))
    slow.kernel("norm", lambda _: 2e-4 * (1 + slow.noise(0.02)))

    gradual = host("gradual")
    gradual.steady_load()
    gradual.kernel(
        "gemm", lambda second: 1e-3 * (1 + 0.001 * max(second - 100, 0)) * (1 + gradual.noise(0.01)), variant="v1"
    )

    contending = host("contending")
    contending.steady_load()
    for program in ("train", "serve"):
        for number in range(3):
            contending.kernel(f"k{number}", stepping(contending, 120, 1.6), program=f"contending {program}")


def add_other_kernels(host: Callable[[str], Host]) -> None:
    deployed = host("deployed")
    deployed.steady_load()
    for number in range(6):
        deployed.kernel(f"k{number}", stepping(deployed, 150, 1.3 + 0.1 * number))

    versioned = host("versioned")
    versioned.steady_load()
    versioned.kernel("gemm", stepping(versioned, REDEPLOYED_SECONDS, 1.6))

    clocked = host("clocked")
    clocked.device(CLOCK, lambda second: 1410.0 if second < 120 else 900.0)
    clocked.kernel("gemm", stepping(clocked, 120, 1.56))

    waiting = host("waiting")
    waiting.kernel("nccl", stepping(waiting, 120, 3.0), kernel_class="collective")

    rng = np.random.default_rng(3)
    host("wide").kernel("gemm", lambda second: float(rng.lognormal(-7, 0.8)) * (1 if second < 120 else 2))


@pytest.fixture(scope="module")
def hosts() -> dict[str, Host]:
    """Every scenario as a host of one fleet, after it has run."""
    fleet = Fleet(fast())
    found: dict[str, Host] = {}

    def host(name: str) -> Host:
        return found.setdefault(name, Host(fleet, name))

    for add in (add_temperatures, add_loads, add_memories, add_slow_kernels, add_other_kernels):
        add(host)
    fleet.run(REDEPLOYED_SECONDS)
    device = kernel_subject("gemm", host="versioned").device
    fleet.run(CYCLE_SECONDS, redeployed={("versioned", device): Versions("v1")})
    fleet.run(LENGTH_SECONDS - fleet.second)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("slope", SLOPES)
def test_a_thermal_drift_is_predicted_before_the_slowdown_temperature_is_reached(
    hosts: dict[str, Host], slope: float
) -> None:
    drift, crossing = hosts[f"drift {slope}"], drift_crossing(slope)
    assert drift.causes(crossing) == {Cause.THERMAL}
    number, alarm = drift.alarms(crossing)[0]
    assert crossing - number * CYCLE_SECONDS >= 20
    assert alarm.degradation is not None
    assert alarm.degradation.threshold == 90.0
    ahead = [(number, one.degradation) for number, one in drift.alarms(crossing) if one.degradation]
    number, last = next((number, one) for number, one in reversed(ahead) if not one.passed)
    remaining = crossing - number * CYCLE_SECONDS
    assert last.seconds[0.5] == pytest.approx(remaining, abs=max(15.0, 0.3 * remaining))


def test_a_drift_of_0_15_degrees_a_second_shows_within_a_minute_of_samples(hosts: dict[str, Host]) -> None:
    assert hosts["rising"].causes(61) == {Cause.THERMAL}


@pytest.mark.slow
def test_no_forecast_denies_a_breach_that_is_predicted(hosts: dict[str, Host]) -> None:
    predicted = [
        (mean, one.degradation.threshold, probability)
        for name in ("rising", "leak", *(f"drift {slope}" for slope in SLOPES))
        for _, one in hosts[name].alarms()
        if one.degradation is not None and not one.degradation.passed
        for horizon, probability in one.degradation.probability.items()
        for mean, _, _ in [one.bounds.get(horizon, (math.nan, math.nan, math.nan))]
    ]
    assert any(mean < threshold for mean, threshold, _ in predicted)
    assert not [
        (mean, threshold, probability)
        for mean, threshold, probability in predicted
        if probability > 0.8 and mean < threshold
    ]


@pytest.fixture
def lone(fleet: Fleet) -> Host:
    """A GPU under a steady load that is a fleet of its own."""
    host = Host(fleet, "n1")
    host.steady_load()
    return host


@pytest.mark.slow
def test_a_series_counts_as_judged_once_its_history_carries_a_horizon_and_only_while_it_reports(lone: Host) -> None:
    until = 150

    def temperature(second: int) -> float:
        return float(round(70.0 + lone.noise(0.6))) if second < until else math.nan

    lone.device(TEMPERATURE, temperature)
    assert [report.judged for report in lone.fleet.run(10)] == [0, 0]
    assert lone.fleet.run(until - 10)[-1].judged == 1
    assert lone.fleet.run(60)[-1].judged == 0


def test_a_series_whose_first_value_is_in_an_unfinished_block_is_not_judged(lone: Host) -> None:
    begins = 44
    lone.device(TEMPERATURE, lambda second: float(round(70.0 + lone.noise(0.6))) if second >= begins else math.nan)
    assert [report.judged for report in lone.fleet.run(begins + 10)] == [0] * ((begins + 10) // 5)


def test_a_series_with_a_gap_and_too_few_blocks_with_a_value_is_not_judged_and_says_why(lone: Host) -> None:
    lone.device(TEMPERATURE, lambda second: math.nan if 20 <= second < 60 else float(round(70.0 + lone.noise(0.6))))
    report = lone.fleet.run(70)[-1]
    assert report.judged == 0
    assert report.abstentions[Abstention.UNUSABLE_WINDOW] == 1
    (found,) = explain(lone.fleet.cycle, lone.fleet.windows, TEMPERATURE)
    assert found["decided"].startswith("abstains (unusable_window): 1")
    assert lone.fleet.run(20)[-1].judged == 1


def test_a_hot_but_stable_gpu_raises_nothing(hosts: dict[str, Host]) -> None:
    assert not hosts["hot"].alarms()


def test_temperature_that_follows_its_load_raises_nothing(hosts: dict[str, Host]) -> None:
    assert not hosts["following"].alarms()


def test_a_gpu_that_warms_up_to_a_stable_level_raises_nothing(hosts: dict[str, Host]) -> None:
    assert not hosts["warming"].alarms()


def test_a_memory_leak_is_predicted_with_the_time_that_is_left(hosts: dict[str, Host]) -> None:
    assert hosts["leak"].causes(200) == {Cause.MEMORY_LEAK}
    last = hosts["leak"].alarms(200)[-1][1].degradation
    assert last is not None
    assert last.threshold == pytest.approx(0.97 * TOTAL_MIB, rel=0.01)
    left = (0.97 * TOTAL_MIB - leaking(199)) / 60.0
    assert last.seconds[0.5] == pytest.approx(left, rel=0.25)


def test_preallocated_memory_raises_nothing(hosts: dict[str, Host]) -> None:
    assert not hosts["preallocated"].alarms()


def test_a_restart_that_refills_its_memory_raises_nothing(hosts: dict[str, Host]) -> None:
    assert not hosts["refilled"].alarms()


def test_one_kernel_that_slows_down_while_its_clock_holds_is_a_kernel_slowdown(hosts: dict[str, Host]) -> None:
    slow = hosts["slow kernel"]
    assert slow.causes(200) == {Cause.KERNEL_SLOWDOWN}
    assert {one.subject.label("kernel") for _, one in slow.alarms(200)} == {"gemm"}
    last = slow.alarms(200)[-1][1].degradation
    assert last is not None
    assert last.passed
    assert last.probability == {60.0: 1.0, 300.0: 1.0}
    assert set(last.seconds.values()) == {0.0}


def test_a_kernel_that_slows_down_gradually_is_predicted_before_its_threshold(hosts: dict[str, Host]) -> None:
    gradual = hosts["gradual"]
    assert gradual.causes(200) == {Cause.KERNEL_SLOWDOWN}
    _, first = gradual.alarms()[0]
    assert first.value < 1.2e-3
    assert first.subject.without_variant.metric == "cuda_kernel_duration_seconds"


def test_rising_load_with_steady_kernels_raises_nothing(hosts: dict[str, Host]) -> None:
    assert not hosts["rising load"].alarms()


def test_a_deploy_that_changes_most_kernels_begins_a_new_regime(hosts: dict[str, Host]) -> None:
    deployed = hosts["deployed"]
    assert not deployed.alarms()
    kernels = [kernel_subject(f"k{number}", program="deployed", host="deployed") for number in range(6)]
    fleet = deployed.fleet
    rows = np.array([fleet.windows.admit(one, owner=0) for one in kernels], np.int64)
    assert (fleet.cycle.regimes.latest(rows) >= 1).all()
    assert sum(report.regimes_begun for report in fleet.reports) >= len(kernels)


def test_a_new_code_version_begins_a_new_regime(hosts: dict[str, Host]) -> None:
    assert not hosts["versioned"].alarms()


def test_kernels_that_slow_down_with_their_clock_are_not_called_slow(hosts: dict[str, Host]) -> None:
    """Other hosts report a utilisation; without one, the low clock may be that of a GPU with little to do."""
    clocked = hosts["clocked"]
    assert not clocked.alarms()
    assert Abstention.CLOCK_FELL in clocked.fleet.abstentions()


def test_programs_that_slow_down_together_on_one_gpu_contend(hosts: dict[str, Host]) -> None:
    assert hosts["contending"].causes(180) == {Cause.CONTENTION}


def test_collectives_are_not_judged_by_how_long_they_wait(hosts: dict[str, Host]) -> None:
    assert not hosts["waiting"].alarms()


def test_kernels_whose_baseline_is_wide_are_not_judged(hosts: dict[str, Host]) -> None:
    assert not hosts["wide"].alarms()


def test_a_prediction_ends_when_the_drift_ends(hosts: dict[str, Host]) -> None:
    ended = hosts["ended drift"]
    assert ended.causes(140) == {Cause.THERMAL}
    late = [one for report in ended.fleet.reports[78:] for one in report.predictions if one.degradation is not None]
    assert not [one for one in late if one.subject.label("Hostname") == ended.name]


def test_horizons_far_beyond_the_history_are_not_answered() -> None:
    fleet = Fleet(fast().model_copy(update={"judge": JudgeSettings(max_extrapolation=4.0)}))
    host = Host(fleet, "n1")
    host.steady_load()
    host.device(TEMPERATURE, lambda second: float(round(66.0 + 0.4 * second + host.noise(0.4))))
    fleet.run(50)
    assert {tuple(one.degradation.probability) for one in fleet.degradations if one.degradation} == {(60.0,)}


def test_the_probability_of_a_horizon_beyond_288_blocks_is_absent_not_that_of_288_blocks() -> None:
    update = {"breach_seconds": 2.0, "horizons_seconds": (60.0, 600.0), "judge": JudgeSettings(max_extrapolation=40.0)}
    fleet = Fleet(fast().model_copy(update=update))
    host = Host(fleet, "n1")
    host.steady_load()
    host.device(TEMPERATURE, lambda second: float(round(66.0 + 0.4 * min(second, 45) + host.noise(0.4))))
    fleet.run(50)
    assert {tuple(one.degradation.probability) for one in fleet.degradations if one.degradation} == {(60.0,)}
    assert set(fleet.cycle.row_scores.scoring.breaches.pending.ints("horizon").tolist()) == {0}


def test_a_series_that_falls_out_of_the_budget_publishes_no_old_forecast() -> None:
    update = {"publish": (SeriesMatcher(metric="DCGM_FI_DEV_GPU_TEMP"),), "max_fits_per_sweep": 1}
    fleet, rng = Fleet(fast().model_copy(update=update)), np.random.default_rng(3)
    fleet.device("DCGM_FI_DEV_GPU_TEMP", lambda at: np.nan if 3 < at < 150 else 60.0 + rng.normal(0, 0.3), gpu="0")
    fleet.device("DCGM_FI_DEV_GPU_TEMP", lambda _: 60.0 + rng.normal(0, 0.3), gpu="1")
    fleet.run(150)
    (alone,) = fleet.reports[-1].predictions
    assert alone.bounds
    fleet.run(20)
    shown = {one.subject.label("gpu"): one for one in fleet.reports[-1].predictions}
    assert not shown["1"].bounds
    assert shown["1"].end_ns == shown["0"].end_ns
    explained = explain(fleet.cycle, fleet.windows, "DCGM_FI_DEV_GPU_TEMP")
    assert {one["labels"]["gpu"] for one in explained if one["forecast"]} == set()


def test_forecasts_of_a_site_without_any_limit_are_scored() -> None:
    metric = "DCGM_FI_DEV_POWER_USAGE"
    fleet, rng = Fleet(fast().model_copy(update={"publish": (SeriesMatcher(metric=metric),)})), np.random.default_rng(3)
    fleet.device(metric, lambda _: 600.0 + rng.normal(0, 5.0))
    fleet.run(210)
    assert set(fleet.cycle.coverage.by_metric()) == {metric}


@pytest.mark.parametrize("horizon", [10.0, 300.0])
def test_an_alert_looks_ahead_as_far_as_the_horizons_of_its_series(horizon: float) -> None:
    own = LimitSettings(metric=TEMPERATURE, labels={"Hostname": "n1"}, horizons_seconds=(horizon,))
    host = Host(Fleet(fast().model_copy(update={"limits": (own,)})), "n1")
    host.steady_load()
    host.device(TEMPERATURE, drifting(host, 0.15))
    crossing = drift_crossing(0.15)
    host.fleet.run(crossing + 20)
    first, found = host.alarms()[0]
    assert found.degradation is not None
    assert set(found.degradation.seconds.values()) <= {0.0} or max(found.degradation.seconds.values()) <= horizon
    assert ((first + 1) * CYCLE_SECONDS < crossing - 30) == (horizon > 60)


def test_breach_probabilities_that_are_not_published_are_not_scored() -> None:
    own = LimitSettings(metric=TEMPERATURE, labels={"gpu": "1"}, horizons_seconds=(10.0,))
    fleet, rng = Fleet(fast().model_copy(update={"limits": (own,)})), np.random.default_rng(3)
    for gpu in ("0", "1"):
        fleet.device(TEMPERATURE, lambda _second: 60.0 + rng.normal(0, 0.3), gpu=gpu)
        fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _second: 90.0, gpu=gpu)
    fleet.run(100)
    rows = {row: series_number(one.metric, one.labels) for one, row in fleet.windows.items()}
    horizons = fleet.cycle.detection.horizons_seconds
    published = {
        (number, horizons.index(each))
        for row, number in rows.items()
        for each in fleet.cycle.degradations.probability(row)
    }
    assert len(published) == 2
    pending = fleet.cycle.row_scores.scoring.breaches.pending
    assert set(zip(pending.ints("series").tolist(), pending.ints("horizon").tolist(), strict=True)) == published


def test_intervals_that_are_not_published_are_neither_scored_nor_explained() -> None:
    """GPU 1 has one horizon; the farthest of the other one needs a longer history."""
    own = LimitSettings(metric=TEMPERATURE, labels={"gpu": "1"}, horizons_seconds=(10.0,))
    settings = {"limits": (own,), "publish": (SeriesMatcher(metric=TEMPERATURE),)}
    fleet, rng = Fleet(fast().model_copy(update=settings)), np.random.default_rng(3)
    for gpu in ("0", "1"):
        fleet.device(TEMPERATURE, lambda _second: 60.0 + rng.normal(0, 0.3), gpu=gpu)
        fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _second: 90.0, gpu=gpu)
    horizons = fleet.cycle.detection.horizons_seconds
    pending = fleet.cycle.row_scores.scoring.intervals.pending
    claimed: set[tuple[int, int]] = set()
    for _ in range(30):
        fleet.run(5)
        claimed |= set(zip(pending.ints("series").tolist(), pending.ints("horizon").tolist(), strict=True))
    published = {
        (series_number(one.subject.metric, one.subject.labels), horizons.index(horizon))
        for report in fleet.reports
        for one in report.predictions
        for horizon in one.bounds
    }
    assert len(published) == 2
    assert claimed
    assert claimed <= published
    shown = {one.subject.label("gpu"): one.bounds for one in fleet.reports[-1].predictions}
    for one in explain(fleet.cycle, fleet.windows, TEMPERATURE):
        bounds = shown[one["labels"]["gpu"]]
        assert one["forecast"] == {duration_label(seconds): [*each] for seconds, each in bounds.items()}


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


class Probable:
    """A GPU far from its limit whose probability of a breach is set by hand before each cycle."""

    def __init__(self) -> None:
        self.fleet = Fleet(fast())
        self.fleet.device(SLOWDOWN, lambda _: 90.0)
        self.fleet.device(TEMPERATURE, lambda second: 60.0 + second % 2)
        self.fleet.run(120)
        (self.row,) = np.flatnonzero(self.fleet.cycle.attributes.judged[: len(self.fleet.series)])

    def published(self, probability: float) -> bool:
        """Whether the series is published by a cycle that evaluates nothing anew."""
        self.fleet.cycle.detection.state.probability[self.row] = probability
        report = self.fleet.cycle.run(now_seconds=float(START_SECONDS + self.fleet.second))
        return any(one.degradation is not None for one in report.predictions)


def test_a_breach_is_published_from_a_probability_of_04_and_withdrawn_below_02() -> None:
    series = Probable()
    drawn = [series.published(each) for each in (0.3, 0.39, 0.41, 0.38, 0.22, 0.41, 0.21, 0.19, 0.3, 0.39, 0.4)]
    assert drawn == [False, False, True, True, True, True, True, False, False, False, True]


def test_a_restart_goes_on_publishing_a_breach_that_has_become_a_little_less_probable() -> None:
    before, after, other = Probable(), Probable(), Probable()
    rows = np.array([before.row])
    assert before.published(0.5)
    after.fleet.cycle.restore_alarms(rows, before.fleet.cycle.saved_alarms(rows))
    assert after.published(0.3)
    assert not after.fleet.cycle.detection.state.firing[before.row]
    assert not other.published(0.3)
