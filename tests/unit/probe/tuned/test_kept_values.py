"""A kept value of a tunable is checked again: after an hour, after a restart with another driver, at another pace."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.process.machine import device_models, driver_version
from kernelcast.probe.tunables import Terms, Tunable
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal, JournalMachine, JournalProcess
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.events import SEARCH_PREFIX, Hint, HintMode, OutcomeState, to_event
from kernelcast.wire.frames import DeviceClaim

HOUR = 3600.0


class Training:
    """A program with one tunable, whose value decides the time of a step."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.seconds = 1_000_000.0
        self.driver = "550.54"
        self.random = Random(1)
        self.seen: list[int] = []
        for place in ("trial", "probe"):
            monkeypatch.setattr(f"kernelcast.probe.{place}.perf_counter_ns", self.now_ns)
        monkeypatch.setattr("kernelcast.probe.process.machine.driver_version", lambda: self.driver)
        self.start()

    def now_ns(self) -> int:
        return round(self.seconds * NANOSECONDS)

    def start(
        self, model: str = "NVIDIA A100", environ: dict[str, str] | None = None, granularity: str = "step"
    ) -> None:
        folder = str(self.directory)
        settings = ProbeSettings("train", socket_path=f"{folder}/none", state_directory=folder, trial_share=1.0)
        settings = replace(settings, devices=(DeviceClaim(uuid="a", model_name=model),))
        self.probe = Probe(settings, environ or {}, self.now_ns)
        budget = self.probe.recorder.budget
        budget._clock, budget._began_ns = self.now_ns, 0
        self.block: Tunable[int] = self.probe.tunable("block", [48, 64, 128], 48, Terms(granularity=granularity))
        self.seen.clear()

    def remember(self, value: str = "128", *, age_seconds: float, driver: str = "550.54", device: str = "") -> None:
        """Write the values that an earlier run kept."""
        process = JournalProcess("node", 1, "start of 1")
        written, machine = self.seconds - age_seconds, JournalMachine(lambda: device, driver)
        journal = Journal(self.directory, "train", process, lambda: written, machine=machine)
        journal.end("block", value, Decision.KEPT)

    def run(self, steps: int, *, gain: float = 0.3, step_seconds: float = 0.1, epoch: bool = False) -> None:
        for _ in range(steps):
            self.seen.append(self.block.value)
            faster = gain if self.block.value == 128 else 0.0
            self.seconds += step_seconds * (1 - faster) * self.random.uniform(0.99, 1.01)
            self.probe.step(epoch=epoch)

    def hear(self, value: str = "128", mode: HintMode = HintMode.CANARY) -> None:
        expires_ns = self.now_ns() + 600 * NANOSECONDS
        hint = Hint(f"h{self.seconds}", "train", "block", value, expires_ns, mode=mode)
        self.probe._receiver.receive(to_event(hint, source="/test", time_ns=1))

    def stop(self) -> None:
        """Write the node's stop file; half a second later it has been read."""
        (self.directory / "hints.stop").touch()
        self.probe._receiver._context.orders._read_at = -1.0

    def checks(self) -> list[tuple[str, str]]:
        own = (one for one in self.probe.outcomes if one.hint_id.startswith(SEARCH_PREFIX))
        return [(one.state.value, one.decision) for one in own]


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    made = Training(tmp_path, monkeypatch)
    yield made
    made.probe.abandon()


def restarted(training: Training, **changes: Any) -> None:
    training.probe.abandon()
    training.start(**changes)


def test_a_restored_value_that_is_an_hour_old_is_checked_and_stays(training: Training) -> None:
    """Review: restored values of tunables were believed for ever."""
    training.remember(age_seconds=HOUR + 1)
    restarted(training)
    training.run(400)
    assert training.seen[0] == training.seen[-1] == 128
    assert 1 <= training.seen.count(48) <= 20, "the start is much slower: few steps show it"
    assert training.checks() == [("applied", ""), ("kept", "kept")]
    kept = training.probe.outcomes[-1]
    assert (kept.tunable, kept.candidate, kept.value, kept.previous) == ("block", "128", "128", "128")
    assert kept.reason.startswith("checked again: ")
    assert kept.measured_ratio == pytest.approx(0.7, rel=0.05)
    restarted(training)
    training.run(400)
    assert set(training.seen) == {128}, "it has just been checked"


def test_a_restored_value_that_has_become_worse_is_taken_back_for_good(training: Training) -> None:
    training.remember(age_seconds=HOUR + 1)
    restarted(training)
    training.run(900, gain=-0.3)
    assert (training.seen[0], training.seen[-1], training.block.kept) == (128, 48, "48")
    assert training.checks() == [("applied", ""), ("rolled_back", "rolled_back")]
    assert training.probe.outcomes[-1].measured_ratio == pytest.approx(1.3, rel=0.05)
    assert training.block.rollbacks == 0, "no hint failed"
    restarted(training)
    assert training.block.value == 48


def test_a_value_kept_a_moment_ago_is_checked_when_it_is_an_hour_old(training: Training) -> None:
    training.remember(age_seconds=60)
    restarted(training)
    training.run(300)
    assert set(training.seen) == {128}
    training.seconds += HOUR
    training.run(400)
    assert training.checks() == [("applied", ""), ("kept", "kept")]


