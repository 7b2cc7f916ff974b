"""Findings are written to Kafka when they change, and marks on Kafka are read back."""

import math
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.support.predictor.finding_candidates import START_NS, candidate, predicted
from tests.support.predictor.finding_log import Message, Sent, log
from tests.support.wire.findings import FINDING

from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import FindingEvidence, FindingState, Mark, Verdict
from kernelcast.wire.topics import FINDINGS

CYCLE_NS = 300 * 10**9
DAY_NS = 24 * 3600 * 10**9


def test_only_changes_are_written_with_the_finding_as_key() -> None:
    sent, registry = Sent(), CollectorRegistry()
    findings = log(sent, registry)
    for number in range(20):
        holding = [candidate()] if number < 10 else []
        findings.cycle(holding, watched=10, time_ns=START_NS + number * CYCLE_NS)
    begun, ended = sent.findings()
    assert [(topic, key) for topic, key, _ in sent.messages] == [(FINDINGS.name, begun.finding_id.encode())] * 2
    assert (begun.state, ended.state, begun.finding_id) == (FindingState.PASSED, FindingState.OVER, ended.finding_id)
    assert registry.get_sample_value("kernelcast_predictor_pages_total") == 1
    assert registry.get_sample_value("kernelcast_predictor_finding_changes_total", {"state": "over"}) == 1


SINCE = "kernelcast_predictor_finding_since_timestamp_seconds"


