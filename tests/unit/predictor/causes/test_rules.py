"""Each cause is found from features alone, and not from the nearest features that are no fault."""

from collections.abc import Mapping

import numpy as np
import pytest

from kernelcast.predictor.causes.find import FeatureColumn, FeatureRows, RowCauses, find
from kernelcast.wire.catalogue.cause_rules import RULES, ComparisonOperator, Excuse, Rule
from kernelcast.wire.catalogue.features import FEATURES, Feature
from kernelcast.wire.catalogue.meanings import MEANINGS, Cause
from kernelcast.wire.findings import Severity

Example = Mapping[Feature, float]
_SLOW_AT_MATCHED_CLOCK = {Feature.DURATION_RATIO: 1.3, Feature.CLOCK_RATIO: 1.0}

EXAMPLES: list[tuple[Cause, Severity, Example, Example, Cause | Excuse]] = [
    # cause, severity, features, the nearest features without it, the result for those
    (
        Cause.THERMAL, Severity.PAGE,
        {Feature.HARDWARE_THERMAL_SHARE: 1.0, Feature.HARDWARE_SLOWDOWN_SHARE: 1.0, Feature.CLOCK_RATIO: 0.5},
        {Feature.HARDWARE_THERMAL_SHARE: 0.1, Feature.HARDWARE_SLOWDOWN_SHARE: 0.1, Feature.CLOCK_RATIO: 0.98},
        Excuse.NORMAL,
    ),
    (
        Cause.THERMAL, Severity.PAGE,
        {Feature.HEAT_CERTAINTY: 8.0, Feature.HOURS_TO_LIMIT: 6.0, Feature.LIMIT_MARGIN: 12.0},
        {Feature.HEAT_CERTAINTY: 1.0, Feature.HOURS_TO_LIMIT: 6.0, Feature.LIMIT_MARGIN: 2.0},
        Excuse.NORMAL,
    ),
    (Cause.THERMAL, Severity.PAGE, {Feature.THERMAL_MARGIN: 0.0}, {Feature.THERMAL_MARGIN: 1.0}, Excuse.NORMAL),
    (
        Cause.POWER_BRAKE, Severity.PAGE,
        {Feature.POWER_BRAKE_SHARE: 1.0, Feature.HARDWARE_SLOWDOWN_SHARE: 1.0, Feature.POWER_CAP_SHARE: 1.0},
        {Feature.POWER_BRAKE_SHARE: 0.0, Feature.POWER_CAP_SHARE: 1.0, Feature.POWER_CAP_RATIO: 1.0},
        Excuse.NORMAL,
    ),
    (
        Cause.HARDWARE_SLOWDOWN, Severity.PAGE,
        {Feature.HARDWARE_SLOWDOWN_SHARE: 1.0, Feature.CLOCK_RATIO: 0.5},
        {Feature.HARDWARE_SLOWDOWN_SHARE: 0.05, Feature.CLOCK_RATIO: 0.99},
        Excuse.NORMAL,
    ),
    (
        Cause.CLOCK_LOW, Severity.PAGE,
        {Feature.CLOCK_RATIO: 0.7, Feature.DURATION_RATIO: 1.4, Feature.POWER_CAP_SHARE: 0.0},
        {Feature.CLOCK_RATIO: 0.7, Feature.POWER_CAP_SHARE: 0.9, Feature.POWER_CAP_RATIO: 1.0},
        Excuse.SOFTWARE_POWER_CAP,
    ),
    (
        Cause.CONTENTION, Severity.PAGE,
        {**_SLOW_AT_MATCHED_CLOCK, Feature.PROGRAMS: 2.0, Feature.MOVED_SHARE: 0.8},
        {**_SLOW_AT_MATCHED_CLOCK, Feature.PROGRAMS: 1.0, Feature.MOVED_SHARE: 0.8},
        Cause.AGEING,
    ),
    (
        Cause.MEMORY_LEAK, Severity.PAGE,
        {Feature.LEAK_CERTAINTY: 20.0, Feature.HOURS_TO_FULL: 5.0, Feature.MEMORY_FALL: 0.0},
        {Feature.LEAK_CERTAINTY: 20.0, Feature.HOURS_TO_FULL: 5.0, Feature.MEMORY_FALL: 0.4},  # a cache, emptied
        Excuse.NORMAL,
    ),
    (Cause.MEMORY_ERRORS, Severity.PAGE, {Feature.DOUBLE_BIT_ERRORS: 1.0}, {Feature.DOUBLE_BIT_ERRORS: 0.0},
     Excuse.NORMAL),
    (
        Cause.MEMORY_ERRORS, Severity.TICKET,
        {Feature.SINGLE_BIT_ERRORS: 500.0, Feature.SINGLE_BIT_RATIO: 50.0},
        {Feature.SINGLE_BIT_ERRORS: 500.0, Feature.SINGLE_BIT_RATIO: 1.0},  # that GPU always has them
        Excuse.NORMAL,
    ),
    (Cause.MEMORY_ERRORS, Severity.PAGE, {Feature.XID_CODE: 48.0}, {Feature.XID_CODE: 31.0}, Excuse.APPLICATION_XID),
    (Cause.ROW_REMAPPING, Severity.PAGE, {Feature.REMAP_FAILURE: 1.0}, {Feature.REMAP_FAILURE: 0.0}, Excuse.NORMAL),
    (Cause.ROW_REMAPPING, Severity.TICKET, {Feature.UNCORRECTABLE_REMAPS: 1.0}, {Feature.UNCORRECTABLE_REMAPS: 0.0},
     Excuse.NORMAL),
    (Cause.ROW_REMAPPING, Severity.TICKET, {Feature.XID_CODE: 63.0}, {Feature.XID_CODE: 0.0}, Excuse.NORMAL),
    (Cause.XID, Severity.PAGE, {Feature.XID_CODE: 79.0}, {Feature.XID_CODE: 13.0}, Excuse.APPLICATION_XID),
    (Cause.XID, Severity.TICKET, {Feature.XID_CODE: 109.0}, {Feature.XID_CODE: 43.0}, Excuse.APPLICATION_XID),
    (Cause.XID, Severity.PAGE, {Feature.RECOVERY_ACTION: 2.0}, {Feature.RECOVERY_ACTION: 0.0}, Excuse.NORMAL),
    (
        Cause.PCIE_ERRORS, Severity.TICKET,
        {Feature.PCIE_REPLAYS: 900.0, Feature.PCIE_REPLAY_RATIO: 900.0},
        {Feature.PCIE_REPLAYS: 30.0, Feature.PCIE_REPLAY_RATIO: 30.0},
        Excuse.NORMAL,
    ),
    (Cause.PCIE_LINK, Severity.PAGE, {Feature.PCIE_WIDTH_RATIO: 0.5}, {Feature.PCIE_WIDTH_RATIO: 1.0}, Excuse.NORMAL),
    (
        Cause.PCIE_LINK, Severity.TICKET,
        {Feature.PCIE_GENERATION_RATIO: 0.8, Feature.UTILIZATION: 70.0},
        {Feature.PCIE_GENERATION_RATIO: 0.2, Feature.UTILIZATION: 0.0},  # an idle GPU saves power
        Excuse.NORMAL,
    ),
    (Cause.NVLINK, Severity.PAGE, {Feature.NVLINKS_DOWN: 1.0}, {Feature.NVLINKS_DOWN: 0.0}, Excuse.NORMAL),
    (Cause.NVLINK, Severity.TICKET, {Feature.NVLINK_ERRORS: 5000.0}, {Feature.NVLINK_ERRORS: 3.0}, Excuse.NORMAL),
    (
        Cause.TELEMETRY_LOST, Severity.PAGE,
        {Feature.SILENT_INTERVALS: 6.0, Feature.NODE_SILENT_INTERVALS: 0.0},
        {Feature.SILENT_INTERVALS: 6.0, Feature.NODE_SILENT_INTERVALS: 6.0},  # the node's exporter is off
        Excuse.NORMAL,
    ),
    (Cause.TELEMETRY_LOST, Severity.TICKET, {Feature.METRICS_LOST: 2.0}, {Feature.METRICS_LOST: 0.0}, Excuse.NORMAL),
    (Cause.TELEMETRY_LOST, Severity.PAGE, {Feature.GPU_UP: 0.0}, {Feature.GPU_UP: 1.0}, Excuse.NORMAL),
    (
        Cause.AGEING, Severity.PAGE,
        {**_SLOW_AT_MATCHED_CLOCK, Feature.PROGRAMS: 1.0},
        {Feature.DURATION_RATIO: 1.3, Feature.CLOCK_RATIO: 0.95, Feature.PROGRAMS: 1.0},
        Cause.KERNEL_SLOWDOWN,
    ),
    (
        Cause.AGEING, Severity.TICKET,  # slow from its first minute: only its peers show it
        {Feature.PEER_RATIO: 1.3, Feature.DURATION_RATIO: 1.0, Feature.CLOCK_RATIO: 1.0, Feature.PROGRAMS: 1.0},
        {Feature.PEER_RATIO: 1.05, Feature.DURATION_RATIO: 1.0, Feature.CLOCK_RATIO: 1.0, Feature.PROGRAMS: 1.0},
        Excuse.NORMAL,
    ),
    (
        Cause.DEPLOY, Severity.TICKET,
        {Feature.DEPLOY_RATIO: 1.25, Feature.DURATION_RATIO: 1.0},
        {Feature.DEPLOY_RATIO: 1.02, Feature.DURATION_RATIO: 1.0},
        Excuse.NORMAL,
    ),
    (
        Cause.LOAD, Severity.TICKET,
        {Feature.POWER_RATIO: 1.4, Feature.LIMIT_MARGIN: 6.0, Feature.HEAT_CERTAINTY: 0.5},
        {Feature.POWER_RATIO: 1.4, Feature.LIMIT_MARGIN: 20.0, Feature.HEAT_CERTAINTY: 0.5},
        Excuse.NORMAL,
    ),
    (
        Cause.LOAD, Severity.TICKET,
        {Feature.UTILIZATION: 99.0, Feature.UTILIZATION_RATIO: 1.5},
        {Feature.UTILIZATION: 99.0, Feature.UTILIZATION_RATIO: 1.0},
        Excuse.NORMAL,
    ),
    (
        Cause.KERNEL_SLOWDOWN, Severity.PAGE,
        {Feature.DURATION_RATIO: 1.3},
        {Feature.DURATION_RATIO: 1.3, Feature.PROCESS_AGE: 120.0},
        Excuse.FIRST_MINUTES,
    ),
    (
        Cause.UNKNOWN, Severity.TICKET,
        {Feature.BEYOND_LIMIT: 1.0},
        {Feature.BEYOND_LIMIT: 0.0},
        Excuse.NORMAL,
    ),
]  # fmt: skip


