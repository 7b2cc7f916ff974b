"""What a program's user reads about its spaces and tunables: kept, still tried, or nothing was worth it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.switch import LAUNCH, REPORT
from kernelcast.probe.terminal.messages import UserMessages
from kernelcast.probe.terminal.role import LaunchRole
from kernelcast.probe.terminal.situation import Situation
from kernelcast.probe.terminal.tuning import TuningResult
from kernelcast.probe.tuned import shapes
from kernelcast.tuning.experiment import Decision
from kernelcast.wire.events import OutcomeState

SPACE = {"block_x": [16, 32], "block_y": [1, 2]}
START = {"block_x": 16, "block_y": 1}


class Clock:
    """Time that passes only in calls of the program."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(shapes, "perf_counter", made)
    return made


@dataclass
class Run:
    """A program with a probe that shows its summary.

    Attributes:
        probe: The probe.
        lines: What the program's user reads.
        report: The report's file.
        has_own_exporter: Whether the program has started an exporter beside it.
    """

    report: Path
    state_directory: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    has_own_exporter: bool = False

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        messages = UserMessages(
            lambda: LaunchRole(is_first_of_node=True, is_first_of_job=True, is_quiet=False),
            {LAUNCH: "1", REPORT: str(self.report)},
            write=self.lines.append,
        )
        settings = ProbeSettings("train", state_directory=self.state_directory, trial_share=1.0)
        beside = (lambda: None) if self.has_own_exporter else None
        self.probe = Probe(settings, self.environ, each_interval=beside, messages=messages)
        messages.poll(Situation(has_begun=True), self.probe._summary)

    def end(self) -> tuple[dict[str, Any], str]:
        """End the program; returns its only result, and what the box says of it."""
        self.probe.stop()
        self.probe.show_summary()
        (result,) = json.loads(self.report.read_text())["tuning"]
        inside = [line[2:-1].rstrip() for line in self.lines[-1].splitlines()]
        (first,) = [number for number, line in enumerate(inside) if line.startswith("tuned: ")]
        rest = takewhile(lambda line: line.startswith("  "), inside[first + 1 :])
        return result, " ".join([inside[first], *map(str.strip, rest)])


@pytest.fixture
def program(tmp_path: Path) -> Run:
    return Run(tmp_path / "run.json")


def called(probe: Probe, clock: Clock, calls: int, seconds: Mapping[int, float]) -> None:
    """Call a decorated function whose time depends on `block_x`, one call a step."""
    space = probe.space("conv", SPACE, start=START)

    @space.tuned
    def convolve(configuration: Any) -> None:
        clock.now += seconds[configuration.block_x]

    for _ in range(calls):
        convolve()
        probe.step()


def test_a_kept_configuration_is_named_with_its_share_of_the_time(program: Run, clock: Clock) -> None:
    called(program.probe, clock, 4000, {16: 0.01, 32: 0.005})
    result, line = program.end()
    assert (result["name"], result["state"]) == ("conv.convolve", "kept")
    assert result["time_ratio"] == pytest.approx(0.5, abs=0.01)
    assert line.startswith("tuned: conv.convolve: block_x 16 -> 32")
    assert line.endswith(", 0.50 of the time")
    assert (result["own"], result["is_earlier"]) == ("block_x=16 block_y=1", False)
    assert result["value"].startswith("block_x=32 block_y=")


def test_a_search_that_the_programs_end_interrupts_says_how_far_it_came(program: Run, clock: Clock) -> None:
    called(program.probe, clock, 9, {16: 0.01, 32: 0.005})
    result, line = program.end()
    assert (result["state"], result["planned"]) == ("searching", 4)
    assert 0 < result["tried"] < 4
    assert line == f"tuned: conv.convolve: still trying, {result['tried']} of 4 configurations so far"


def test_a_search_that_has_run_every_configuration_says_that_it_has_no_verdict_yet() -> None:
    """It said "6 of 6 configurations so far" for 140 epochs, as if it had ended."""
    result = TuningResult("feed", "searching", "workers=0", tried=6, planned=6)
    assert result.words() == "still trying: each of 6 configurations has run, no verdict yet"


def test_a_search_without_a_gain_says_that_nothing_was_worth_it(program: Run, clock: Clock) -> None:
    called(program.probe, clock, 9000, {16: 0.01, 32: 0.02})
    result, line = program.end()
    assert result["state"] == "unchanged"
    assert line == "tuned: conv.convolve: nothing was worth it; block_x=16 block_y=1 stays"