def shown(registry: CollectorRegistry, name: str) -> list[tuple[dict[str, str], float]]:
    """Samples of a metric, without labels that are empty."""
    return [
        ({label: text for label, text in sample.labels.items() if text}, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    ]


def test_a_finding_is_a_series_with_its_subject_value_limit_and_times_until_it_is_over() -> None:
    registry = CollectorRegistry()
    findings = log(Sent(), registry)
    subject = {"scope": "gpu", "Hostname": "r1-n1", "UUID": "GPU-r1-n1-0", "gpu": "0"}
    about = {**subject, "metric": "DCGM_FI_DEV_GPU_TEMP", "cause": "thermal"}
    hours = [replace(predicted(), value=80.0 + number) for number in range(2)]
    for number, found in enumerate(hours):
        findings.cycle([found], watched=1, time_ns=START_NS + number * 3600 * 10**9)
    ((labels, began),) = shown(registry, SINCE)
    finding_id = labels.pop("finding_id")
    assert labels == {**about, "state": "predicted", "urgency": "page"}
    assert [value for _, value in shown(registry, "kernelcast_predictor_finding_value")] == [81.0]
    assert [value for _, value in shown(registry, "kernelcast_predictor_finding_limit")] == [87.0]
    now = START_NS / 1e9 + 3600
    expected = shown(registry, "kernelcast_predictor_finding_expected_timestamp_seconds")
    assert {words["quantile"]: value for words, value in expected} == {
        "0.1": now + 6 * 3600, "0.5": now + 12 * 3600, "0.9": now + 18 * 3600,
    }  # fmt: skip
    passed_ns = START_NS + 7000 * 10**9
    for number in range(2, 4):
        hot = candidate(passed_ns=passed_ns)
        findings.cycle([hot], watched=1, time_ns=START_NS + number * 3600 * 10**9)
    ((labels, since),) = shown(registry, SINCE)
    assert labels == {**about, "finding_id": finding_id, "state": "passed", "urgency": "page"}
    assert (began, since) == (START_NS / 1e9, passed_ns / 1e9)
    assert shown(registry, "kernelcast_predictor_finding_expected_timestamp_seconds") == []
    findings.cycle([], watched=1, time_ns=START_NS + 5 * 3600 * 10**9)
    assert shown(registry, SINCE) == []


def test_a_restart_shows_the_saved_findings_with_the_same_labels_and_times_and_nothing_before_they_are_there() -> None:
    before, after = CollectorRegistry(), CollectorRegistry()
    first = log(Sent(), before)
    first.cycle([candidate(passed_ns=START_NS - 7)], watched=1, time_ns=START_NS)
    second = log(Sent(), after)
    evaluated = "kernelcast_predictor_findings_timestamp_seconds"
    assert (shown(after, evaluated), shown(after, SINCE)) == ([], [])
    second.restore(first.save())
    second.cycle([], watched=1, time_ns=START_NS + CYCLE_NS)
    assert shown(after, evaluated) == [({}, (START_NS + CYCLE_NS) / 1e9)]
    assert shown(after, SINCE) == shown(before, SINCE) != []


def test_a_page_beyond_the_budget_is_shown_as_held() -> None:
    registry = CollectorRegistry()
    findings = log(Sent(), registry, pages_per_day=0)
    held = "kernelcast_predictor_findings_held"
    assert registry.get_sample_value(held) == 0
    observed = candidate(state=FindingState.OBSERVED, cause=Cause.STRAGGLER)
    for number in range(4):
        findings.cycle([observed], watched=1, time_ns=START_NS + number * CYCLE_NS)
    assert registry.get_sample_value(held) == 1
    ((labels, _),) = shown(registry, SINCE)
    assert (labels["cause"], labels["urgency"]) == ("straggler", "held")


def test_numbers_that_json_cannot_express_are_left_out() -> None:
    sent = Sent()
    fact = FindingEvidence("m", value=math.nan, reference=math.inf)
    odd = candidate(value=math.nan, limit=math.inf, seconds_to_limit=(1.0, math.inf, math.nan), evidence=(fact,))
    log(sent, CollectorRegistry()).cycle([odd], watched=1, time_ns=START_NS)
    (written,) = sent.findings()
    assert (written.value, written.limit, written.seconds_to_limit) == (None, None, (1.0, None, None))
    assert (written.evidence[0].value, written.evidence[0].reference) == (None, None)


def test_a_finding_too_long_for_an_event_is_written_without_its_facts() -> None:
    sent = Sent()
    long = candidate(evidence=(FindingEvidence("m", labels=(("pod", "x" * 60_000),)),))
    log(sent, CollectorRegistry()).cycle([long], watched=1, time_ns=START_NS)
    assert sent.findings()[0].evidence == ()


@pytest.mark.parametrize("long", [(("pod", "x" * 60_000),), tuple((f"label{number}", "") for number in range(5000))])
def test_a_finding_whose_labels_are_too_long_loses_some_of_them_and_all_others_are_written(
    long: tuple[tuple[str, str], ...],
) -> None:
    sent = Sent()
    nodes = [f"r{number}-n1" for number in range(4)]
    found = [candidate(node=node) for node in nodes]
    found[1:3] = [replace(one, labels=(*one.labels, *long)) for one in found[1:3]]
    log(sent, CollectorRegistry()).cycle(found, watched=10, time_ns=START_NS)
    written = [dict(one.labels) for one in sent.findings()]
    assert sorted(one["Hostname"] for one in written) == nodes
    assert all(one["gpu"] == "0" for one in written)


def test_marks_show_the_precision_which_is_absent_without_them() -> None:
    registry = CollectorRegistry()
    findings = log(Sent(), registry)
    precision = "kernelcast_predictor_finding_precision_ratio"
    assert registry.get_sample_value(precision, {"source": "marks"}) is None
    for number, verdict in enumerate([Verdict.REPAIRED, Verdict.REPAIRED, Verdict.REPAIRED, Verdict.FALSE_ALARM]):
        findings._take(Message(Mark(f"f{number}", verdict, time_ns=START_NS)))
    findings.cycle([], watched=1, time_ns=START_NS)
    assert registry.get_sample_value(precision, {"source": "marks"}) == 0.75
    assert registry.get_sample_value("kernelcast_predictor_finding_marks", {"verdict": "repaired"}) == 3


def test_pages_of_another_predictor_use_up_the_budget_of_the_fleet() -> None:
    sent = Sent()
    findings = log(sent, CollectorRegistry(), pages_per_day=1)
    other = replace(FINDING, held=False, began_ns=START_NS)
    findings._take(Message(other))
    observed = candidate(state=FindingState.OBSERVED)
    for number in range(4):
        findings.cycle([observed], watched=1, time_ns=START_NS + number * CYCLE_NS)
    assert [one.held for one in sent.findings() if one.metric == observed.metric] == [True]


def test_a_held_page_of_another_predictor_uses_up_the_budget_from_when_it_is_sent() -> None:
    sent = Sent()
    findings = log(sent, CollectorRegistry(), pages_per_day=1)
    two_days_ns = 48 * 3600 * 10**9
    held = replace(FINDING, held=True, began_ns=START_NS - two_days_ns, updated_ns=START_NS - two_days_ns)
    findings._take(Message(held))
    findings._take(Message(replace(held, held=False, updated_ns=START_NS)))
    observed = candidate(state=FindingState.OBSERVED)
    for number in range(4):
        findings.cycle([observed], watched=1, time_ns=START_NS + number * CYCLE_NS)
    assert [one.held for one in sent.findings() if one.metric == observed.metric] == [True]


def test_pages_of_the_future_hold_no_page_until_then() -> None:
    sent = Sent()
    findings = log(sent, CollectorRegistry(), pages_per_day=1)
    years_ns, two_hours_ns = 10 * 365 * DAY_NS, DAY_NS // 12
    for number, ahead_ns in enumerate((years_ns, two_hours_ns)):
        began_ns = START_NS + ahead_ns
        findings._take(Message(replace(FINDING, finding_id=f"f{number}", held=False, began_ns=began_ns)))
    observed = candidate(state=FindingState.OBSERVED)
    findings.cycle([observed], watched=1, time_ns=START_NS)
    assert [one.held for one in sent.findings()] == [False]
    assert "f0" not in findings.alarms.budget.paged_ns, "not kept for years"
    assert findings.alarms.budget.paged_ns.pop(sent.findings()[0].finding_id) == START_NS
    second = candidate(3, node="r2-n1", state=FindingState.OBSERVED)
    findings.cycle([second], watched=1, time_ns=START_NS + two_hours_ns)
    assert [one.held for one in sent.findings() if dict(one.labels).get("Hostname") == "r2-n1"] == [True]


def test_marks_outlast_a_clock_that_is_ahead_for_some_cycles() -> None:
    registry = CollectorRegistry()
    findings = log(Sent(), registry)
    findings._take(Message(Mark("f1", Verdict.REPAIRED, time_ns=START_NS)))
    for ahead_ns in (0, 60 * DAY_NS, 60 * DAY_NS + CYCLE_NS, CYCLE_NS):
        findings.cycle([], watched=1, time_ns=START_NS + ahead_ns)
    assert registry.get_sample_value("kernelcast_predictor_finding_marks", {"verdict": "repaired"}) == 1


def test_precision_is_absent_again_once_its_marks_are_too_old() -> None:
    registry = CollectorRegistry()
    findings = log(Sent(), registry)
    findings._take(Message(Mark("f1", Verdict.REPAIRED, time_ns=START_NS)))
    for days, shown in ((0, 1.0), (31, None)):
        findings.cycle([], watched=1, time_ns=START_NS + days * DAY_NS)
        precision = registry.get_sample_value("kernelcast_predictor_finding_precision_ratio", {"source": "marks"})
        assert precision == shown