def rows(*examples: Example) -> FeatureRows:
    features = {feature for example in examples for feature in example}
    columns = {
        feature: FeatureColumn(
            figure=np.array([example.get(feature, np.nan) for example in examples]),
            value=np.array([10 * example.get(feature, np.nan) for example in examples]),
            reference=np.full(len(examples), 7.0),
        )
        for feature in features
    }
    return FeatureRows(columns, [(("UUID", f"GPU-{number}"),) for number in range(len(examples))], [10**18] * 9)


def results(found: RowCauses) -> set[Cause | Excuse | None]:
    return {one.cause for one in found.causes} or {found.reason}


@pytest.mark.parametrize(("cause", "severity", "example", "near", "instead"), EXAMPLES)
def test_a_cause_is_found_and_not_from_the_nearest_example(
    cause: Cause, severity: Severity, example: Example, near: Example, instead: Cause | Excuse
) -> None:
    found, other = find(rows(example, near))

    assert [(one.cause, one.severity) for one in found.causes] == [(cause, severity)]
    assert results(other) == {instead}


def test_every_cause_has_an_example_or_comes_from_the_comparison_of_peers() -> None:
    assert {example[0] for example in EXAMPLES} | {Cause.STRAGGLER} == set(Cause)
    assert {rule.result for rule in RULES} == {*Cause, *Excuse} - {Cause.STRAGGLER} - {Excuse.NORMAL, Excuse.NO_DATA}