def test_a_configuration_of_an_earlier_run_is_said_to_be_one(tmp_path: Path, clock: Clock) -> None:
    lines = []
    for calls in (4000, 2):
        program = Run(tmp_path / "run.json", str(tmp_path / "tuning"))
        called(program.probe, clock, calls, {16: 0.01, 32: 0.005})
        lines.append(program.end()[1])
    assert lines[0].startswith("tuned: conv.convolve: block_x 16 -> 32")
    assert lines[1] == lines[0].replace(", 0.50 of the time", "; from an earlier run")


def test_a_configuration_of_an_earlier_run_that_is_measured_again_is_still_said_to_be_one(
    tmp_path: Path, clock: Clock
) -> None:
    for calls in (4000, 4000):
        program = Run(tmp_path / "run.json", str(tmp_path / "tuning"))
        called(program.probe, clock, calls, {16: 0.01, 32: 0.005})
        result, line = program.end()
    assert (result["is_earlier"], result["time_ratio"]) == (True, pytest.approx(0.5, abs=0.01))
    assert line.startswith("tuned: conv.convolve: block_x 16 -> 32")
    assert line.endswith(", 0.50 of the time; from an earlier run")


def test_a_tunable_without_a_way_for_hints_says_that_nothing_is_tried(tmp_path: Path) -> None:
    """As the loader's, beside an exporter without Kafka."""
    program = Run(tmp_path / "run.json", has_own_exporter=True)
    program.probe.tunable("loader_workers", [0, 2, 4], 0)
    program.probe.step()
    assert program.end()[1] == "tuned: loader_workers: nothing is tried: no hint comes without Kafka"


def test_a_space_that_may_not_be_searched_says_why(tmp_path: Path, clock: Clock) -> None:
    program = Run(tmp_path / "run.json", environ={"KERNELCAST_HINTS": "off"})
    called(program.probe, clock, 50, {16: 0.01, 32: 0.005})
    result, line = program.end()
    assert (result["state"], result["tried"]) == ("searching", 0)
    assert line.startswith("tuned: conv.convolve: nothing is tried: ")


def test_a_tunables_value_of_an_earlier_run_is_named(tmp_path: Path) -> None:
    folder = str(tmp_path / "tuning")
    first = Run(tmp_path / "run.json", folder)
    first.probe._journal.end("block", "128", Decision.KEPT)  # type: ignore[union-attr]
    second = Run(tmp_path / "run.json", folder)
    assert second.probe.tunable("block", [64, 128], 64).value == 128
    second.probe.step()
    assert second.end()[1] == "tuned: block: 64 -> 128; from an earlier run"


@pytest.fixture
def queue() -> OutcomeQueue:
    return OutcomeQueue("train", "", lambda: 1, lambda: None)


def test_ratios_of_kept_values_one_after_the_other_are_against_the_programs_own(queue: OutcomeQueue) -> None:
    for number, (old, new, ratio) in enumerate((("64", "128", 0.5), ("128", "256", 0.8))):
        queue.add_trial(f"h{number}", "block", OutcomeState.APPLIED, "", value=new, previous=old)
        queue.add_trial(f"h{number}", "block", OutcomeState.KEPT, "", value=new, previous=old, measured_ratio=ratio)
    queue.add_trial("h2", "block", OutcomeState.APPLIED, "", value="512", previous="256")
    queue.add_trial("h2", "block", OutcomeState.ROLLED_BACK, "slower", value="256", previous="512", measured_ratio=2.0)
    (result,) = queue.results.values()
    assert (result.value, result.is_kept, result.is_open) == ("256", True, False)
    assert result.time_ratio == pytest.approx(0.4)


def test_a_kept_value_that_is_taken_back_is_kept_no_more(queue: OutcomeQueue) -> None:
    queue.add_trial("h0", "block", OutcomeState.KEPT, "", value="128", previous="64", measured_ratio=0.5)
    queue.add_trial("s1", "block", OutcomeState.APPLIED, "checked again", value="128", previous="128")
    queue.add_trial("s1", "block", OutcomeState.ROLLED_BACK, "checked again", value="64", previous="128")
    (result,) = queue.results.values()
    assert (result.value, result.is_kept, result.time_ratio) == ("64", False, None)


def test_a_failing_candidate_leaves_its_search_open(queue: OutcomeQueue) -> None:
    queue.add_trial("s1", "conv", OutcomeState.APPLIED, "", value="[16]", previous="[16]")
    queue.add_trial("s2", "conv", OutcomeState.ROLLED_BACK, "it raised", value="[16]", previous="[16]")
    assert queue.results["conv"].is_open
