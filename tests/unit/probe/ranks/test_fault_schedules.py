"""A few of the random fault schedules of four ranks; `python -m tests.faults.ranks.run` runs as many as wanted."""

from collections.abc import Callable

import pytest
from tests.faults.ranks.drawing import STEPS, Fault, Schedule
from tests.faults.ranks.schedules import FaultyGroup, Run, findings
from tests.faults.ranks.services import Issue, Kill, Services

from kernelcast.wire.events import OutcomeState


@pytest.mark.parametrize("number", range(10))
def test_no_fault_hangs_a_job_or_leaves_its_ranks_apart(number: int) -> None:
    assert findings(f"suite/{number}") == []


@pytest.mark.parametrize("group", ["all_gather", "broadcast"])
def test_a_rank_whose_group_fails_once_before_it_communicates_does_not_hang_the_job(group: str) -> None:
    """Review: one exception of the group on one rank ended both ranks."""
    faults = tuple(Fault("before", rank, 2 * rank + 1) for rank in range(4))
    run = Run(Schedule(group, True, 0.05, 0.3, (3, 9, 20, 4), (), faults), "before")
    assert run.checked() == []
    assert run.programs[0].values == run.programs[3].values


@pytest.mark.parametrize("number", range(6))
def test_a_rank_that_misses_a_message_is_with_the_others_again_at_the_next_meeting(number: int) -> None:
    run = Run(Schedule("all_gather", True, 0.05, 0.3, (3, 9, 20, 4), (), (Fault("after", 2, 4 + number),)), "after")
    assert run.checked() == []
    apart = [step for step in range(300) if run.programs[2].values[step] != run.programs[0].values[step]]
    assert not apart or apart[-1] - apart[0] < 80
    assert {program.batch.value for program in run.programs} == {run.programs[0].batch.value}


def test_a_hint_that_reaches_some_ranks_only_changes_nothing_and_expires() -> None:
    run = Run(Schedule("all_gather", True, 2.0, 0.3, (3, -1, 20, 4), (), ()), "some")
    assert run.checked() == []
    assert {value for program in run.programs for value in program.values} == {48}
    (expired,) = run.programs[0].final()
    assert expired.state is OutcomeState.EXPIRED
    assert "before all ranks had it" in expired.reason


def test_a_stop_on_one_rank_ends_the_trial_on_all_within_two_meetings() -> None:
    run = Run(Schedule("all_gather", True, 0.05, 0.012, (3, 3, 3, 3), (), (Fault("stop", 3, 130),)), "stop")
    assert run.checked() == []
    ends = [program.final()[0] for program in run.programs]
    assert {(end.decision, end.reason) for end in ends} == {("inconclusive", "an order")}
    assert {program.batch.rollbacks for program in run.programs} == {0}
    for program in run.programs:
        assert 128 in program.values[90:130]
        assert 128 not in program.values[130 + 2 * 5 + 1 :]


def test_a_job_without_a_retry_hangs() -> None:
    """The schedules can see a hang: without the repeated call, one rank waits for the others."""
    faults = (Fault("before", 1, 3),)
    run = Run(Schedule("all_gather", True, 0.05, 0.3, (3, 9, 20, 4), (), faults), "hang")
    run.ours.hang_seconds = run.theirs.hang_seconds = 0.5
    for group in run.groups:
        group.all_gather = _never_repeated(group)  # type: ignore[assignment]
    assert any("HangError" in one or "hangs" in one for one in run.checked())


def _never_repeated(group: FaultyGroup) -> Callable[[str], list[str]]:
    def gather(text: str) -> list[str]:
        try:
            return group._gather(text)
        except RuntimeError as error:
            raise ConnectionResetError(str(error)) from error

    return gather


def searched(*faults: Fault, group: str = "all_gather") -> Run:
    run = Run(Schedule(group, True, 0.05, 0.0, (-1, -1, -1, -1), (), faults, searches=True), "searched")
    assert run.checked() == []
    return run


