"""Kernels that are not slow: noise, trials of hints, a throttling GPU. Messages in, predictions out, in event time."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from tests.unit.predictor.conftest import SECOND_NS, START_SECONDS

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.cycle.predictions import Abstention, Prediction
from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.explain import explain
from kernelcast.predictor.settings import PredictorSettings, SeriesMatcher
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.events import Hint, HintMode, Outcome, OutcomeState
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import labels

EXPORTER = Resource((("service.instance.id", "n1"), ("service.name", "kernelcast-exporter")))
KERNELS: Partition = ("kernelcast.kernels", 0)
DEVICES: Partition = ("kernelcast.device", 0)
CYCLE_SECONDS = 3
LAUNCHES = 10

RECORDED_MS = (
    *(5.65, 6.49, 4.25, 4.89, 2.96, 5.34, 4.71, 3.51, 4.16, 2.64, 3.00, 1.87, 2.10, 1.97, 2.17, 2.93, 1.98, 1.68, 2.08),
    *(2.22, 2.19, 2.35, 2.25, 2.51, 2.15, 2.67, 2.32, 2.33, 2.04, 3.09, 2.65, 3.39, 4.75, 2.89, 2.54, 2.27, 3.69, 2.82),
    *(2.58, 2.12, 2.47, 2.20, 2.18, 2.09, 2.64, 2.31, 2.76, 2.27, 2.46, 2.22, 2.00, 2.67, 2.01, 2.02, 2.32, 2.19, 2.52),
    *(3.70, 4.76, 3.61, 5.52, 3.87, 4.97, 4.54, 4.23, 5.82, 3.86, 4.26, 4.42, 2.47, 2.53, 2.57, 3.63, 3.25, 2.19, 2.16),
    *(2.22, 2.28, 1.62, 1.63, 2.49, 1.56, 2.08, 2.62, 2.37, 2.07, 2.12, 1.81, 2.30, 4.61, 2.60, 1.76, 2.68, 1.82, 3.48),
    *(1.94, 1.70, 2.01, 2.39, 2.35, 2.77, 2.88, 3.83, 1.56, 2.45, 2.81, 1.90, 2.84, 3.86, 3.13, 3.56, 2.87, 2.48, 2.13),
)
"""Mean duration in each second of a kernel timed by a CPU; a hint was tried until the tenth second, and kept."""
KEPT_SECONDS = 10

Shape = Callable[[int], float]


class Node:
    """One GPU with kernels, and an engine with blocks of two seconds.

    Attributes:
        kernels: Duration in milliseconds of each kernel at each second.
        clock_mhz: SM clock at each second; None without a GPU.
        late_seconds: How much later the samples of the GPU arrive.
        tunable: Value of the tunable at each second; None without one.
    """

    def __init__(self, kernels: dict[str, Shape], *, interval_seconds: int = 1, publish: bool = False) -> None:
        self.kernels = kernels
        self.clock_mhz: Shape | None = None
        self.late_seconds = 0
        self.tunable: Callable[[int], int] | None = None
        self.second = 0
        self.settings = PredictorSettings(
            client_id="test",
            interval_seconds=float(interval_seconds),
            window_points=180,
            sweep_every_seconds=float(CYCLE_SECONDS * interval_seconds),
            horizons_seconds=(60.0 * interval_seconds, 300.0 * interval_seconds),
            publish=(SeriesMatcher(),) if publish else (),
        )
        self.step_seconds = interval_seconds
        self.engine = Engine(self.settings, clock_ns=lambda: self.now_ns)
        self.totals = {name: DurationTotals() for name in kernels}
        self.published: list[Prediction] = []
        self.abstentions: set[Abstention] = set()

    @property
    def now_ns(self) -> int:
        return (START_SECONDS + self.second) * SECOND_NS

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.second += self.step_seconds
            self.take(KERNELS, self.samples())
            if self.clock_mhz is not None:
                self.take(DEVICES, self.gpu_samples(self.second - self.late_seconds))
            if self.second // self.step_seconds % CYCLE_SECONDS == 0:
                report = self.engine.run_cycle()
                self.published += [one for one in report.predictions if one.degradation is not None]
                self.abstentions |= {reason for reason, count in report.abstentions.items() if count}

    def take(self, partition: Partition, samples: list[Sample]) -> None:
        bodies = [each.body for each in encode(EXPORTER, samples, scope="test")]
        self.engine.take(bodies, [partition] * len(bodies), {partition: self.second})

    def samples(self) -> list[Sample]:
        found = []
        for name, shape in self.kernels.items():
            self.totals[name].observe(round(shape(self.second // self.step_seconds) * 1e6), LAUNCHES)
            words = self.gpu(program="train", kernel=name, kernel_class="compute")
            found.append(
                Sample(kernel.DURATION, words, self.now_ns, self.totals[name].copy(), START_SECONDS * SECOND_NS)
            )
        if self.tunable is not None:
            value = str(self.tunable(self.second // self.step_seconds))
            named = {"program": "train", "tunable": "block", "allowed": "48,128", "kernel": next(iter(self.kernels))}
            found.append(Sample(kernel.TUNABLE_INFO, self.gpu(value=value, **named), self.now_ns, 1))
        return found

    def gpu_samples(self, second: int) -> list[Sample]:
        assert self.clock_mhz is not None
        time_ns = (START_SECONDS + second) * SECOND_NS
        levels = {device.SM_CLOCK: self.clock_mhz(second), device.GPU_UTIL: 97.0}
        return [Sample(metric, self.gpu(), time_ns, value) for metric, value in levels.items()]

    def gpu(self, **words: str) -> tuple[tuple[str, str], ...]:
        return labels(Hostname="n1", UUID="GPU-0", gpu="0", **words)

    def alarms(self) -> int:
        """Number of predictions with an alert."""
        return sum(one.degradation is not None and one.degradation.firing for one in self.published)

    def causes(self) -> set[Cause]:
        return {one.degradation.cause for one in self.published if one.degradation is not None}


def noisy(rng: np.random.Generator, level: float, noise: float, _second: int) -> float:
    return level * (1 + noise * rng.standard_normal())


def recorded(second: int) -> float:
    return RECORDED_MS[(second - 1) % len(RECORDED_MS)]


@pytest.mark.parametrize("interval_seconds", [1, 150])
def test_a_kernel_timed_by_a_cpu_has_no_usual_duration_and_raises_nothing(interval_seconds: int) -> None:
    node = Node({"sweep": recorded}, interval_seconds=interval_seconds)
    node.run(len(RECORDED_MS))
    assert node.published == []
    assert Abstention.WIDE_BASELINE in node.abstentions
    assert node.engine.run_cycle().judged == 0


def test_the_same_durations_in_another_order_raise_nothing() -> None:
    rng = np.random.default_rng(1)
    orders = [rng.permutation(RECORDED_MS[KEPT_SECONDS:]) for _ in range(8)]
    node = Node({f"k{number}": lambda second, own=own: own[second % len(own)] for number, own in enumerate(orders)})  # type: ignore[misc]
    node.run(150)
    assert node.published == []


def test_healthy_kernels_with_a_minute_of_history_reach_no_limit_minutes_ahead() -> None:
    rng = np.random.default_rng(3)
    node = Node({f"k{number}": partial(noisy, rng, 1.0, 0.01) for number in range(48)})
    node.run(150)
    assert node.published == []


def test_a_kernel_that_becomes_half_again_as_slow_is_still_found_within_two_blocks() -> None:
    rng = np.random.default_rng(4)
    node = Node({"gemm": lambda second: noisy(rng, 1.0 if second <= 100 else 1.5, 0.04, second)})
    node.run(100)
    assert node.published == []
    node.run(6)
    assert node.causes() == {Cause.KERNEL_SLOWDOWN}
    node.run(30)
    assert all(one.degradation and one.degradation.passed for one in node.published)


def test_an_alert_about_a_kernel_that_wavers_around_its_limit_has_one_state_at_a_time() -> None:
    node = Node({"gemm": lambda second: 1.0 if second <= 100 else 1.35 if second < 130 or second // 6 % 2 else 1.15})
    node.run(200)
    crossed_ns = [one.degradation.crossed_ns for one in node.published if one.degradation and one.degradation.firing]
    first = next(place for place, one in enumerate(crossed_ns) if one)
    assert set(crossed_ns[:first]) <= {0}
    assert len(set(crossed_ns[first:])) == 1, "the first crossing is the one that counts"
    now = [one.degradation.passed for one in node.published if one.degradation and one.degradation.firing]
    assert now != sorted(now)


def test_a_restart_keeps_that_an_alert_has_passed_its_limit() -> None:
    before, after = (Node({"gemm": lambda second: 1.0 if second <= 60 else 1.5}) for _ in range(2))
    before.run(72)
    after.run(3)
    rows = np.arange(1)
    after.engine.cycle.restore_alarms(rows, before.engine.cycle.saved_alarms(rows))
    state = after.engine.cycle.detection.state
    saved = before.engine.cycle.detection.state
    assert state.firing[0]
    assert state.since_ns[0] == saved.since_ns[0] > 0
    assert state.crossed_ns[0] == saved.crossed_ns[0] >= saved.since_ns[0]


@pytest.mark.parametrize(("saved", "crossed_ns"), [(-1, 0), (0, 0), (1, 0), (66, 66)])
def test_a_saved_alert_has_the_time_of_the_crossing_where_the_limit_was_passed(saved: int, crossed_ns: int) -> None:
    node = Node({"gemm": lambda _second: 1.0})
    node.run(3)
    node.engine.cycle.restore_alarms(np.arange(1), np.array([[saved, 77]]))
    state = node.engine.cycle.detection.state
    assert (bool(state.firing[0]), int(state.crossed_ns[0])) == (saved > 0, crossed_ns)


def test_a_forecast_far_ahead_stays_near_a_series_that_was_higher_at_first() -> None:
    node = Node({"sweep": recorded}, publish=True)
    node.run(len(RECORDED_MS))
    found = node.engine.cycle.forecast_of(0)
    assert found is not None
    assert all(1.5e-3 < mean < 6e-3 for mean, _, _ in found.bounds.values())
    assert {60.0, 300.0} <= set(found.bounds)


def test_a_kernel_that_was_slow_for_a_block_alarms_again_only_when_it_lasts_longer() -> None:
    rng = np.random.default_rng(5)
    node = Node({"gemm": lambda second: (1.6 if second % 60 in (0, 1) or second > 200 else 1.0) + rng.normal(0, 0.01)})
    node.run(90)
    once = node.alarms()
    node.run(110)
    assert node.alarms() == once
    node.run(30)
    assert node.alarms() > once


def trial(node: Node, state: OutcomeState) -> None:
    """An outcome of the node's hint, as the predictor reads it."""
    outcome = Outcome(
        hint_id="h", program="train", rank="0", tunable="block", state=state, reason="", value="128", previous="48"
    )
    node.engine.hints.learn_outcome(outcome, time_ns=node.now_ns)


