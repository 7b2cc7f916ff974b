"""Meetings of ranks: their times and their messages."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.probe.ranks import NOW_NS, Job, RankProgram, job_of, same

from kernelcast import probe
from kernelcast.probe.ranks.cadence import ACTIVE_SECONDS, IDLE_SECONDS, Cadence
from kernelcast.probe.ranks.messages import Message, Report, State, Work, decode, encode
from kernelcast.probe.tunables import Terms
from kernelcast.tuning.journal import Journal
from kernelcast.wire.events import HintMode, OutcomeState

KERNEL = "stencil"


def steps(job: Job, count: int, seconds: float = 0.1) -> None:
    def body(program: RankProgram) -> None:
        for _ in range(count):
            program.step(seconds)

    job.run(body)


@pytest.mark.parametrize("seconds", [0.001, 0.0075, 0.2, 3.0])
def test_nothing_open_the_ranks_meet_every_two_seconds_at_most(seconds: float) -> None:
    """Review: the ranks met at every step: 2.6 ms of 7.5 ms, two ranks over gloo."""
    job, meetings = job_of(2)
    count = round(120 / seconds) if seconds > 0.01 else 20_000

    def body(program: RankProgram) -> None:
        program.register()
        for _ in range(count):
            program.step(seconds)

    job.run(body)
    spent = count * seconds
    longest = 1024 * seconds
    assert meetings.held <= 12 + spent / min(max(IDLE_SECONDS, seconds), longest) * 1.2
    assert meetings.held >= spent / max(IDLE_SECONDS, seconds) * 0.8


def test_meetings_that_take_long_are_rarer() -> None:
    now_ns = [0]
    cadence = Cadence(lambda: now_ns[0])
    for _ in range(20):
        while not cadence.due():
            now_ns[0] += 7_500_000
        cadence.exchanged(16_000_000)
        cadence.set(cadence.announced, cadence.choose(active=False))
    assert cadence.announced * 0.0075 == pytest.approx(8.0, rel=0.05)
    for _ in range(20):
        while not cadence.due():
            now_ns[0] += 7_500_000
        cadence.set(cadence.announced, cadence.choose(active=True))
    assert cadence.announced * 0.0075 == pytest.approx(1.0, rel=0.05)
    assert ACTIVE_SECONDS < 1.0


def test_a_message_is_the_same_after_its_way_over_the_wire() -> None:
    report = Report((), "an order", True, "h1", ((3, 0.1, 32.0),), ((2, 0.05, 32.0),))
    work = Work("h1", "batch", "128", "48", 7, (("48", 4), ("128", 3)))
    message = Message("me", report, State({"batch": "48"}, "h2", work, (), 3, 5))
    assert decode(encode(message)) == message


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"v":1}', '{"v":2,"sender":"","report":{},"state":{}}', "xyz"])
def test_a_text_that_is_no_message_counts_as_missing(text: str) -> None:
    assert decode(text) is None


def test_device_time_that_comes_late_decides_where_the_tunable_names_its_kernels() -> None:
    job, _ = job_of(3, kernels=(KERNEL,))

    def body(program: RankProgram) -> None:
        random = Random(program.rank)
        program.register()
        program.hear()
        launches: list[tuple[int, int]] = []
        for _ in range(900):
            duration_ns = round((1000 if program.batch.value == 48 else 850) * random.uniform(0.99, 1.01))
            launches.append((duration_ns, program.recorder.configuration))
            if len(launches) > 4:
                late_ns, configuration = launches.pop(0)
                program.recorder.observe(KERNEL, late_ns, configuration=configuration)
            program.step(0.05)

    job.run(body)
    (kept,) = job.programs[2].final()
    assert kept.decision == "kept"
    assert kept.device_time_ratio == pytest.approx(0.85, rel=0.01)
    assert kept.step_time_ratio == pytest.approx(1.0, rel=0.001)
    assert same([program.values for program in job.programs])


def test_work_is_pooled_as_sums_over_the_ranks() -> None:
    """One rank has three times the samples; the value makes its samples cheaper and the others' dearer."""
    job, _ = job_of(4)

    def body(program: RankProgram) -> None:
        program.register()
        program.hear()
        random = Random(program.rank)
        for _ in range(900):
            new = program.batch.value == 128
            seconds = (0.3 * (0.8 if new else 1.0)) if program.rank == 0 else 0.1 * (1.05 if new else 1.0)
            program.step(seconds * random.uniform(0.99, 1.01), items=30 if program.rank == 0 else 10)

    job.run(body)
    (end,) = job.programs[1].final()
    assert end.measured_ratio == pytest.approx((0.24 + 3 * 0.105) / 0.6, rel=0.01)
    assert end.decision == "kept"


def test_an_epoch_tunable_is_compared_by_whole_epochs_on_all_ranks() -> None:
    job, _ = job_of(2, granularity="epoch")

    def body(program: RankProgram) -> None:
        program.register()
        program.hear()
        for step in range(1500):
            program.step(0.2 if program.batch.value == 48 else 0.15, epoch=step % 3 == 2)

    job.run(body)
    assert same([program.values for program in job.programs])
    values = job.programs[0].values
    assert all(step % 3 == 0 for step in range(1, 1500) if values[step] != values[step - 1])
    assert job.programs[0].final()[0].measured_ratio == pytest.approx(0.75)