@pytest.mark.parametrize("group", ["all_gather", "broadcast"])
def test_four_ranks_search_a_space_without_a_fault(group: str) -> None:
    run = searched(group=group)
    assert {program.configurations[-1] for program in run.programs} == {"workers=4 prefetch=4"}


@pytest.mark.parametrize("rank", [0, 3])
def test_a_configuration_that_fails_elsewhere_is_tried_by_no_rank_from_then_on(rank: int) -> None:
    run = searched(Fault("learn", rank, 10))
    assert all("workers=4 prefetch=4" not in program.configurations for program in run.programs)
    assert {program.configurations[-1] for program in run.programs} == {"workers=4 prefetch=2"}


def test_the_schedules_see_ranks_that_try_a_failing_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelcast.probe.ranks.searching.PooledSearch.ban", lambda _self, _values: None)
    run = Run(Schedule("all_gather", True, 0.05, 0.0, (-1,) * 4, (), (Fault("learn", 2, 10),), searches=True), "seen")
    assert any("knew at 10 that it fails" in sentence for sentence in run.checked())


def test_an_error_of_the_search_on_the_first_rank_ends_it_on_all() -> None:
    run = searched(Fault("search", 0, 60))
    for program in run.programs:
        begun, ended = (one for one in program.outcomes.history if one.is_search)
        assert (begun.state, ended.state) == (OutcomeState.APPLIED, OutcomeState.ROLLED_BACK)
        assert "planted in the search" in ended.reason


def served(*kills: Kill, at: int = 5) -> Run:
    services = Services([Issue("p1", "128", at)], kills, STEPS, "served")
    run = Run(Schedule("all_gather", True, 0.05, 0.3, (-1,) * 4, (), (), services=services), "served")
    assert run.checked() == []
    return run


@pytest.mark.parametrize("kill", [None, Kill("predictor", 60), Kill("kafka", 60), Kill("exporter a", 60)])
def test_a_trial_ends_alike_on_all_ranks_whichever_service_is_killed_in_it(kill: Kill | None) -> None:
    run = served(*([kill] if kill else []))
    assert {value for program in run.programs for value in program.values[60:90]} == {48, 128}
    assert {program.batch.value for program in run.programs} == {128}
    for program in run.programs:
        assert [one.decision for one in program.final("p1")] == ["kept"]
    reported = [len(taken) for taken in run.taken]
    assert (reported[0] < 3) == (kill == Kill("exporter a", 60)), "they wait until an exporter takes them"


def test_a_hint_that_a_restarted_exporter_delivers_again_is_tried_once() -> None:
    run = served(Kill("exporter b", 20, 30), Kill("kafka", 60, 70), Kill("exporter a", 100, 101))
    assert len(run.schedule.services.deliveries) > 4  # type: ignore[union-attr]
    for program in run.programs:
        assert [one.state for one in program.outcomes_of("p1")] == [
            OutcomeState.RECEIVED,
            OutcomeState.APPLIED,
            OutcomeState.KEPT,
        ]


def test_a_node_whose_exporter_does_not_come_back_keeps_the_others_from_the_trial() -> None:
    run = served(Kill("exporter b", 0))
    assert {value for program in run.programs for value in program.values} == {48}


def test_a_hint_that_a_killed_predictor_issues_again_is_tried_once_under_its_new_id() -> None:
    run = served(Kill("kafka", 0, 50), Kill("predictor", 20, 60))
    for program in run.programs:
        assert [one.decision for one in program.final("p1'")] == ["kept"]
        assert program.outcomes_of("p1") == []


def test_a_trial_that_was_decided_and_stopped_before_any_rank_knew_of_it_has_no_end() -> None:
    """Found by schedule 1073: rank 0 reported an end of a trial that had not begun."""
    faults = (Fault("own", 0, 69), Fault("stop", 0, 113))
    run = Run(Schedule("all_gather", True, 0.002, 0.3, (13, 12, 13, 14), (), faults), "1073")
    assert run.checked() == []
    assert {value for program in run.programs for value in program.values} == {48}
    assert [one.state for one in run.programs[0].outcomes_of("h1")] == [OutcomeState.RECEIVED]