def test_a_value_that_was_kept_by_a_clock_ahead_is_checked_after_an_hour(training: Training) -> None:
    training.remember(age_seconds=-1000 * HOUR)
    restarted(training)
    training.run(100)
    assert training.checks() == []
    training.seconds += HOUR
    training.run(400)
    assert training.checks() == [("applied", ""), ("kept", "kept")]


@pytest.mark.parametrize("earlier", ["535.1", ""])
def test_another_driver_than_the_kept_values_is_a_reason_to_check(training: Training, earlier: str) -> None:
    """Journals of earlier versions have no driver."""
    training.remember(age_seconds=60, driver=earlier)
    restarted(training)
    training.run(400)
    assert training.checks() == [("applied", ""), ("kept", "kept")]
    assert "driver" in training.probe.outcomes[-2].reason


def test_another_device_model_does_not_begin_with_the_value(training: Training) -> None:
    training.remember(age_seconds=60, device="NVIDIA A100")
    restarted(training, model="NVIDIA H100")
    assert training.block.value == 48
    restarted(training)
    assert training.block.value == 128


def test_a_hints_kept_value_is_checked_after_an_hour_against_the_one_before(training: Training) -> None:
    training.hear()
    training.run(900)
    assert training.block.kept == "128"
    assert training.probe.outcomes[-1].state is OutcomeState.KEPT
    training.run(400)
    assert training.checks() == []
    training.seconds += HOUR
    training.run(900, gain=-0.3)
    assert training.checks() == [("applied", ""), ("rolled_back", "rolled_back")]
    assert training.block.kept == "48"


def test_a_lasting_change_of_pace_is_a_reason_to_check(training: Training) -> None:
    """Another clock of the GPU, or another shape of the work."""
    training.hear()
    training.run(900)
    training.run(3000)
    assert training.checks() == [], "the pace is as it was"
    training.run(3000, step_seconds=0.14)
    assert training.checks() == [("applied", ""), ("kept", "kept")]
    assert "pace" in training.probe.outcomes[-2].reason
    training.run(3000, step_seconds=0.1)
    assert len(training.checks()) == 2, "once an hour at most"


def test_a_hint_goes_first_and_a_stop_ends_the_check_with_the_kept_value(training: Training) -> None:
    training.remember(age_seconds=2 * HOUR)
    restarted(training)
    training.run(30, gain=0.0)
    assert training.checks() == []
    training.run(60, gain=0.0)
    assert training.checks() == [("applied", "")]
    training.hear("64")
    training.run(3, gain=0.0)
    assert training.probe.outcomes[-1].state is OutcomeState.RECEIVED, "it waits for the end of the check"
    training.stop()
    training.run(2, gain=0.0)
    assert training.checks() == [("applied", ""), ("rolled_back", "inconclusive")]
    training.run(300, gain=0.0)
    assert set(training.seen[-300:]) == {128}
    assert Journal(training.directory, "train", machine=JournalMachine(lambda: "NVIDIA A100")).kept("block") == "128"


def test_nothing_is_checked_where_hints_are_switched_off_or_the_budget_is_spent(training: Training) -> None:
    training.remember(age_seconds=2 * HOUR)
    restarted(training)
    training.probe.recorder.budget.lose(1e18)
    training.run(300)
    assert set(training.seen) == {128}
    restarted(training, environ={"KERNELCAST_HINTS": "off"})
    training.run(300)
    assert set(training.seen) == {48}


def test_a_value_that_another_hint_has_replaced_is_not_checked(training: Training) -> None:
    training.remember(age_seconds=60)
    restarted(training)
    training.block.put("64")
    training.seconds += HOUR
    training.run(300)
    assert set(training.seen) == {64}


def test_a_hint_that_replaces_a_value_whose_check_waits_for_the_end_of_the_epoch_holds(training: Training) -> None:
    """Review: the check of the old value began at the same boundary, and put the old value in force for good."""
    training.remember(value="64", age_seconds=2 * HOUR)
    restarted(training, granularity="epoch")
    training.run(70)
    training.hear("128", mode=HintMode.APPLY)
    training.run(1, epoch=True)
    assert training.block.kept == "128"
    training.run(300, epoch=True)
    assert (set(training.seen[-300:]), training.block.kept) == ({128}, "128")
    assert training.checks() == []


def test_driver_and_models_of_the_machine_are_read_from_its_files(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC\n")
    assert driver_version(str(version)) == "550.54.15"
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86  Release Build  (a@b)\n")
    assert driver_version(str(version)) == "570.86"
    for number, model in enumerate(("NVIDIA H100 80GB HBM3", "NVIDIA A100", "NVIDIA A100")):
        folder = tmp_path / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 41\nGPU UUID: \t GPU-{number}\n")
    assert device_models(str(tmp_path / "gpus")) == "NVIDIA A100, NVIDIA H100 80GB HBM3"
    assert (driver_version(str(tmp_path / "none")), device_models(str(tmp_path / "none"))) == ("", "")
