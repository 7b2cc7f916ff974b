"""Rules about programs: each fires on its planted program, and not on the nearest one."""

import math
from collections.abc import Iterable

import pytest

from kernelcast.predictor.tuning.diagnosis import holding, missing
from kernelcast.wire.catalogue.diagnosis.rules import RULES, SIGNALS, DiagnosisRule, Direction, Signal, Threshold

HEALTHY = {
    Signal.IDLE_SHARE: 0.04,
    Signal.COPY_SHARE: 0.01,
    Signal.COLLECTIVE_SHARE: 0.02,
    Signal.KERNEL_SECONDS: 200e-6,
    Signal.LAUNCH_GAP_SECONDS: 5e-6,
    Signal.SYNC_WAIT_SHARE: 0.02,
    Signal.PAGEABLE_SHARE: 0.0,
    Signal.DATA_WAIT_SHARE: 0.01,
    Signal.RANK_SPREAD: 0.02,
    Signal.SM_ACTIVE: 0.9,
    Signal.SM_OCCUPANCY: 0.5,
    Signal.DRAM_ACTIVE: 0.6,
    Signal.TENSOR_ACTIVE: 0.4,
    Signal.FP32_ACTIVE: 0.2,
    Signal.MEMORY_USED_RATIO: 0.7,
}


def planted(rule: DiagnosisRule) -> dict[Signal, float]:
    """Signals of a healthy program, changed as little as lets the rule hold."""
    signals = dict(HEALTHY)
    for one in rule.thresholds:
        holds = signals[one.signal] >= one.limit if one.at_least else signals[one.signal] < one.limit
        if not holds:
            signals[one.signal] = one.limit if one.at_least else math.nextafter(one.limit, -1)
    return signals


def just_missed(rule: DiagnosisRule, threshold: Threshold) -> dict[Signal, float]:
    """Signals on which all thresholds of the rule hold but one, by the smallest difference."""
    value = math.nextafter(threshold.limit, -1) if threshold.at_least else threshold.limit
    return {**planted(rule), threshold.signal: value}


def names(rules: Iterable[DiagnosisRule]) -> list[str]:
    return [rule.name for rule in rules]


def test_a_healthy_program_has_no_diagnosis_and_misses_nothing() -> None:
    assert holding(HEALTHY) == []
    assert missing(HEALTHY) == []


@pytest.mark.parametrize("rule", RULES, ids=names(RULES))
def test_a_rule_holds_on_its_planted_program(rule: DiagnosisRule) -> None:
    assert rule.name in names(holding(planted(rule)))


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [pytest.param(rule, one, id=f"{rule.name}-{one.signal}") for rule in RULES for one in rule.thresholds],
)
def test_a_rule_does_not_hold_on_the_nearest_program(rule: DiagnosisRule, threshold: Threshold) -> None:
    assert rule.name not in names(holding(just_missed(rule, threshold)))


@pytest.mark.parametrize("rule", RULES, ids=names(RULES))
def test_a_rule_whose_signal_is_missing_does_not_hold_and_names_it(rule: DiagnosisRule) -> None:
    for one in {threshold.signal for threshold in rule.thresholds}:
        signals = {signal: value for signal, value in planted(rule).items() if signal is not one}
        assert rule.name not in names(holding(signals))
        assert one in missing(signals, [rule])


def test_a_missing_signal_is_not_named_where_another_one_already_speaks_against_the_rule() -> None:
    rule = next(rule for rule in RULES if rule.name == "launch_bound")
    signals = {Signal.IDLE_SHARE: 0.0}
    assert missing(signals, [rule]) == []


def test_a_program_of_which_nothing_is_measured_misses_every_signal_of_the_rules() -> None:
    used = {one.signal for rule in RULES for one in rule.thresholds}
    assert set(missing({})) == used == set(Signal)


def test_every_signal_has_an_origin_and_every_rule_a_source() -> None:
    assert set(SIGNALS) == set(Signal)
    assert all(rule.source and rule.advice.text.endswith(".") for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_advice_that_changes_results_says_so() -> None:
    for rule in RULES:
        if {"batch_size", "precision"} & set(rule.advice.kinds):
            assert rule.advice.changes_results


def test_less_memory_is_asked_for_where_memory_is_nearly_full() -> None:
    rule = next(rule for rule in RULES if rule.name == "memory_nearly_full")
    assert rule.advice.direction is Direction.DOWN
