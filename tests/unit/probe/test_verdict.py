import random
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.probe.verdict import CanaryPolicy, Decision, judge, median_interval
from kernelcast.wire.errors import WindowError

POLICY = CanaryPolicy()


def trial(draw: random.Random, gain: float, noise: float) -> tuple[Decision, int]:
    """A whole trial with noisy times: log-normal, with a spike of up to three times in every twentieth block."""

    def block() -> float:
        spike = log(1 + 2 * draw.random()) if draw.random() < 0.05 else 0.0
        return draw.gauss(0.0, noise) + spike

    pairs: list[float] = []
    while True:
        pairs.append(log(gain) + block() - block())
        verdict = judge(pairs, POLICY)
        if verdict.decision is not Decision.MEASURE_ON:
            return verdict.decision, len(pairs)


@pytest.mark.parametrize("noise", [0.002, 0.02, 0.1])
def test_a_value_without_gain_is_kept_in_fewer_than_one_trial_of_twenty(noise: float) -> None:
    draw = random.Random(7)
    kept = sum(trial(draw, 1.0, noise)[0] is Decision.KEEP for _ in range(2000))
    assert kept / 2000 <= 0.05


def test_a_value_that_gains_less_than_the_threshold_is_kept_as_rarely() -> None:
    draw = random.Random(8)
    kept = sum(trial(draw, 0.99, 0.02)[0] is Decision.KEEP for _ in range(2000))
    assert kept / 2000 <= 0.05


def test_a_gain_of_a_tenth_is_found_through_noise_and_spikes() -> None:
    draw = random.Random(9)
    kept = sum(trial(draw, 0.9, 0.02)[0] is Decision.KEEP for _ in range(500))
    assert kept / 500 >= 0.98


def test_a_value_twice_as_slow_is_dropped_after_three_pairs() -> None:
    verdict = judge([log(2.0)] * 3, POLICY)
    assert verdict.decision is Decision.ROLL_BACK
    assert verdict.pairs == 3
    assert verdict.ratio == pytest.approx(2.0)


def test_no_trial_lasts_longer_than_its_limit() -> None:
    draw = random.Random(10)
    assert max(trial(draw, 0.985, 0.05)[1] for _ in range(300)) <= POLICY.max_pairs


def test_a_verdict_says_ratio_interval_and_pairs() -> None:
    verdict = judge([log(0.5 + 0.001 * number) for number in range(15)], POLICY)
    assert verdict.decision is Decision.KEEP
    assert verdict.pairs == 15
    assert verdict.ratio == pytest.approx(0.507)
    low, high = verdict.interval or (0.0, 0.0)
    assert 0.5 < low < 0.507 < high < 0.99


def test_fifteen_values_give_the_fourth_and_the_twelfth() -> None:
    assert median_interval([float(value) for value in range(1, 16)]) == (4.0, 12.0)


def test_too_few_values_give_no_interval() -> None:
    with pytest.raises(WindowError, match="measure at least 6"):
        median_interval([1.0] * 5)


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=40))
def test_an_interval_contains_the_median(values: list[float]) -> None:
    low, high = median_interval(values)
    ordered = sorted(values)
    assert low <= ordered[(len(values) - 1) // 2]
    assert ordered[len(values) // 2] <= high


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    draw = random.Random(11)
    covered = 0
    for _ in range(2000):
        low, high = median_interval([exp(draw.gauss(0, 1)) for _ in range(15)])
        covered += low <= 1.0 <= high
    assert covered / 2000 >= 0.95
