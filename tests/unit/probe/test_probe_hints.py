from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelcast.probe.conditions.pauses import PauseChecks
from kernelcast.probe.conditions.stop_file import StopFile
from kernelcast.probe.hints import HintContext, HintReceiver
from kernelcast.probe.outcomes import MAX_KEPT, OutcomeQueue
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import Terms, Tunable, TunableSet
from kernelcast.tuning.experiment import Rules
from kernelcast.tuning.journal import Journal, JournalProcess
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.events import Hint, HintMode, Outcome, OutcomeState, outcome_from, to_event, withdrawal
from kernelcast.wire.tuning.orders import LIFTED_BY

NOW_NS = 1_000 * NANOSECONDS
KERNEL = "stencil"


class Program:
    """A program with one tunable, a clock that a test advances, and kernels whose time depends on the value."""

    def __init__(self, terms: Terms | None = None, directory: Path | None = None) -> None:
        self.now_ns = NOW_NS
        self.environ: dict[str, str] = {}
        self.model = "NVIDIA A100"
        self.recorder = Recorder()
        self.tunables = TunableSet()
        self.outcomes = OutcomeQueue("training", "3", lambda: self.now_ns, lambda: None)
        context = HintContext(
            "training",
            "3",
            "v1",
            lambda: self.model,
            self.environ,
            lambda: self.now_ns,
            Rules(),
            seed=1,
            stop_file=StopFile([str(directory or "")], clock=lambda: self.now_ns / NANOSECONDS, program="training"),
            journal=Journal(directory, "training") if directory else None,
            pauses=PauseChecks([str(directory or "")], "training", clock=lambda: self.now_ns / NANOSECONDS),
        )
        self.context = context
        self.receiver = HintReceiver(self.tunables, self.recorder, self.outcomes, context)
        self.block = self.register("block_size", terms or Terms(kernels=(KERNEL,)))

    def register(self, name: str, terms: Terms) -> Tunable[int]:
        tunable = Tunable(name, [48, 64, 128], 48, terms)
        self.tunables.add(tunable)
        self.receiver.watch(tunable)
        return tunable

    def hear(self, **changes: Any) -> None:
        facts: dict[str, Any] = {
            "hint_id": "h1",
            "program": "training",
            "tunable": "block_size",
            "value": "128",
            "expires_at_ns": NOW_NS + 600 * NANOSECONDS,
        }
        self.receiver.receive(to_event(Hint(**{**facts, **changes}), source="/test", time_ns=NOW_NS))

    def step(self, times: int = 1, *, duration_ns: Callable[[int], int] | None = None, epoch: bool = False) -> None:
        for _ in range(times):
            if duration_ns:
                self.recorder.observe(KERNEL, duration_ns(self.block.value))
            self.receiver.at_boundary(epoch=epoch)

    def said(self) -> list[Outcome]:
        found = []
        while event := self.outcomes.first():
            found.append(outcome_from(event))
            self.outcomes.sent(event)
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
    for _ in range(1500):
        program.step(duration_ns=lambda block: 1000 if block == 48 else 700)
        seen.append(program.block.value)
    received, applied, kept = program.said()
    assert (received.state, applied.state, kept.state) == (
        OutcomeState.RECEIVED,
        OutcomeState.APPLIED,
        OutcomeState.KEPT,
    )
    assert kept.measured_ratio == kept.device_time_ratio == pytest.approx(0.7)
    assert (kept.decision, kept.value, kept.previous) == ("kept", "128", "48")
    assert kept.candidate_steps <= 250
    assert seen[-1] == 128
    assert program.block.claim("", "").value == "128"


def test_a_value_that_gains_nothing_is_rolled_back() -> None:
    program = Program()
    program.hear()
    program.step(4000, duration_ns=lambda _: 1000)
    rolled_back = program.said()[-1]
    assert (rolled_back.state, rolled_back.decision) == (OutcomeState.ROLLED_BACK, "rolled_back")
    assert rolled_back.measured_ratio == pytest.approx(1.0)
    assert program.block.value == 48


@pytest.mark.parametrize("times_as_slow", [2, 3, 40])
def test_a_value_twice_as_slow_runs_three_steps_at_most(times_as_slow: int) -> None:
    program = Program()
    program.hear()
    slow = 0
    for _ in range(60):
        slow += program.block.value == 128
        program.step(duration_ns=lambda block: 1000 if block == 48 else 1000 * times_as_slow)
    rolled_back = program.said()[-1]
    assert (rolled_back.state, rolled_back.value) == (OutcomeState.ROLLED_BACK, "48")
    assert slow == rolled_back.candidate_steps <= 3