def tried(node: Node) -> None:
    hint = Hint(
        hint_id="h",
        program="train",
        tunable="block",
        value="128",
        kernel="gemm",
        expires_at_ns=node.now_ns + 600 * SECOND_NS,
        mode=HintMode.CANARY,
    )
    node.engine.hints.learn_hint(hint)
    trial(node, OutcomeState.APPLIED)


def alternating(other: float, begin: int, end: int, after: float) -> Shape:
    """A duration of 1 ms, of 1 ms and another in turn during a trial, and one after it."""
    return lambda second: (
        1.0 if second <= begin or (second <= end and second // 2 % 2) else other if second <= end else after
    )


@pytest.mark.parametrize("other", [0.6, 1.7])
def test_a_trial_that_is_rolled_back_changes_no_baseline_and_raises_nothing(other: float) -> None:
    node = Node({"gemm": alternating(other, 60, 120, 1.0), "relu": lambda _: 0.1})
    node.run(60)
    tried(node)
    node.run(60)
    trial(node, OutcomeState.ROLLED_BACK)
    node.run(60)
    assert node.published == []
    (found,) = explain(node.engine.cycle, node.engine.windows, 'cuda_kernel_duration_seconds{kernel="gemm"}')
    assert found["baseline"] == pytest.approx(1e-3, rel=0.01)


def test_a_value_that_is_kept_begins_a_baseline_and_a_slowdown_from_it_is_found() -> None:
    def duration(second: int) -> float:
        return alternating(0.6, 60, 80, 0.6)(second) if second <= 150 else 0.8

    node = Node({"gemm": duration})
    node.tunable = lambda second: 48 if second <= 80 else 128
    node.run(60)
    tried(node)
    node.run(20)
    trial(node, OutcomeState.KEPT)
    node.run(70)
    assert node.published == []
    node.run(15)
    assert node.causes() == {Cause.KERNEL_SLOWDOWN}


def busy(rng: np.random.Generator, seconds: int) -> Floats:
    """A factor on each second's duration: the noise of a kernel that a CPU times while other programs run."""
    drawn = rng.standard_normal(seconds)
    for second in range(1, seconds):
        drawn[second] = 0.7 * drawn[second - 1] + np.sqrt(1 - 0.7**2) * drawn[second]
    factor: Floats = np.exp(rng.choice([0.06, 0.09, 0.12]) * drawn)
    return factor


@pytest.mark.parametrize("seed", range(6))
def test_no_slow_kernel_is_predicted_from_noise_in_the_minute_after_a_trial_of_a_hint(seed: int) -> None:
    factor = busy(np.random.default_rng(seed), 80)
    usual = alternating(0.4, 9, 25, 0.4)
    node = Node({"gemm": lambda second: 5 * usual(second) * factor[second - 1]})
    node.tunable = lambda second: 48 if second <= 25 else 128
    node.run(9)
    tried(node)
    node.run(16)
    trial(node, OutcomeState.KEPT)
    node.run(55)
    assert all(one.degradation and one.degradation.crossed_ns for one in node.published)


def test_a_tunable_that_makes_a_kernel_slower_on_purpose_begins_a_baseline() -> None:
    node = Node({"gemm": lambda second: 1.0 if second <= 100 else 1.5})
    node.tunable = lambda second: 128 if second <= 100 else 48
    node.run(220)
    assert node.published == []


def throttling(second: int) -> float:
    """Clock of a GPU that is too hot from the hundredth second on: it slows down, cools, and is too hot again."""
    return 1980.0 if second <= 100 or second % 12 < 5 else 1395.0


def test_kernels_of_a_gpu_whose_clock_falls_and_rises_are_not_slow_by_themselves() -> None:
    node = Node({f"k{number}": lambda second: 1980.0 / throttling(second) for number in range(2)})
    node.clock_mhz, node.late_seconds = throttling, 2
    node.run(220)
    assert Cause.KERNEL_SLOWDOWN not in node.causes()
    assert Abstention.COMPANIONS_LATE in node.abstentions