def _at_its_limits(rule: Rule) -> Example:
    return {
        one.feature: float(min(one.members)) if one.comparison is ComparisonOperator.ONE_OF else one.limit
        for one in rule.conditions
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.result}-{rule.conditions[0].feature}")
def test_a_rule_holds_at_its_limits_and_for_none_beyond_one_of_them(rule: Rule) -> None:
    at = _at_its_limits(rule)
    step = {ComparisonOperator.AT_LEAST: -1e-6, ComparisonOperator.AT_MOST: 1e-6, ComparisonOperator.ONE_OF: 1e-6}
    beyond = [{**at, one.feature: at[one.feature] + step[one.comparison]} for one in rule.conditions]
    alone = find(rows(at, *beyond), [rule])

    assert results(alone[0]) == {rule.result}
    assert all(rule.result not in results(found) for found in alone[1:])


def test_a_feature_that_is_not_known_fulfils_no_condition() -> None:
    for rule in RULES:
        for one in rule.conditions:
            part = {feature: value for feature, value in _at_its_limits(rule).items() if feature is not one.feature}
            assert rule.result not in results(find(rows(part or {Feature.GPU_UP: 1.0}), [rule])[0])


def test_the_software_power_cap_alone_is_never_a_cause() -> None:
    capped = [
        {Feature.POWER_CAP_SHARE: 1.0, Feature.CLOCK_RATIO: ratio, Feature.POWER_CAP_RATIO: 1.0}
        for ratio in (0.3, 0.7, 0.97, 1.0)
    ]
    assert all(not found.causes for found in find(rows(*capped)))


