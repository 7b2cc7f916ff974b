"""Few findings from the candidates of many series: groups, stable ids, damping, budget, false-discovery control."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.predictor.finding_candidates import HOUR, MINUTE, START_NS, TEMPERATURE, Run, candidate, predicted

from kernelcast.predictor.alarms import state
from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.racks import rack_of
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.errors import WireError
from kernelcast.wire.findings import Finding, FindingState, Mark, Scope, Severity, Verdict

DAY = 24 * HOUR
TICKET = Severity.TICKET


def pages(found: list[Finding]) -> list[Finding]:
    return [
        one for one in found if one.severity is Severity.PAGE and not one.held and one.state is not FindingState.OVER
    ]


def test_a_passed_limit_is_a_finding_at_once_until_it_is_over() -> None:
    run = Run()
    (begun,) = run.step(candidate(3), watched=1_000_000)
    assert (begun.scope, begun.state, begun.severity) == (Scope.GPU, FindingState.PASSED, Severity.PAGE)
    assert (begun.began_ns, begun.series, begun.held) == (run.now_ns, 1, False)
    assert dict(begun.labels) == {"Hostname": "r1-n1", "UUID": "GPU-r1-n1-3", "gpu": "3"}
    assert run.steps(HOUR, candidate(3)) == []
    (ended,) = run.steps(HOUR)
    assert (ended.finding_id, ended.state, ended.ended_ns) == (begun.finding_id, FindingState.OVER, ended.updated_ns)
    assert run.alarms.lasting == []


def test_a_state_that_changes_is_reported_under_the_same_id() -> None:
    run = Run()
    (begun,) = run.steps(3 * HOUR, predicted())
    (passed,) = run.step(candidate())
    assert (begun.state, passed.state) == (FindingState.PREDICTED, FindingState.PASSED)
    assert passed.finding_id == begun.finding_id
    assert begun.probability == 0.95
    assert begun.seconds_to_limit == (6 * HOUR, 12 * HOUR, 18 * HOUR)


def test_all_series_of_a_gpu_are_one_finding_with_the_cause_that_explains_most() -> None:
    run = Run()
    slow = [candidate(metric=f"k{number}", cause=Cause.KERNEL_SLOWDOWN, program="train") for number in range(3)]
    clock = candidate(metric="clock", cause=Cause.CLOCK_LOW)
    (begun,) = run.step(*slow, clock, candidate())
    assert (begun.cause, begun.metric, begun.series) == (Cause.THERMAL, TEMPERATURE, 5)
    assert {one.metric for one in begun.evidence} == {"k0", "k1", "k2", "clock", TEMPERATURE}
    assert begun.evidence[0].metric == TEMPERATURE


def test_several_gpus_of_a_node_are_one_finding_of_the_node() -> None:
    (begun,) = Run().step(candidate(0), candidate(1), candidate(5))
    assert (begun.scope, dict(begun.labels), begun.series) == (Scope.NODE, {"Hostname": "r1-n1"}, 3)


def test_a_passed_limit_and_a_prediction_for_hours_later_are_two_findings_of_two_gpus() -> None:
    run = Run()
    hot, later = candidate(3, value=93.0), predicted(0, probability=0.9986)
    run.steps(HOUR, later)
    (warned,) = run.alarms.lasting
    (paged,) = run.step(hot, later)
    assert (paged.scope, dict(paged.labels)["gpu"], paged.value) == (Scope.GPU, "3", 93.0)
    # Neither of them ends, and nothing is reported of the warning.
    assert run.steps(HOUR, hot, later) == []
    assert warned.finding_id in {one.finding_id for one in run.alarms.lasting}


def test_two_gpus_at_about_one_time_or_three_at_any_are_one_finding_of_the_node() -> None:
    soon = predicted(0, seconds_to_limit=(600.0, 1500.0, 2400.0))
    run = Run()
    run.steps(HOUR, candidate(3), soon)
    (node,) = run.alarms.lasting
    assert (node.scope, node.series) == (Scope.NODE, 2)
    run = Run()
    run.steps(3 * HOUR, candidate(3), predicted(0), predicted(1))
    (node,) = run.alarms.lasting
    assert (node.scope, node.series) == (Scope.NODE, 3)


def test_state_value_limit_and_since_of_a_node_are_those_of_one_gpu() -> None:
    """GPU 3 has passed its limit and is back below it, not clearly; the others are predicted to reach theirs."""
    run = Run()
    later = [predicted(gpu, limit=89.0, value=79.0) for gpu in range(2)]
    run.steps(3 * HOUR, *later)
    passed_ns = run.now_ns
    run.steps(HOUR, candidate(3, value=93.0, passed_ns=passed_ns), *later)
    back = predicted(3, probability=0.0027, value=67.0, passed_ns=passed_ns)
    run.steps(HOUR, back, *later)
    (node,) = run.alarms.lasting
    assert (node.scope, node.state, node.passed_ns) == (Scope.NODE, FindingState.PASSED, passed_ns)
    assert (node.value, node.limit, dict(node.evidence[0].labels)["gpu"]) == (67.0, 87.0, "3")
    # Once it is over the finding is that of the others: nothing has passed a limit any more.
    run.steps(3 * HOUR, *later)
    (node,) = run.alarms.lasting
    assert (node.state, node.passed_ns, node.value, node.limit) == (FindingState.PREDICTED, 0, 79.0, 89.0)


def test_a_passed_limit_leads_its_gpu_and_a_slow_kernel_does_not() -> None:
    power = candidate(metric="DCGM_FI_DEV_POWER_USAGE", cause=Cause.UNKNOWN, value=700.0, limit=690.0)
    run = Run()
    run.steps(3 * HOUR, predicted(), power)
    (leading,) = run.alarms.lasting
    assert (leading.state, leading.metric, leading.value) == (FindingState.PASSED, "DCGM_FI_DEV_POWER_USAGE", 700.0)
    slow = candidate(metric="cuda_kernel_duration_seconds", cause=Cause.KERNEL_SLOWDOWN, program="train")
    run = Run()
    run.steps(3 * HOUR, predicted(), slow)
    (leading,) = run.alarms.lasting
    assert (leading.state, leading.metric) == (FindingState.PREDICTED, TEMPERATURE)


def test_several_nodes_of_a_rack_are_one_finding_of_the_rack() -> None:
    (begun,) = Run().step(candidate(0), candidate(1), candidate(5, node="r1-n2"))
    assert (begun.scope, dict(begun.labels), begun.series) == (Scope.RACK, {"rack": "r1"}, 3)


def test_a_file_of_racks_may_have_comments_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "racks"
    path.write_text("\ufeffnode7 r12  # top\n\nnode8 r13\n")
    find = rack_of(AlarmSettings(rack_file=path))
    assert [find(host) for host in ("node7", "node8", "node9")] == ["r12", "r13", ""]


def test_without_a_rack_setting_no_rack_is_named() -> None:
    found = Run(rack_pattern="").step(candidate(0), candidate(1), candidate(5, node="r1-n2"))
    assert sorted(one.scope for one in found) == [Scope.GPU, Scope.NODE]


def test_a_program_is_named_for_its_own_causes_only() -> None:
    deploy = [candidate(gpu, cause=Cause.DEPLOY, severity=TICKET, program="train") for gpu in range(2)]
    (begun,) = Run().step(*deploy)
    assert (begun.scope, dict(begun.labels)["program"], begun.severity) == (Scope.PROGRAM, "train", TICKET)
    straggler = [candidate(gpu, cause=Cause.STRAGGLER, program="train") for gpu in range(2)]
    assert [one.scope for one in Run().step(*straggler)] == [Scope.GPU, Scope.GPU]


def test_a_finding_that_grows_keeps_its_id_and_sends_no_second_page() -> None:
    run = Run()
    (first,) = run.step(candidate(0))
    (second,) = run.step(candidate(0), candidate(4, node="r1-n7"))
    changed = run.step(candidate(0), candidate(1), candidate(4, node="r1-n7"))
    rack = [one for one in changed if one.state is not FindingState.OVER]
    assert [(one.finding_id, one.scope) for one in rack] == [(first.finding_id, Scope.RACK)]
    assert [one.finding_id for one in changed if one.state is FindingState.OVER] == [second.finding_id]
    assert list(run.alarms.budget.paged_ns) == [first.finding_id, second.finding_id]
    run.steps(HOUR, candidate(0), candidate(1))
    (rest,) = run.alarms.lasting
    assert rest.finding_id == first.finding_id


def test_a_paged_finding_that_grows_over_an_older_ticket_keeps_its_id() -> None:
    run = Run()
    ticket, second, third = (candidate(gpu, node=f"r1-n{gpu}") for gpu in range(3))
    (older,) = run.step(replace(ticket, severity=TICKET))
    (paged,) = run.step(replace(ticket, severity=TICKET), second)
    run.step(replace(ticket, severity=TICKET), second, third)
    (rack,) = run.alarms.lasting
    assert (rack.finding_id, rack.scope) == (paged.finding_id, Scope.RACK)
    assert older.severity is TICKET
    assert list(run.alarms.budget.paged_ns) == [paged.finding_id]


def test_symptoms_of_a_gpu_join_the_rack_that_explains_them() -> None:
    hot = [candidate(gpu, node=f"r1-n{gpu}") for gpu in range(4)]
    slow = candidate(2, node="r1-n2", metric="k", cause=Cause.KERNEL_SLOWDOWN, program="train")
    (begun,) = Run().step(*hot, slow)
    assert (begun.scope, begun.series, begun.cause) == (Scope.RACK, 5, Cause.THERMAL)


def test_a_leak_on_nodes_of_one_job_is_one_page_about_the_program() -> None:
    nodes = [f"r1-n{node}" for node in range(4)]
    programs = {(node, f"GPU-{node}-{gpu}", ""): "train" for node in nodes for gpu in range(2)}
    leaks = [predicted(gpu, node=node, metric="FB_USED", cause=Cause.MEMORY_LEAK) for node in nodes for gpu in range(2)]
    run = Run()
    [begun] = run.steps(3 * HOUR, *leaks, programs=programs)
    assert (begun.scope, dict(begun.labels)["program"], begun.severity) == (Scope.PROGRAM, "train", Severity.PAGE)
    assert begun.series == len(leaks)


def test_a_hot_gpu_is_no_finding_of_the_program_that_runs_there() -> None:
    programs = {("r1-n1", f"GPU-r1-n1-{gpu}", ""): "train" for gpu in range(2)}
    [begun] = Run().step(candidate(0), programs=programs)
    assert begun.scope is Scope.GPU
    assert "program" not in dict(begun.labels)


def test_slow_kernels_of_a_hot_rack_are_no_finding_of_their_program() -> None:
    hot = [candidate(gpu, node=f"r1-n{gpu}") for gpu in range(4)]
    slow = [
        candidate(gpu, node=f"r1-n{gpu}", metric="k", cause=Cause.KERNEL_SLOWDOWN, program="train") for gpu in range(4)
    ]
    (begun,) = Run().step(*hot, *slow)
    assert (begun.scope, begun.series, begun.cause) == (Scope.RACK, 8, Cause.THERMAL)


def test_a_passed_limit_stays_passed_until_it_is_over() -> None:
    run = Run()
    run.step(candidate())
    assert run.steps(HOUR, predicted()) == []
    assert [one.state for one in run.steps(HOUR)] == [FindingState.OVER]


def test_a_straggler_joins_the_brake_that_explains_it_and_a_slow_gpu_no_deploy() -> None:
    brake = [candidate(gpu, cause=Cause.POWER_BRAKE) for gpu in range(4)]
    straggler = candidate(2, metric="k", cause=Cause.STRAGGLER, program="train")
    (begun,) = Run().step(*brake, straggler)
    assert (begun.scope, begun.cause, begun.series) == (Scope.NODE, Cause.POWER_BRAKE, 5)
    deploy = [candidate(gpu, metric="d", cause=Cause.DEPLOY, severity=TICKET, program="train") for gpu in range(4)]
    slow = candidate(2, metric="k", cause=Cause.AGEING, program="train")
    found = {one.scope: one.severity for one in Run().step(*deploy, slow)}
    assert found == {Scope.PROGRAM: TICKET, Scope.GPU: Severity.PAGE}


def test_a_short_break_ends_nothing_and_a_flapping_finding_stays_until_quiet() -> None:
    run = Run(clear_seconds=600.0, flaps=3, flap_window_seconds=3600.0, quiet_seconds=7200.0)
    begun = run.step(candidate())
    for _ in range(3):
        assert run.steps(600.0) == []
        assert run.step(candidate()) == []
    assert run.steps(7200.0) == []
    (ended,) = run.steps(600.0)
    assert ended.finding_id == begun[0].finding_id


def test_a_fault_that_returns_within_a_day_is_a_ticket_until_it_gets_further() -> None:
    run = Run()
    first = run.steps(3 * HOUR, predicted())
    run.steps(HOUR)
    again = run.steps(3 * HOUR, predicted())
    passed = run.steps(HOUR, candidate())
    run.steps(HOUR)
    once_more = run.steps(HOUR, candidate())
    assert [one.severity for one in (*first, *again, *passed, *once_more)] == [
        Severity.PAGE,
        TICKET,
        Severity.PAGE,
        TICKET,
    ]
    other = run.steps(HOUR, candidate(cause=Cause.MEMORY_LEAK, metric="memory"), candidate(1, node="r2-n2"))
    assert len(pages(other)) == 2, "another cause, and another GPU"
    run.steps(DAY + HOUR)
    assert len(pages(run.steps(HOUR, candidate()))) == 1, "a day later it may be another fault"


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (candidate(), candidate(), Verdict.REPAIRED),
        (candidate(state=FindingState.OBSERVED), candidate(state=FindingState.OBSERVED), Verdict.ACCEPTED),
    ],
)
def test_a_fault_that_returns_after_its_repair_and_one_that_the_gpu_reports_page_again(
    first: Finding, second: Finding, verdict: Verdict
) -> None:
    run = Run()
    (begun, *_) = run.steps(HOUR, first)
    run.alarms.known.marks[begun.finding_id] = Mark(begun.finding_id, verdict, time_ns=run.now_ns)
    run.steps(HOUR)
    assert len(pages(run.steps(HOUR, second))) == 1


def test_beyond_the_budget_one_page_says_how_many_are_held() -> None:
    run = Run(pages_per_day=2)
    observed = {"state": FindingState.OBSERVED, "cause": Cause.STRAGGLER}
    found = [candidate(0, node=f"n{number}", **observed) for number in range(5)]
    changed = run.steps(900.0, *found)
    (summary,) = [one for one in changed if one.scope is Scope.FLEET]
    assert (summary.value, summary.limit, summary.severity) == (3.0, 2.0, Severity.PAGE)
    assert len(pages(changed)) == 2 + 1
    assert sorted(one.held for one in changed if one.scope is Scope.GPU) == [False, False, True, True, True]
    assert run.alarms.held == 3


def test_the_budget_holds_neither_tickets_nor_passed_limits() -> None:
    run = Run(pages_per_day=0)
    ticket = candidate(0, node="a", severity=TICKET, state=FindingState.OBSERVED)
    changed = run.steps(900.0, ticket, candidate(0, node="b"))
    assert {one.severity for one in changed} == {Severity.PAGE, TICKET}
    assert not any(one.held for one in changed)


def test_a_finding_that_was_paged_is_not_held_when_it_is_a_ticket_for_a_while() -> None:
    run = Run(pages_per_day=1, clear_seconds=600.0)
    slow = candidate(metric="k", cause=Cause.STRAGGLER, state=FindingState.OBSERVED)
    (paged,) = run.steps(1200.0, slow)
    calmer = run.steps(600.0, replace(slow, severity=TICKET))
    again = run.steps(DAY + HOUR, slow, replace(candidate(2, node="r2-n1"), cause=Cause.XID))
    assert [one.severity for one in calmer] == [TICKET]
    mine = [one for one in again if one.finding_id == paged.finding_id]
    assert mine[0].severity is Severity.PAGE
    assert not [one for one in mine if one.held]
    assert Scope.FLEET not in {one.scope for one in again}


def test_held_pages_go_out_when_the_budget_allows_and_the_summary_ends() -> None:
    run = Run(pages_per_day=1)
    observed = [candidate(0, node=name, state=FindingState.OBSERVED) for name in ("a", "b")]
    run.steps(900.0, *observed)
    later = run.steps(DAY + 900.0, *observed)
    released = [one for one in pages(later) if one.scope is Scope.GPU and one.updated_ns > START_NS + DAY * 1e9]
    assert {dict(one.labels)["Hostname"] for one in released} == {"a", "b"}
    assert [one.state for one in later if one.scope is Scope.FLEET] == [FindingState.OVER]


@pytest.mark.parametrize("cause", [Cause.XID, Cause.MEMORY_ERRORS, Cause.TELEMETRY_LOST])
def test_an_observed_fault_of_severity_page_is_a_page_in_the_cycle_that_sees_it(cause: Cause) -> None:
    (begun,) = Run(hold_seconds=600.0).step(candidate(state=FindingState.OBSERVED, cause=cause), watched=100_000)
    assert (begun.severity, begun.state, begun.held) == (Severity.PAGE, FindingState.OBSERVED, False)


@pytest.mark.parametrize(
    "observed",
    [
        candidate(state=FindingState.OBSERVED, cause=Cause.XID, severity=TICKET),
        candidate(state=FindingState.OBSERVED, cause=Cause.STRAGGLER),
    ],
)
def test_an_observed_ticket_and_a_slow_worker_must_last_before_they_are_findings(observed: Finding) -> None:
    run = Run(hold_seconds=600.0)
    assert run.steps(600.0, observed) == []
    assert len(run.step(observed)) == 1


def test_an_observed_fault_that_was_marked_as_a_false_alarm_must_last_the_next_time() -> None:
    run, xid = Run(hold_seconds=600.0), candidate(state=FindingState.OBSERVED, cause=Cause.XID)
    (begun,) = run.step(xid)
    run.alarms.known.findings[begun.finding_id] = begun
    run.alarms.known.marks[begun.finding_id] = Mark(begun.finding_id, Verdict.FALSE_ALARM, time_ns=run.now_ns)
    run.steps(HOUR)
    assert run.step(xid) == []
    assert len(run.steps(1200.0, xid)) == 1


def test_the_more_series_are_watched_the_longer_a_prediction_must_last() -> None:
    waits = []
    for watched in (1, 1_000, 100_000):
        run = Run()
        while not run.step(predicted(probability=0.99), watched=watched):
            assert run.cycles < 100
        waits.append(run.cycles)
    assert waits[0] == 1
    assert waits[0] < waits[1] < waits[2] <= 12 * 5


def test_many_predictions_at_once_need_less_each_than_one_alone() -> None:
    alone, many = Run(), Run()
    crowd = [predicted(0, node=f"r{number}-n1") for number in range(40)]
    alone_found = alone.steps(1.5 * HOUR, crowd[0], watched=4000)
    many_found = many.steps(1.5 * HOUR, *crowd, watched=4000)
    assert alone_found == []
    assert many_found


def test_predictions_of_one_rack_count_as_one_since_its_room_warms_them_all() -> None:
    alone, warm = Run(), Run()
    crowd = [predicted(gpu, node=f"r1-n{gpu % 8}") for gpu in range(40)]
    assert alone.steps(1.5 * HOUR, crowd[0], watched=4000) == []
    assert warm.steps(1.5 * HOUR, *crowd, watched=4000) == []
    assert warm.steps(2 * HOUR, *crowd, watched=4000)


def test_the_first_page_of_a_hot_rack_is_about_the_rack_and_the_only_one() -> None:
    run = Run()
    first = predicted(0, node="r1-n0", probability=0.999)
    later = [predicted(gpu, node=f"r1-n{gpu}", probability=0.9) for gpu in range(1, 5)]
    found = run.steps(6 * HOUR, first, *later, watched=4000)
    assert [(one.scope, one.series) for one in pages(found)] == [(Scope.RACK, 5)]


def test_weak_predictions_or_too_few_do_not_make_a_rack_of_a_hot_gpu() -> None:
    strong = predicted(0, node="r1-n0", probability=0.999)
    weak = [predicted(gpu, node=f"r1-n{gpu}", probability=0.02) for gpu in range(1, 5)]
    for others in (weak, [predicted(1, node="r1-n1", probability=0.9)], [predicted(1, node="r1-n0", probability=0.9)]):
        found = Run().steps(HOUR, strong, *others, watched=2000)
        assert [(one.scope, one.series) for one in pages(found)] == [(Scope.GPU, 1)]


def test_a_prediction_that_is_given_up_starts_again() -> None:
    run = Run()
    for _ in range(12):
        assert run.steps(900.0, predicted(), watched=5000) == []
        assert run.step() == []
    assert run.steps(5 * HOUR, predicted(), watched=5000)


@pytest.mark.slow
def test_a_false_alarm_raises_the_bar_of_its_series_for_thirty_days() -> None:
    def wait(run: Run) -> int:
        before = run.cycles
        while not any(one.state is not FindingState.OVER for one in run.step(predicted(), watched=1000)):
            assert run.cycles < before + 100
        return run.cycles - before

    run = Run()
    usual = wait(run)
    finding = run.alarms.lasting[0]
    run.alarms.known.findings[finding.finding_id] = finding
    run.alarms.known.marks[finding.finding_id] = Mark(finding.finding_id, Verdict.FALSE_ALARM, time_ns=run.now_ns)
    run.steps(HOUR)
    raised = wait(run)
    assert usual < raised <= usual + 4, "a factor of two is twenty minutes at a growth of 8 an hour"
    run.steps(30 * DAY)
    assert wait(run) == usual


def test_a_lasting_finding_is_repeated_every_day() -> None:
    found = Run().steps(3 * DAY, candidate())
    assert len(found) == 3
    assert len({one.finding_id for one in found}) == 1


def test_more_series_than_the_bound_are_refused_and_counted() -> None:
    run = Run(max_series=2)
    run.step(*(candidate(gpu) for gpu in range(5)))
    assert (len(run.alarms.candidates.by_series), run.alarms.candidates.refused) == (2, 3)


def test_a_snapshot_restores_everything_that_decides() -> None:
    def history(run: Run) -> None:
        run.steps(HOUR, candidate(0), predicted(1, node="r2-n1"), candidate(0, node="r3-n1", cause=Cause.XID))

    straight, first, second = Run(pages_per_day=1), Run(pages_per_day=1), Run(pages_per_day=1)
    history(straight)
    history(first)
    second.alarms.restore(state.load(json.loads(json.dumps(state.dump(first.alarms.snapshot())))))
    second.cycles = first.cycles
    for seconds, found in (
        (4 * HOUR, [predicted(1, node="r2-n1"), candidate(0)]),
        (4 * HOUR, []),
        (HOUR, [candidate()]),
    ):
        assert second.steps(seconds, *found) == straight.steps(seconds, *found)
    assert second.alarms.lasting == straight.alarms.lasting


@pytest.mark.parametrize(
    "data",
    [{}, {"version": 2}, {"version": 1}, *({"version": 1, "updated_ns": time_ns} for time_ns in ("x", math.inf))],
)
def test_another_state_is_refused_with_a_sentence(data: dict[str, object]) -> None:
    with pytest.raises(WireError, match="findings begin again"):
        state.load(data)


def test_a_state_with_a_candidate_that_never_began_is_refused() -> None:
    run = Run()
    run.steps(HOUR, candidate())
    data = state.dump(run.alarms.snapshot())
    data["candidates"][0]["begins_ns"] = []
    with pytest.raises(WireError, match="begins_ns"):
        state.load(data)


@settings(deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from(list(Cause)), st.booleans()), max_size=6
        ),
        max_size=20,
    ),
    st.integers(0, 3),
)
def test_whatever_comes_findings_begin_once_end_once_and_keep_within_the_budget(
    cycles: list[list[tuple[int, int, Cause, bool]]], budget: int
) -> None:
    alarms = Alarms(AlarmSettings(pages_per_day=budget, hold_seconds=0.0, clear_seconds=600.0, rack_pattern="(r.)"))
    lasting: dict[str, Finding] = {}
    paged: set[str] = set()
    for number, rows in enumerate([*cycles, *([[]] * 60)]):
        found = {
            (gpu, node): candidate(
                gpu, node=f"r0-n{node}", cause=cause, state=FindingState.PASSED if passed else FindingState.OBSERVED
            )
            for gpu, node, cause, passed in rows
        }
        for one in alarms.step(found.values(), 12, START_NS + number * 300 * 10**9):
            if one.state is FindingState.OVER:
                assert lasting.pop(one.finding_id).state is not FindingState.OVER
                continue
            lasting[one.finding_id] = one
            if one.severity is Severity.PAGE and not one.held and one.state is FindingState.OBSERVED:
                paged |= {one.finding_id} if one.scope is not Scope.FLEET else set()
        keys = [key for one in alarms.snapshot().findings for key in one.members]
        assert len(keys) == len(set(keys))
    assert {one.scope for one in lasting.values()} <= {Scope.FLEET}
    assert sum(one.scope is not Scope.FLEET for one in lasting.values()) == 0
    assert len(paged) <= budget + len(cycles) * 6 * any(passed for rows in cycles for *_, passed in rows)


@pytest.mark.parametrize("restarted", [False, True])
def test_alarms_go_on_after_the_clocks_of_hosts_were_ahead_and_are_set_back(restarted: bool) -> None:  # noqa: FBT001
    run = Run(pages_per_day=1)
    (begun,) = run.step(candidate(0))
    ahead_ns = run.now_ns + 60 * round(DAY * 1e9)
    (repeated,) = run.alarms.step([candidate(0)], 100, ahead_ns)
    assert repeated.updated_ns == ahead_ns
    if restarted:
        saved, run.alarms = state.dump(run.alarms.snapshot()), Alarms(run.settings)
        run.alarms.restore(state.load(json.loads(json.dumps(saved))))
        assert run.alarms.step([], 0, 0) == [], "no series has reported yet"
    observed = candidate(1, node="r2-n1", state=FindingState.OBSERVED, severity=TICKET)
    changed = run.steps(HOUR, observed)
    assert [(one.finding_id, one.state) for one in changed if one.severity is Severity.PAGE] == [
        (begun.finding_id, FindingState.OVER)
    ]
    (ended,) = (one for one in changed if one.state is FindingState.OVER)
    assert ended.began_ns <= (ended.ended_ns or 0) <= run.now_ns
    assert ended.updated_ns >= repeated.updated_ns, "readers keep the newest state of a finding"
    (ticket,) = run.alarms.lasting
    assert (ticket.state, ticket.severity) == (FindingState.OBSERVED, TICKET)
    fault = candidate(2, node="r2-n2", state=FindingState.OBSERVED)
    assert [one.held for one in run.step(fault, observed) if one.metric == TEMPERATURE] == [True]
    run.steps(DAY, observed)
    assert [one.held for one in run.step(fault, observed) if one.metric == TEMPERATURE] == [False]


@pytest.mark.parametrize(
    ("times", "waits_seconds"),
    [
        ((300.0, HOUR / 2, HOUR), 10 * MINUTE),
        ((300.0, 10 * MINUTE, None), 5 * MINUTE),
        ((300.0, HOUR, None), HOUR / 2),
    ],
)
def test_among_100_000_series_a_nearly_certain_prediction_waits_for_half_of_its_time_and_ten_minutes_in_the_last_hour(
    times: tuple[float, float, float | None], waits_seconds: float
) -> None:
    soon = replace(predicted(probability=0.97), seconds_to_limit=times)
    run = Run()
    assert run.steps(waits_seconds, soon, watched=100_000) == []
    assert len(run.step(soon, watched=100_000)) == 1


def test_among_100_000_series_a_prediction_that_is_less_certain_waits_longer_than_its_time() -> None:
    soon = replace(predicted(probability=0.85), seconds_to_limit=(300.0, HOUR, None))
    assert Run().steps(HOUR, soon, watched=100_000) == []
