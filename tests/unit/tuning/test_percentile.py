"""The 99th percentile as the objective of an experiment, on synthetic noise."""

from collections.abc import Callable
from math import exp
from random import Random

import pytest

from kernelcast.tuning.experiment import Arm, Decision, Experiment, ExperimentVerdict, Rules

Make = Callable[[Random], Callable[[bool], float]]
"""Makes a function that takes whether the candidate runs, and returns the launch's seconds."""


def run(make: Make, seed: int, objective: str = "p99") -> ExperimentVerdict:
    """Run one experiment."""
    experiment, seconds = Experiment(seed=seed, rules=Rules().declared(None, None, None, objective)), make(Random(seed))
    while (verdict := experiment.verdict()) is None:
        arm = experiment.next_arm()
        experiment.record(arm, seconds(arm is Arm.CANDIDATE))
    return verdict


def tails(new: tuple[float, float, float], old: tuple[float, float, float]) -> Make:
    """Typical time, share of the long launches and their factor, for each arm."""

    def make(random: Random) -> Callable[[bool], float]:
        def seconds(is_new: bool) -> float:  # noqa: FBT001
            typical, share, factor = new if is_new else old
            return typical * (factor if random.random() < share else 1.0) * exp(random.gauss(0, 0.02))

        return seconds

    return make


def bursts(typical: float) -> Make:
    """A neighbour, whatever arm runs, takes half as long again for 20 launches in some 500."""

    def make(random: Random) -> Callable[[bool], float]:
        busy = [False]

        def seconds(is_new: bool) -> float:  # noqa: FBT001
            if random.random() < (0.05 if busy[0] else 0.002):
                busy[0] = not busy[0]
            return (typical if is_new else 1.0) * (1.5 if busy[0] else 1.0) * exp(random.gauss(0, 0.02))

        return seconds

    return make


LOWER = {
    "long launches are shorter": tails((1.0, 0.02, 2.0), (1.0, 0.02, 3.0)),
    "long launches are rarer, and the mean is as before": tails((1.02, 0.003, 3.0), (1.0, 0.02, 3.0)),
    "all launches are shorter": tails((0.95, 0.0, 1.0), (1.0, 0.0, 1.0)),
    "all are shorter, beside a neighbour in bursts": bursts(0.9),
}
NOT_LOWER = {
    "the mean is 10 % lower": tails((0.9, 0.02, 2.0 / 0.9), (1.0, 0.02, 2.0)),
    "the mean is lower, the percentile is higher": tails((0.9, 0.02, 2.7), (1.0, 0.02, 2.0)),
    "nothing differs": tails((1.0, 0.02, 3.0), (1.0, 0.02, 3.0)),
    "nothing differs, beside a neighbour in bursts": bursts(1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWER)
def test_a_candidate_with_a_lower_99th_percentile_is_kept(name: str) -> None:
    verdicts = [run(LOWER[name], seed) for seed in range(5)]
    assert [verdict.decision for verdict in verdicts] == [Decision.KEPT] * 5
    assert all("the 99th percentile is 0." in verdict.reason for verdict in verdicts)
    assert all(verdict.candidate_launches >= 1000 for verdict in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_LOWER)
def test_a_candidate_without_one_is_not_kept_whatever_its_mean(name: str) -> None:
    assert Decision.KEPT not in [run(NOT_LOWER[name], seed).decision for seed in range(5)]


def test_an_experiment_that_cannot_prove_it_says_how_many_launches_it_needs() -> None:
    """A heavy tail without an end: a percentile that is a tenth lower needs more than the most launches."""

    def make(random: Random) -> Callable[[bool], float]:
        return lambda is_new: 1 + min(random.paretovariate(3) - 1, 5) * (0.85 if is_new else 1.0)

    verdict = run(make, 4)
    assert verdict.decision is Decision.INCONCLUSIVE
    assert "more launches of each" in verdict.reason


def test_the_mean_stays_the_objective_and_the_percentile_is_told_from_1000_launches_on() -> None:
    def make(random: Random) -> Callable[[bool], float]:
        return lambda is_new: (0.97 if is_new else 1.0) * exp(random.gauss(0, 0.15))

    verdict = run(make, 3, "mean")
    assert min(verdict.candidate_launches, verdict.kept_launches) >= 1000
    assert "the 99th percentile is" in verdict.reason
    short = run(tails((0.9, 0.0, 1.0), (1.0, 0.0, 1.0)), 3, "mean")
    assert short.candidate_launches < 1000
    assert "percentile" not in short.reason