def test_faults_that_do_not_explain_each_other_are_both_found() -> None:
    both = {Feature.DOUBLE_BIT_ERRORS: 2.0, Feature.POWER_BRAKE_SHARE: 1.0, Feature.DURATION_RATIO: 1.8}
    assert [one.cause for one in find(rows(both))[0].causes] == [Cause.MEMORY_ERRORS, Cause.POWER_BRAKE]


@pytest.mark.parametrize("last_xid", [45.0, 109.0, 154.0])
def test_a_recovery_action_of_the_driver_is_a_page_whatever_the_last_xid(last_xid: float) -> None:
    (found,) = find(rows({Feature.XID_CODE: last_xid, Feature.RECOVERY_ACTION: 2.0}))
    assert [(one.cause, one.severity) for one in found.causes] == [(Cause.XID, Severity.PAGE)]


@pytest.mark.parametrize("action", [1.0, 2.0, 4.0])
@pytest.mark.parametrize(
    ("last_xid", "counts", "cause"),
    [
        (94.0, {}, Cause.MEMORY_ERRORS),
        (94.0, {Feature.DOUBLE_BIT_ERRORS: 1.0}, Cause.MEMORY_ERRORS),
        (63.0, {Feature.UNCORRECTABLE_REMAPS: 1.0}, Cause.ROW_REMAPPING),
        (63.0, {Feature.REMAP_FAILURE: 1.0}, Cause.ROW_REMAPPING),
    ],
)
def test_an_error_of_memory_after_which_the_driver_asks_for_a_reset_is_one_page(
    last_xid: float, counts: Example, cause: Cause, action: float
) -> None:
    (found,) = find(rows({Feature.XID_CODE: last_xid, Feature.RECOVERY_ACTION: action, **counts}))
    assert [(one.cause, one.severity) for one in found.causes] == [(cause, Severity.PAGE)]