def test_a_trial_whose_times_never_come_ends_without_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelcast.probe.ranks.pooled.PATIENCE_NS", 0)
    program = Program()
    program.hear()
    program.step(200)
    ended = program.said()[-1]
    assert (ended.state, ended.decision, ended.measured_ratio) == (OutcomeState.ROLLED_BACK, "inconclusive", None)
    assert program.block.value == 48


def run_late(program: Program, steps_late: int, duration_ns: Callable[[int], int]) -> Outcome:
    """Report each launch some steps after it, with the number of the configuration at its launch."""
    program.hear()
    launches: list[tuple[int, int]] = []
    for _ in range(800):
        launches.append((duration_ns(program.block.value), program.recorder.configuration))
        if len(launches) > steps_late:
            time_ns, configuration = launches.pop(0)
            program.recorder.observe(KERNEL, time_ns, configuration=configuration)
        program.receiver.at_boundary(epoch=False)
    return program.said()[-1]


@pytest.mark.parametrize("steps_late", [0, 1, 3, 20, 100])
def test_late_times_are_booked_to_the_configuration_of_their_launch(steps_late: int) -> None:
    """Review: records 2 s behind turned the sign; 3 % worse was kept in 81 to 95 %, 20 % better rolled back in all."""
    worse = run_late(Program(), steps_late, lambda block: 1000 if block == 48 else 1030)
    assert worse.decision == "rolled_back"
    assert worse.measured_ratio == pytest.approx(1.03)
    better = run_late(Program(), steps_late, lambda block: 1000 if block == 48 else 800)
    assert better.decision == "kept"
    assert better.measured_ratio == pytest.approx(0.8)


def test_times_of_some_launches_only_are_enough() -> None:
    program = Program()
    program.hear()
    for step in range(900):
        if step % 3:
            program.recorder.observe(KERNEL, 1000 if program.block.value == 48 else 800)
        else:
            program.recorder.count(KERNEL, 1)
        program.receiver.at_boundary(epoch=False)
    kept = program.said()[-1]
    assert kept.decision == "kept"
    assert kept.measured_ratio == pytest.approx(0.8)


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


def test_time_per_item_decides_where_a_value_changes_the_work() -> None:
    """Review: 1.6 times the kernel time for twice the samples was rolled back."""
    program = Program()
    program.hear()
    for _ in range(1500):
        program.recorder.observe(KERNEL, 1000 if program.block.value == 48 else 1600)
        program.receiver.at_boundary(epoch=False, items=32 if program.block.value == 48 else 64)
    kept = program.said()[-1]
    assert kept.decision == "kept"
    assert kept.measured_ratio == pytest.approx(0.8)


