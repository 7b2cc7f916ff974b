"""No trial begins and an open one waits while an alert fires, in quiet hours and during a checkpoint."""

from pathlib import Path

import pytest
from tests.unit.probe.test_probe_hints import KERNEL, Program

from kernelcast.probe.conditions.pauses import PauseChecks
from kernelcast.probe.ranks.alone import LONGEST_PAUSE_NS
from kernelcast.probe.recording.regions import region
from kernelcast.probe.tunables import Terms
from kernelcast.probe.tuned.calls import TunedCalls
from kernelcast.probe.tuned.terms import CallTerms
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.events import OutcomeState
from kernelcast.wire.tuning.orders import file_text
from kernelcast.wire.tuning.pauses import LATER, PAUSED_FILE, SPACES_FILE

SECOND_NS = NANOSECONDS


def pause(directory: Path, reason: str | None, *, program: str = "training", name: str = PAUSED_FILE) -> None:
    if reason is None:
        (directory / name).unlink()
    else:
        (directory / name).write_text(file_text({program: reason}))


def run(program: Program, steps: int) -> list[int]:
    """Make steps of a second each; a larger block is faster. Returns the values in force."""
    seen = []
    for _ in range(steps):
        program.now_ns += SECOND_NS
        seen.append(program.block.value)
        program.step(duration_ns=lambda block: 1000 if block == 48 else 700)
    return seen


def test_no_trial_begins_while_an_alert_fires_and_the_hint_waits(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    pause(tmp_path, "GpuTooHot fires on GPU-0")
    program.hear()
    assert set(run(program, 20)) == {48}
    assert program.states() == [OutcomeState.RECEIVED]
    pause(tmp_path, None)
    run(program, 3)
    assert program.states() == [OutcomeState.APPLIED]


@pytest.mark.parametrize("begin", range(1, 40, 3))
def test_an_open_trial_waits_with_the_kept_value_and_reaches_the_same_verdict(tmp_path: Path, begin: int) -> None:
    program = Program(directory=tmp_path)
    program.hear()
    run(program, begin)
    pause(tmp_path, "GpuTooHot fires on GPU-0")
    # One step may have begun, and the file is looked for twice a second.
    assert set(run(program, 30)[1:]) == {48}
    assert OutcomeState.ROLLED_BACK not in program.states()
    pause(tmp_path, None)
    assert 128 in run(program, 600)
    (kept,) = program.said()
    assert (kept.state, kept.decision) == (OutcomeState.KEPT, "kept")
    assert kept.measured_ratio == pytest.approx(0.7)
    assert kept.candidate_steps <= 181


def test_a_pause_of_another_program_changes_nothing(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    pause(tmp_path, "GpuTooHot", program="another")
    pause(tmp_path, "policy", name=SPACES_FILE)
    program.hear()
    assert 128 in run(program, 30)


def test_a_pause_that_lasts_ends_the_trial_which_may_be_tried_later(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    program.hear()
    run(program, 10)
    pause(tmp_path, "NodeDown fires")
    run(program, 2)
    program.now_ns += LONGEST_PAUSE_NS
    run(program, 1)
    ended = program.said()[-1]
    assert (ended.state, ended.decision, ended.value) == (OutcomeState.ROLLED_BACK, "inconclusive", "48")
    assert ended.reason == f"it was paused for 3600 s: NodeDown fires; {LATER}"
    assert program.block.rollbacks == 0, "the value is not to blame"


def test_a_stop_ends_a_paused_trial_at_once(tmp_path: Path) -> None:
    program = Program(directory=tmp_path)
    program.hear()
    run(program, 10)
    pause(tmp_path, "NodeDown fires")
    run(program, 2)
    program.orders.order = "somebody said so"
    run(program, 1)
    assert program.said()[-1].reason == "somebody said so"


def test_a_file_that_cannot_be_read_pauses(tmp_path: Path) -> None:
    (tmp_path / PAUSED_FILE).mkdir()
    program = Program(directory=tmp_path)
    program.hear()
    assert set(run(program, 10)) == {48}
    assert "cannot be read" in program.context.pauses.reason()


def test_no_value_is_compared_or_changed_during_a_checkpoint() -> None:
    """Steps that write a checkpoint take ten times as long; they do not count."""
    program = Program()
    program.hear()
    program.step(duration_ns=lambda _block: 1000)
    with region("checkpoint"):
        before = program.block.value
        program.step(10, duration_ns=lambda _block: 10_000)
        assert program.block.value == 48
        assert before == 48
    for number in range(1500):
        slow = number % 7 == 0
        if slow:
            with region("checkpoint"):
                program.recorder.observe(KERNEL, 50_000)
        program.step(duration_ns=lambda block: 1000 if block == 48 else 700)
    kept = program.said()[-1]
    assert kept.state is OutcomeState.KEPT
    assert kept.measured_ratio == pytest.approx(0.7, abs=0.01)


def test_an_epoch_tunable_is_tried_although_each_epoch_writes_a_checkpoint() -> None:
    program = Program(Terms(kernels=(KERNEL,), granularity="epoch"))
    program.hear()
    for _ in range(300):
        with region("checkpoint"):
            program.recorder.observe(KERNEL, 1000 if program.block.value == 48 else 700)
        program.step(epoch=True)
    assert program.said()[-1].state is OutcomeState.KEPT


class TwoConfigurations:
    """A space whose campaign wants its second configuration always."""

    start = 0

    def configuration(self, ordinal: int) -> int:
        return ordinal

    def text(self, ordinal: int) -> str:
        return str(ordinal)

    def find(self, text: str) -> int | None:
        return int(text)

    def campaign(self, name: str) -> "Eager":
        del name
        return Eager()


class Eager:
    kept = 0
    ordinal = 1
    launches = 10**9
    may_wait = True

    def next(self) -> "Eager":
        return self

    def measured(self, times: list[float]) -> None:
        raise AssertionError(times)

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)

    def refused(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.mark.parametrize("name", [PAUSED_FILE, SPACES_FILE])
def test_calls_of_a_space_run_the_kept_configuration_meanwhile(tmp_path: Path, name: str) -> None:
    now = [0.0]
    pauses = PauseChecks([str(tmp_path)], "training", clock=lambda: now[0])
    calls = TunedCalls(CallTerms("conv", share=1.0), TwoConfigurations(), None, pauses.spaces)
    run_once = calls.decorate(lambda configuration: configuration)
    assert run_once() == 1
    pause(tmp_path, "KernelcastGpuTooHot fires", name=name)
    now[0] += 1
    assert [run_once() for _ in range(5)] == [0] * 5
    with region("checkpoint"):
        pass
    pause(tmp_path, None, name=name)
    now[0] += 1
    with region("checkpoint"):
        assert run_once() == 0
    assert run_once() == 1