def test_double_bit_errors_are_a_page_of_their_own_without_an_xid_or_after_that_of_a_program() -> None:
    counted = {Feature.RECOVERY_ACTION: 1.0, Feature.DOUBLE_BIT_ERRORS: 1.0}
    for found in find(rows(counted, counted | {Feature.XID_CODE: 0.0}, counted | {Feature.XID_CODE: 45.0})):
        assert (Cause.MEMORY_ERRORS, Severity.PAGE) in [(one.cause, one.severity) for one in found.causes]


def test_a_failed_remap_is_a_page_also_after_the_xid_of_a_remap_and_a_contained_error_is_a_ticket() -> None:
    failed, contained = find(
        rows(
            {Feature.XID_CODE: 63.0, Feature.REMAP_FAILURE: 1.0},
            {Feature.XID_CODE: 94.0, Feature.DOUBLE_BIT_ERRORS: 1.0},
        )
    )
    assert [(one.cause, one.severity) for one in failed.causes] == [(Cause.ROW_REMAPPING, Severity.PAGE)]
    assert [(one.cause, one.severity) for one in contained.causes] == [(Cause.MEMORY_ERRORS, Severity.TICKET)]


def test_a_kernel_slowed_by_its_clock_is_no_kernel_slowdown() -> None:
    slow = {Feature.DURATION_RATIO: 1.5, Feature.CLOCK_RATIO: 0.6}
    reasons: list[Example] = [
        {**slow, Feature.POWER_BRAKE_SHARE: 1.0}, {**slow, Feature.HARDWARE_THERMAL_SHARE: 1.0}, slow,
    ]  # fmt: skip
    expected = [Cause.POWER_BRAKE, Cause.THERMAL, Cause.CLOCK_LOW]
    assert [[one.cause for one in found.causes] for found in find(rows(*reasons))] == [[cause] for cause in expected]


def test_evidence_names_series_value_reference_and_time() -> None:
    (found,) = find(rows({Feature.DURATION_RATIO: 1.3}))
    (fact,) = found.causes[0].evidence

    assert (fact.metric, fact.labels) == ("cuda_kernel_duration_seconds", (("UUID", "GPU-0"),))
    assert (fact.value, fact.reference, fact.against) == (13.0, 7.0, "baseline")
    assert (fact.begin_ns, fact.end_ns) == (10**18 - 300 * 10**9, 10**18)


def test_evidence_of_a_gpu_has_the_labels_of_the_gpu_and_not_those_of_the_kernel() -> None:
    made = rows({Feature.DURATION_RATIO: 1.4, Feature.CLOCK_RATIO: 0.6})
    labels = (("Hostname", "n"), ("UUID", "u"), ("kernel", "gemm"), ("program", "train"))
    (found,) = find(FeatureRows(made.columns, [labels], [10**18]))
    selected = {fact.metric: fact.labels for fact in found.causes[0].evidence}

    assert selected["DCGM_FI_DEV_SM_CLOCK"] == labels[:2]
    assert selected["cuda_kernel_duration_seconds"] == labels


def test_without_any_figure_the_reason_is_missing_data() -> None:
    assert find(rows({Feature.GPU_UP: float("nan")}))[0].reason is Excuse.NO_DATA


def test_every_feature_has_a_source_and_every_meaning_has_reachable_causes() -> None:
    assert set(FEATURES) == set(Feature)
    reachable = {rule.result for rule in RULES} | {Cause.STRAGGLER}
    for meaning in MEANINGS.values():
        assert {meaning.cause, *meaning.other_causes} <= reachable