def test_step_time_decides_where_a_value_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Review: four loader workers made steps five times shorter and were rolled back at ratio 1.005."""
    now_ns = [0]
    monkeypatch.setattr("kernelcast.probe.trial.perf_counter_ns", lambda: now_ns[0])
    program = Program(Terms())
    program.hear()
    for _ in range(1500):
        program.recorder.observe(KERNEL, 1_000_000)
        now_ns[0] += 100_000_000 if program.block.value == 48 else 20_000_000
        program.receiver.at_boundary(epoch=False)
    kept = program.said()[-1]
    assert kept.decision == "kept"
    assert kept.step_time_ratio == pytest.approx(0.2)
    assert kept.device_time_ratio == pytest.approx(1.0)


def test_a_gain_in_device_time_that_costs_step_time_is_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [0]
    monkeypatch.setattr("kernelcast.probe.trial.perf_counter_ns", lambda: now_ns[0])
    program = Program()
    program.hear()
    for _ in range(1500):
        program.recorder.observe(KERNEL, 1000 if program.block.value == 48 else 800)
        now_ns[0] += 100_000 if program.block.value == 48 else 110_000
        program.receiver.at_boundary(epoch=False)
    ended = program.said()[-1]
    assert ended.decision == "rolled_back"
    assert ended.device_time_ratio == pytest.approx(0.8)
    assert ended.step_time_ratio == pytest.approx(1.1)


def test_an_epoch_tunable_is_compared_by_whole_epochs() -> None:
    program = Program(Terms(granularity="epoch", kernels=(KERNEL,)))
    program.hear()
    for step in range(1200):
        program.recorder.observe(KERNEL, 1000 if program.block.value == 48 else 800)
        program.receiver.at_boundary(epoch=step % 4 == 3)
    kept = program.said()[-1]
    assert kept.decision == "kept"
    assert kept.measured_ratio == pytest.approx(0.8)


def test_after_three_rollbacks_a_tunable_takes_no_more_hints() -> None:
    program = Program()
    for number in range(3):
        program.hear(hint_id=f"h{number}")
        program.step(30, duration_ns=lambda block: 1000 if block == 48 else 3000)
    program.hear(hint_id="h9")
    assert program.said()[-1].state is OutcomeState.REJECTED
    program.now_ns += 3601 * NANOSECONDS
    program.hear(hint_id="h10", expires_at_ns=program.now_ns + NANOSECONDS)
    program.step()
    assert program.said()[-1].state is OutcomeState.APPLIED


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


def test_one_trial_is_open_at_a_time_and_other_hints_wait_for_it() -> None:
    """Review: two tunables of one kernel; the second was rejected as busy, which silenced it for 24 h."""
    program = Program()
    unroll = program.register("unroll", Terms(kernels=(KERNEL, "other")))
    program.hear()
    program.hear(hint_id="h2", tunable="unroll")
    program.step(6000, duration_ns=lambda block: 1000 if block == 48 else 800)
    states = [(said.hint_id, said.state.value) for said in program.said()]
    assert states == [
        ("h1", "received"),
        ("h2", "received"),
        ("h1", "applied"),
        ("h1", "kept"),
        ("h2", "applied"),
        ("h2", "rolled_back"),
    ]
    assert (program.block.value, unroll.value) == (128, 48)


def test_a_hint_that_waits_for_a_trial_expires() -> None:
    program = Program()
    program.register("unroll", Terms())
    program.hear()
    program.step()
    program.hear(hint_id="h2", tunable="unroll")
    program.now_ns += 601 * NANOSECONDS
    program.step()
    assert program.said()[-1].state is OutcomeState.EXPIRED


def test_what_a_hint_requires_is_compared_with_the_kept_value_during_a_trial() -> None:
    """Review: the same hint was refused for different reasons, by the phase of the trial."""
    program = Program()
    program.hear()
    refused = set()
    for number in range(20):
        program.step(duration_ns=lambda _: 1000)
        program.hear(hint_id=f"n{number}", value="64", requires="128", mode=HintMode.DRY_RUN)
        refused.add(program.said()[-1].reason)
    assert refused == {"it requires block_size to be '128'; it is '48'"}


def test_a_withdrawn_hint_ends_its_trial_with_the_old_value() -> None:
    """Review: a tombstone did not end a trial."""
    program = Program()
    program.hear()
    while program.block.value == 48:
        program.step(duration_ns=lambda _: 1000)
    program.receiver.receive(withdrawal("training|block_size|", source="/test", time_ns=NOW_NS))
    program.step()
    ended = program.said()[-1]
    assert (ended.state, ended.decision, ended.reason) == (
        OutcomeState.ROLLED_BACK,
        "inconclusive",
        "its hint was withdrawn",
    )
    assert program.block.value == 48


@pytest.mark.slow
def test_stop_ends_a_trial_at_its_next_boundary_and_begins_nothing() -> None:
    """Review: no one outside of the process could change the switch."""
    for steps in range(100):
        program = Program()
        program.hear()
        program.step(1 + steps, duration_ns=lambda block: 1000 if block == 48 else 900)
        program.receiver.stop("hints.stop is there")
        program.step()
        assert program.block.value in (48, int(program.said()[-1].value))
        assert program.block.shown == program.block.kept
        program.hear(hint_id="h2", value="64")
        program.step()
        assert program.said()[-1].reason == "hints.stop is there"
        program.receiver.stop("")
        program.hear(hint_id="h3", value="64", mode=HintMode.APPLY)
        program.step()
        assert program.block.value == 64


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


class GoneGroup:
    """A group in which a rank is gone."""

    def all_gather(self, text: str) -> list[str]:
        del text
        raise RuntimeError("a rank is gone")


def test_a_group_that_fails_does_not_reach_the_program() -> None:
    program = Program(Terms(scope="collective", group=GoneGroup()))
    program.hear(mode=HintMode.APPLY)
    program.step(3)
    assert program.states() == [OutcomeState.RECEIVED]
    program.now_ns += 601 * NANOSECONDS
    program.step(3)
    assert program.block.value == 48


def test_an_invalid_hint_is_counted() -> None:
    program = Program()
    program.receiver.receive({"specversion": "1.0"})
    program.receiver.receive({})
    assert program.receiver.malformed == 2
    assert program.said() == []


def test_unread_outcomes_are_dropped_oldest_first_and_counted() -> None:
    program = Program()
    for number in range(MAX_KEPT):
        program.hear(hint_id=f"h{number}", value="100")
    assert program.outcomes.dropped == MAX_KEPT
    assert len(program.said()) == MAX_KEPT
    assert len(program.outcomes.history) == 64


def test_a_file_on_the_node_ends_a_trial_and_begins_nothing(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    program.hear()
    program.step(5, duration_ns=lambda _: 1000)
    (tmp_path / "hints.stop").touch()
    program.now_ns += NANOSECONDS
    program.step()
    ended = program.said()[-1]
    assert (ended.state, ended.decision, program.block.value) == (OutcomeState.ROLLED_BACK, "inconclusive", 48)
    assert "hints.stop exists" in ended.reason
    program.hear(hint_id="h2", value="64", mode=HintMode.APPLY)
    program.step()
    assert program.block.value == 48
    (tmp_path / "hints.stop").unlink()
    program.now_ns += NANOSECONDS
    program.hear(hint_id="h3", value="64", mode=HintMode.APPLY)
    program.step()
    assert program.block.value == 64


def test_a_value_is_written_down_before_its_trial_and_its_verdict_after_it(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    program.hear()
    program.step()
    assert program.block.value == 48
    assert '"begin"' in next(tmp_path.glob("training-*.jsonl")).read_text()
    program.step(4000, duration_ns=lambda block: 1000 if block == 48 else 800)
    assert program.block.value == 128
    assert Journal(tmp_path, "training").kept("block_size", "v1") == "128"


def test_a_value_that_ended_a_process_is_refused_at_every_later_start(tmp_path: Path) -> None:
    """Review: the exporter handed the hint that had ended the program to the restarted program."""
    dead = JournalProcess("elsewhere", 1, "1")
    Journal(tmp_path, "training", dead, running=lambda _: False).begin("block_size", "128", "v1")
    for restart in range(50):
        journal = Journal(tmp_path, "training", running=lambda _: False)
        program = Program(directory=tmp_path)
        context = replace(program.context, journal=journal)
        program.receiver = HintReceiver(program.tunables, program.recorder, program.outcomes, context)
        program.hear(hint_id=f"h{restart}")
        program.step(3)
        refused = program.said()[-1]
        assert (refused.state, program.block.value) == (OutcomeState.REJECTED, 48)
        assert "the process ended when it was tried before" in refused.reason


def test_a_program_that_ends_in_a_trial_does_not_blame_the_value(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    program.hear()
    while program.block.value == 48:
        program.step(duration_ns=lambda _: 1000)
    program.receiver.close()
    assert program.block.value == 48
    assert program.said()[-1].reason == "the program ended"
    assert not Journal(tmp_path, "training", running=lambda _: False).banned("block_size", "128", "v1")


def test_an_order_for_the_program_in_the_file_of_the_exporter_does_the_same(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    program.hear()
    program.step(5, duration_ns=lambda _: 1000)
    (tmp_path / "hints.stopped").write_text("another\tmaintenance\n")
    program.now_ns += NANOSECONDS
    program.step()
    assert program.said()[-1].state is OutcomeState.APPLIED
    (tmp_path / "hints.stopped").write_text("training\tstopped by ana: maintenance\n")
    program.now_ns += NANOSECONDS
    program.step()
    ended = program.said()[-1]
    assert (ended.decision, program.block.value) == ("inconclusive", 48)
    assert ended.reason.startswith(f"stopped by ana: maintenance ({tmp_path}/hints.stopped)")
    program.hear(hint_id="h2", value="64", mode=HintMode.APPLY)
    program.step()
    assert program.block.value == 48
    (tmp_path / "hints.stopped").unlink()
    program.hear(hint_id="h3", value="64", mode=HintMode.APPLY)
    program.step()
    assert program.block.value == 64


def test_a_file_of_orders_that_cannot_be_read_stops_everything(tmp_path: Path) -> None:
    (tmp_path / "hints.stopped").mkdir()
    assert "cannot be read" in StopFile([str(tmp_path)], program="training").reason()


def test_a_trial_that_an_order_ended_gives_the_order_as_its_reason_and_is_no_roll_back(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    program.hear()
    program.step(5, duration_ns=lambda _: 1000)
    (tmp_path / "hints.stopped").write_text("*\tstopped by ana: maintenance\n")
    program.receiver.receive(withdrawal("training|block_size|", source="/test", time_ns=NOW_NS))
    program.step()
    ended = program.said()[-1]
    assert (ended.state, ended.decision) == (OutcomeState.ROLLED_BACK, "inconclusive")
    assert ended.reason.startswith("stopped by ana: maintenance")
    assert ended.reason.endswith(LIFTED_BY)
    assert program.block.rollbacks == 0


def test_a_child_that_is_forked_in_a_trial_runs_the_kept_value() -> None:
    program = Program()
    program.hear()
    while program.block.value == 48:
        program.step()
    program.receiver._lock.acquire()  # as a thread of the parent may at the fork
    program.receiver.forked()
    assert program.block.value == 48
    program.hear(hint_id="h2", value="64")