def test_a_hint_to_be_applied_is_applied_on_all_ranks_in_the_same_step() -> None:
    job, _ = job_of(3)

    def body(program: RankProgram) -> None:
        program.register()
        for step in range(200):
            if step == 5 * program.rank:
                program.hear(mode=HintMode.APPLY)
            program.step(0.1)

    job.run(body)
    assert same([program.values for program in job.programs])
    assert [program.outcomes.history[-1].state for program in job.programs] == [OutcomeState.APPLIED] * 3
    assert {program.batch.value for program in job.programs} == {128}


def test_ranks_that_remember_different_values_begin_with_that_of_the_first() -> None:
    job, _ = job_of(3)

    def body(program: RankProgram) -> None:
        program.register(restored=("64", "128", None)[program.rank])
        for _ in range(3):
            program.step(0.1)

    job.run(body)
    assert [program.batch.value for program in job.programs] == [64, 64, 64]
    assert same([program.values for program in job.programs])


def test_a_stop_file_on_one_node_ends_the_trial_of_all_ranks_and_begins_nothing(tmp_path: Path) -> None:
    job, _ = job_of(2)
    job.programs[1] = stopped = RankProgram(1, job.programs[1].terms, directory=tmp_path)

    def body(program: RankProgram) -> None:
        program.register()
        program.hear()
        for step in range(200):
            if step == 80 and program.rank == 1:
                (tmp_path / "hints.stop").touch()
            program.step(0.1)
        program.hear(hint_id="h2", value="64")
        for _ in range(100):
            program.step(0.1)

    job.run(body)
    assert {program.final()[0].decision for program in job.programs} == {"inconclusive"}
    assert "hints.stop exists" in job.programs[0].final()[0].reason
    assert stopped.final("h2")[0].state is OutcomeState.REJECTED
    assert job.programs[0].final("h2") == []
    assert {value for program in job.programs for value in program.values[90:]} == {48}
    assert not Journal(tmp_path, "training", running=lambda _: False).banned("batch", "128", "v1")


def test_a_trial_of_one_rank_is_over_before_one_of_all_ranks_begins() -> None:
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        collective = program.register()
        local = replace(Terms(), kernels=())
        program.terms = local
        mine = program.register("threads")
        program.batch = collective
        if program.rank == 1:
            program.hear(hint_id="mine", tunable="threads", value="64")
        program.step(0.1)
        program.hear()
        for _ in range(900):
            both = mine.shown != mine.kept and collective.shown != collective.kept
            assert not both
            program.step(0.1 * (0.9 if mine.value == 64 else 1.0) * (0.8 if collective.value == 128 else 1.0))

    job.run(body)
    assert [program.final()[0].decision for program in job.programs] == ["kept", "kept"]
    assert [one.decision for one in job.programs[1].final("mine")] == ["kept"]


def test_a_hint_that_a_rank_refuses_is_tried_by_none() -> None:
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        program.register()
        program.hear(requires="64" if program.rank else "")
        for _ in range(200):
            program.step(0.1)
        program.now_ns = NOW_NS + 601 * 10**9
        for _ in range(100):
            program.step(0.1)

    job.run(body)
    states: Any = [[one.state for one in program.final()] for program in job.programs]
    assert states == [[OutcomeState.EXPIRED], [OutcomeState.REJECTED]]
    assert {value for program in job.programs for value in program.values} == {48}


def test_two_collective_tunables_are_tried_one_after_the_other() -> None:
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        first = program.register("batch")
        program.terms = replace(program.terms, granularity="epoch")
        second = program.register("bucket")
        program.hear()
        program.hear(hint_id="h2", tunable="bucket", value="64")
        program.batch = first
        for _ in range(1500):
            assert first.shown == first.kept or second.shown == second.kept
            ratio = (0.8 if first.value == 128 else 1.0) * (0.9 if second.value == 64 else 1.0)
            program.step(0.1 * ratio, epoch=True)

    job.run(body)
    ends = [
        [(one.hint_id, one.decision) for one in program.outcomes.history if one.decision] for program in job.programs
    ]
    assert sorted(ends[0]) == [("h1", "kept"), ("h2", "kept")]
    assert ends[0] == ends[1]


def test_a_job_in_which_a_rank_runs_no_probe_does_not_wait_for_it() -> None:
    """A program that starts the probe on its first rank only would hang at the first meeting."""
    job, meetings = job_of(3)

    def body(program: RankProgram) -> None:
        if program.rank == 1:
            probe.tunable("batch", [48, 128], 48, scope="collective", group=program.terms.group)
            return
        program.register()
        program.hear()
        for _ in range(50):
            program.step(0.1)

    job.run(body)
    assert meetings.held == 1
    refused = job.programs[0].final()[0]
    assert (refused.state, job.programs[0].batch.value) == (OutcomeState.REJECTED, 48)
    assert "one of its ranks runs no probe" in refused.reason


def test_a_trial_on_all_ranks_counts_in_the_budget_of_each() -> None:
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        program.recorder.budget = program.context.budget
        program.register()
        program.hear()
        for _ in range(300):
            program.step(0.1 if program.batch.value == 48 else 0.1 * 40)

    job.run(body)
    for program in job.programs:
        assert program.context.budget.lost_ns == pytest.approx(3 * 3.9e9, rel=0.01)
        assert program.context.budget.exhausted


def test_no_trial_begins_on_all_ranks_while_one_has_spent_its_budget() -> None:
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        program.register()
        if program.rank:
            program.context.budget.lose(1e18)
        program.hear()
        for _ in range(100):
            program.step(0.1)
        program.now_ns = NOW_NS + 601 * 10**9
        for _ in range(100):
            program.step(0.1)

    job.run(body)
    assert {value for program in job.programs for value in program.values} == {48}
    assert [[one.state for one in program.final()] for program in job.programs] == [[OutcomeState.EXPIRED]] * 2
