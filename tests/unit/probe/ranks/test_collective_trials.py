"""Trials of collective tunables: one decision for all ranks."""

from random import Random

import pytest
from tests.support.probe.ranks import NOW_NS, Job, RankProgram, job_of, noisy, same

from kernelcast.probe.ranks.messages import Work
from kernelcast.probe.recording.regions import region
from kernelcast.probe.tunables import Terms, Tunable
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.events import OutcomeState, withdrawal


def run_trial(job: Job, *, seed: int, gain: float, noise: float, steps: int = 700) -> None:
    """Run all ranks with a hint, which each gets at another step."""

    def body(program: RankProgram) -> None:
        random = Random(f"{seed} {program.rank}")
        program.register()
        for step in range(steps):
            if step == 3 + 2 * program.rank:
                program.hear()
            program.step(noisy(program, random, {48: 0.1, 128: 0.1 * (1 - gain)}, noise))

    job.run(body)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_four_ranks_with_a_true_gain_of_one_and_a_half_percent_decide_alike(seed: int) -> None:
    """Review: ranks 0 and 3 kept the value, 1 and 2 rolled it back; they differed for good."""
    job, _ = job_of(4)
    run_trial(job, seed=seed, gain=0.015, noise=0.02, steps=1500)
    finals = [program.final() for program in job.programs]
    assert [len(final) for final in finals] == [1, 1, 1, 1]
    assert len({final[0].decision == "kept" for final in finals}) == 1
    assert len({program.batch.value for program in job.programs}) == 1


def test_all_ranks_change_their_value_at_the_same_step_throughout_a_trial() -> None:
    """Review: every hint for a collective tunable was refused; the predictor sends trials only."""
    job, _ = job_of(4)
    run_trial(job, seed=1, gain=0.2, noise=0.02)
    assert same([program.values for program in job.programs])
    kept = job.programs[0].final()[0]
    assert (kept.state, kept.decision, kept.value) == (OutcomeState.KEPT, "kept", "128")
    assert kept.measured_ratio == kept.step_time_ratio == pytest.approx(0.8, rel=0.01)
    figures = [(one.measured_ratio, one.pairs, one.reason) for program in job.programs for one in program.final()]
    assert len(set(figures)) == 1
    assert [one.state for one in job.programs[3].outcomes_of("h1")] == [
        OutcomeState.RECEIVED,
        OutcomeState.APPLIED,
        OutcomeState.KEPT,
    ]


def test_a_value_that_gains_nothing_is_rolled_back_on_all_ranks() -> None:
    job, _ = job_of(3)
    run_trial(job, seed=2, gain=0.0, noise=0.005)
    assert [program.final()[0].decision for program in job.programs] == ["rolled_back"] * 3
    assert [program.batch.value for program in job.programs] == [48] * 3


def test_a_value_forty_times_as_slow_runs_three_steps_on_each_rank() -> None:
    job, _ = job_of(2)
    run_trial(job, seed=3, gain=-39.0, noise=0.02, steps=400)
    assert [program.values.count(128) for program in job.programs] == [3, 3]
    assert [program.final()[0].decision for program in job.programs] == ["rolled_back"] * 2


def withdraw(program: RankProgram) -> None:
    program.receiver.receive(withdrawal("training|batch|", source="/test", time_ns=NOW_NS))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_hint_that_is_withdrawn_after_the_ranks_have_announced_it_never_runs(rank: int) -> None:
    """Review: it was rejected as withdrawn, and yet tried on all ranks and kept."""
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        program.register()
        program.hear()
        (council,) = program.receiver.councils.all
        is_withdrawn = False
        for _ in range(600):
            program.step(0.1 if program.batch.value == 48 else 0.08)
            if program.rank == rank and not is_withdrawn and council.reason:
                is_withdrawn = True
                withdraw(program)
        assert not council.open

    job.run(body)
    assert [set(program.values) for program in job.programs] == [{48}, {48}]
    (withdrawn,), (other,) = job.programs[rank].final(), job.programs[1 - rank].final()
    assert (withdrawn.state, withdrawn.reason) == (OutcomeState.REJECTED, "it was withdrawn")
    assert other.state in {OutcomeState.ROLLED_BACK, OutcomeState.REJECTED}
    assert other.decision in {"", "inconclusive"}


def test_a_hint_of_one_process_that_was_withdrawn_in_its_trial_stops_no_later_trial_of_the_ranks() -> None:
    """Its withdrawal stayed a reason to stop what the ranks began afterwards."""
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        program.register()
        program.tunables.add(Tunable("block", [48, 64], 48, Terms()))
        for step in range(900):
            if step == 10:
                program.hear(hint_id="local", tunable="block", value="64")
            elif step == 40:
                program.receiver.receive(withdrawal("training|block|", source="/test", time_ns=NOW_NS))
            elif step == 60:
                program.hear()
            program.step(0.1 if program.batch.value == 48 else 0.08)

    job.run(body)
    for program in job.programs:
        assert [one.reason for one in program.final("local")] == ["its hint was withdrawn"]
        assert [one.state for one in program.final()] == [OutcomeState.KEPT]


def test_a_hint_that_expires_between_its_announcement_and_its_trial_never_runs() -> None:
    """The ranks meet once an epoch, so that an epoch passes in between."""
    job, _ = job_of(2, granularity="epoch")

    def body(program: RankProgram) -> None:
        program.register()
        program.hear(expires_at_ns=NOW_NS + 5 * NANOSECONDS // 2)
        for _ in range(100):
            program.step(1.0 if program.batch.value == 48 else 0.8, epoch=True)

    job.run(body)
    assert [set(program.values) for program in job.programs] == [{48}, {48}]
    assert [program.final()[-1].state for program in job.programs] == [OutcomeState.EXPIRED] * 2


def test_a_hint_that_is_withdrawn_while_its_trial_begins_ends_it_at_the_next_meeting() -> None:
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        program.register()
        program.hear()
        began = program.receiver.trial_began

        def late(work: Work) -> None:
            withdraw(program)
            began(work)

        program.receiver.trial_began = late  # type: ignore[method-assign]
        for _ in range(600):
            program.step(0.1 if program.batch.value == 48 else 0.08)

    job.run(body)
    for program in job.programs:
        assert program.values.count(128) < 20
        assert program.batch.kept == "48"
        assert [one.state for one in program.final()] == [OutcomeState.REJECTED]


def test_a_child_that_a_rank_forks_in_a_trial_runs_the_kept_value() -> None:
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        program.register()
        program.hear()
        while program.batch.value == 48:
            program.step(0.1)

    job.run(body)
    for program in job.programs:
        program.receiver.forked()
        assert program.batch.value == 48


def test_steps_of_ranks_that_write_a_checkpoint_are_neither_compared_nor_charged() -> None:
    """Every rank writes one in turn with the candidate in force: it would look a hundred times as slow."""
    job, _ = job_of(2)

    def body(program: RankProgram) -> None:
        program.register()
        program.hear()
        for number in range(1500):
            seconds = 0.1 if program.batch.value == 48 else 0.08
            if program.batch.value == 128 and number % 3 == 0:
                with region("checkpoint"):
                    seconds += 10.0
            program.step(seconds)

    job.run(body)
    assert [program.final()[-1].decision for program in job.programs] == ["kept"] * 2
    lost = [program.recorder.budget.lost_ns for program in job.programs]
    assert max(lost) < 10e9, "less than one checkpoint: the kept value is checked again after an hour, at 20 ms a step"
