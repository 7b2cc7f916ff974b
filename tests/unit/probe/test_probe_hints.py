from collections.abc import Callable
from typing import Any

import pytest

from kernelcast.probe.hints import HintReceiver, RejectionReason
from kernelcast.probe.outcomes import MAX_WAITING, OutcomeQueue
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import Agreement, Terms, Tunable, TunableSet
from kernelcast.wire.events import NANOSECONDS, Hint, HintMode, Outcome, OutcomeState, outcome_from, to_event

NOW_NS = 1_000 * NANOSECONDS
KERNEL = "stencil"


class Program:
    """A program with one tunable, a clock that a test advances, and kernels whose time depends on the value."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.now_ns = NOW_NS
        self.environ: dict[str, str] = {}
        self.model = "NVIDIA A100"
        self.recorder = Recorder()
        self.tunables = TunableSet()
        self.outcomes = OutcomeQueue("training", "3", lambda: self.now_ns, lambda: None)
        ground = RejectionReason("training", "3", "v1", lambda: self.model, self.environ, lambda: self.now_ns)
        self.desk = HintReceiver(self.tunables, self.recorder, self.outcomes, ground)
        self.block = self.register("block_size", terms or Terms(kernels=(KERNEL,)))

    def register(self, name: str, terms: Terms) -> Tunable[int]:
        tunable = Tunable(name, [48, 64, 128], 48, terms)
        self.tunables.add(tunable)
        self.desk.watch(tunable)
        return tunable

    def hear(self, **changes: Any) -> None:
        facts: dict[str, Any] = {
            "hint_id": "h1",
            "program": "training",
            "tunable": "block_size",
            "value": "128",
            "expires_at_ns": NOW_NS + 600 * NANOSECONDS,
        }
        self.desk.receive(to_event(Hint(**{**facts, **changes}), source="/test", time_ns=NOW_NS))

    def step(self, times: int = 1, *, duration_ns: Callable[[int], int] | None = None, epoch: bool = False) -> None:
        for _ in range(times):
            if duration_ns:
                self.recorder.observe(KERNEL, duration_ns(self.block.value))
            self.desk.at_boundary(epoch=epoch)

    def said(self) -> list[Outcome]:
        found = []
        while event := self.outcomes.first():
            found.append(outcome_from(event))
            self.outcomes.discard(event)
        return found

    def states(self) -> list[OutcomeState]:
        return [outcome.state for outcome in self.said()]


def test_an_applied_hint_waits_for_the_step_boundary() -> None:
    program = Program()
    program.hear(mode=HintMode.APPLY, requires="48")
    assert program.block.value == 48
    program.step()
    assert program.block.value == 128
    applied = program.said()[-1]
    assert (applied.state, applied.value, applied.previous) == (OutcomeState.APPLIED, "128", "48")


def test_a_better_value_is_tried_in_turn_with_the_old_one_and_kept() -> None:
    program = Program()
    program.hear()
    seen = []
    for _ in range(200):
        program.step(duration_ns=lambda block: 1000 if block == 48 else 700)
        seen.append(program.block.value)
    received, applied, kept = program.said()
    assert (received.state, applied.state, kept.state) == (
        OutcomeState.RECEIVED,
        OutcomeState.APPLIED,
        OutcomeState.KEPT,
    )
    assert kept.measured_ratio == pytest.approx(0.7)
    assert kept.pairs == 15
    assert seen[:12] == [48, 48, 48, 128, 128, 128, 48, 48, 48, 128, 128, 128]
    assert seen[-1] == 128
    assert program.block.claim("", "").value == "128"


def test_a_value_that_gains_nothing_is_rolled_back() -> None:
    program = Program()
    program.hear()
    program.step(200, duration_ns=lambda _: 1000)
    rolled_back = program.said()[-1]
    assert rolled_back.state is OutcomeState.ROLLED_BACK
    assert rolled_back.measured_ratio == pytest.approx(1.0)
    assert program.block.value == 48


def test_a_much_slower_value_is_given_up_after_three_pairs() -> None:
    program = Program()
    program.hear()
    program.step(19, duration_ns=lambda block: 1000 if block == 48 else 3000)
    rolled_back = program.said()[-1]
    assert (rolled_back.state, rolled_back.pairs, rolled_back.value) == (OutcomeState.ROLLED_BACK, 3, "48")


def test_a_trial_that_measures_nothing_ends() -> None:
    program = Program()
    program.hear()
    program.step(200)
    assert program.said()[-1].state is OutcomeState.ROLLED_BACK
    assert program.block.value == 48


def test_a_trial_judges_all_launches_by_those_that_were_timed() -> None:
    """The new value needs twice the launches, each as long as before: that is no gain."""
    program = Program()
    program.hear()
    for _ in range(60):
        program.recorder.observe(KERNEL, 1000)
        program.recorder.count(KERNEL, 4 if program.block.value == 48 else 9)
        program.step()
    assert program.said()[-1].measured_ratio == pytest.approx(2.0)
    assert program.block.value == 48


def test_after_three_rollbacks_a_tunable_takes_no_more_hints() -> None:
    program = Program()
    for number in range(3):
        program.hear(hint_id=f"h{number}")
        program.step(30, duration_ns=lambda block: 1000 if block == 48 else 3000)
    program.hear(hint_id="h9")
    assert program.said()[-1].state is OutcomeState.REJECTED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"value": "100"}, "not among the values"),
        ({"requires": "64"}, "requires block_size to be '64'"),
        ({"value": "48"}, "already"),
        ({"tunable": "tile"}, "no tunable 'tile'"),
        ({"program": "other"}, "it is for 'other'"),
        ({"rank": "4"}, "rank '4'"),
        ({"device_model": "NVIDIA H100"}, "it is for 'NVIDIA H100'"),
        ({"code_version": "v2"}, "it is for code version 'v2'"),
    ],
)
def test_a_hint_that_does_not_fit_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    program = Program()
    program.hear(**changes)
    program.step()
    received, refused = program.said()
    assert (received.state, refused.state) == (OutcomeState.RECEIVED, OutcomeState.REJECTED)
    assert reason in refused.reason
    assert program.block.value == 48


def test_a_hint_without_demands_fits_and_one_for_this_very_place_does_too() -> None:
    program = Program()
    program.hear(device_model="NVIDIA A100", code_version="v1", rank="3", requires="48", mode=HintMode.APPLY)
    program.step()
    assert program.block.value == 128


def test_a_model_unknown_to_the_program_is_left_to_the_exporter() -> None:
    program = Program()
    program.model = ""
    program.hear(device_model="NVIDIA A100", mode=HintMode.APPLY)
    program.step()
    assert program.block.value == 128


def test_an_expired_hint_is_refused_when_it_comes_and_when_its_step_comes() -> None:
    program = Program()
    program.hear(expires_at_ns=NOW_NS)
    assert program.states() == [OutcomeState.RECEIVED, OutcomeState.EXPIRED]
    program.hear(hint_id="h2")
    program.now_ns += 601 * NANOSECONDS
    program.step()
    assert program.states() == [OutcomeState.RECEIVED, OutcomeState.EXPIRED]
    assert program.block.value == 48


def test_a_value_that_changed_before_the_step_is_not_overwritten() -> None:
    program = Program()
    program.hear(requires="48", mode=HintMode.APPLY)
    program.block.put("64")
    program.step()
    assert program.states()[-1] is OutcomeState.REJECTED
    assert program.block.value == 64


@pytest.mark.parametrize("word", ["off", "OFF", "0", "false", "no"])
def test_the_kill_switch_refuses_everything(word: str) -> None:
    program = Program()
    program.environ["KERNELCAST_HINTS"] = word
    program.hear(mode=HintMode.APPLY)
    program.step()
    assert program.states()[-1] is OutcomeState.REJECTED
    assert program.block.value == 48


def test_a_dry_run_changes_nothing_and_prints_the_planned_changes() -> None:
    program = Program()
    program.hear(mode=HintMode.DRY_RUN)
    program.step()
    said = program.said()[-1]
    assert (said.state, said.value, said.reason) == (OutcomeState.DRY_RUN, "48", "would change 48 to 128")
    assert program.block.value == 48


def test_a_hint_that_comes_twice_is_carried_out_once() -> None:
    program = Program()
    program.hear(mode=HintMode.APPLY)
    program.hear(mode=HintMode.APPLY)
    program.step()
    program.hear(mode=HintMode.APPLY)
    assert program.states() == [OutcomeState.RECEIVED, OutcomeState.APPLIED]


def test_a_newer_hint_takes_the_place_of_one_that_waits() -> None:
    program = Program()
    program.hear(mode=HintMode.APPLY)
    program.hear(hint_id="h2", value="64", mode=HintMode.APPLY)
    program.step()
    superseded = program.said()[2]
    assert (superseded.hint_id, superseded.state) == ("h1", OutcomeState.SUPERSEDED)
    assert program.block.value == 64


def test_one_kernel_takes_part_in_one_trial_at_a_time() -> None:
    program = Program()
    program.register("unroll", Terms(kernels=(KERNEL, "other")))
    program.register("tile", Terms(kernels=("other",)))
    program.hear()
    program.hear(hint_id="h2", tunable="unroll")
    program.step()
    program.hear(hint_id="h3")
    program.hear(hint_id="h4", tunable="tile")
    program.step()
    rejected = [said.hint_id for said in program.said() if said.state is OutcomeState.REJECTED]
    assert rejected == ["h2", "h3"]


def test_an_epoch_tunable_waits_for_the_end_of_an_epoch() -> None:
    program = Program(Terms(granularity="epoch"))
    program.hear(mode=HintMode.APPLY)
    program.step()
    assert program.block.value == 48
    program.step(epoch=True)
    assert program.block.value == 128


def test_a_restart_tunable_says_how_to_start_the_program() -> None:
    program = Program(Terms(granularity="restart"))
    program.hear(mode=HintMode.APPLY)
    program.step(epoch=True)
    assert "start the program with 128" in program.said()[-1].reason
    assert program.block.value == 48


def test_a_collective_tunable_without_agreement_takes_no_hint() -> None:
    program = Program(Terms(scope="collective"))
    program.hear(mode=HintMode.APPLY)
    program.step()
    assert "no way for its ranks to agree" in program.said()[-1].reason
    assert program.block.value == 48


def test_all_ranks_change_at_the_step_at_which_they_agree() -> None:
    votes: list[str | None] = []
    programs: list[Program] = []

    def agree_on(rank: int) -> Agreement:
        return lambda proposal: _broadcast_of_first(votes, rank, proposal)

    programs = [Program(Terms(scope="collective", agree=agree_on(rank))) for rank in range(3)]
    programs[0].hear(mode=HintMode.APPLY)
    for program in programs:
        program.step()
    assert [program.block.value for program in programs] == [128, 128, 128]
    assert programs[0].states() == [OutcomeState.RECEIVED, OutcomeState.APPLIED]


def _broadcast_of_first(votes: list[str | None], rank: int, proposal: str | None) -> str | None:
    if rank == 0:
        votes.append(proposal)
    return votes[-1]


def test_a_collective_tunable_is_never_tried_on_some_ranks_only() -> None:
    program = Program(Terms(scope="collective", agree=lambda proposal: proposal))
    program.hear(mode=HintMode.CANARY)
    program.step()
    assert program.states()[-1] is OutcomeState.REJECTED


def test_an_agreement_that_fails_does_not_reach_the_program() -> None:
    def fail(_: str | None) -> str | None:
        raise RuntimeError("a rank is gone")

    program = Program(Terms(scope="collective", agree=fail))
    program.hear(mode=HintMode.APPLY)
    program.step(3)
    assert program.states() == [OutcomeState.RECEIVED, OutcomeState.REJECTED]
    assert program.block.value == 48


def test_an_agreement_on_a_value_that_is_not_allowed_changes_nothing() -> None:
    program = Program(Terms(scope="collective", agree=lambda _: "77"))
    program.step()
    assert program.block.value == 48


def test_an_invalid_hint_is_counted() -> None:
    program = Program()
    program.desk.receive({"specversion": "1.0"})
    program.desk.receive({})
    assert program.desk.malformed == 2
    assert program.said() == []


def test_unread_outcomes_are_dropped_oldest_first_and_counted() -> None:
    program = Program()
    for number in range(MAX_WAITING):
        program.hear(hint_id=f"h{number}", value="100")
    assert program.outcomes.dropped == MAX_WAITING
    assert len(program.said()) == MAX_WAITING
    assert len(program.outcomes.history) == 64
