"""Whether a program stands still: its limit, its state, its stacks."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy import stats
from tests.service.require import shared_data

from kernelcast.exporter.programs.standing import (
    MAX_STACK_FILES,
    JudgedProcess,
    ProgressWatch,
    StackFiles,
    StandingJudge,
    StandingLimits,
    identity,
)
from kernelcast.exporter.totals.report import Standing
from kernelcast.wire.frames import Counters, KernelRow, KernelRows
from kernelcast.wire.histogram import DurationTotals

FloatArray = npt.NDArray[np.float64]
DAY = 86_400
DRAWN = 2_000
"""Gaps of a simulated program that are drawn one by one."""
START_NS = 1_800_000_000_000_000_000
LIMITS = StandingLimits()
PROCESS = JudgedProcess("train", "2", "0123456789abcdef", "node", 77, is_connected=True)


class Clock:
    """Monotonic seconds and wall nanoseconds that a test moves; the wall may be set as well."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.set_ns = 0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> int:
        return START_NS + round(self.seconds * 1e9) + self.set_ns


class Program:
    """A program's watch, and the judge of its node."""

    def __init__(self, tmp_path: Path, limits: StandingLimits = LIMITS) -> None:
        self.clock = Clock()
        self.watch = ProgressWatch(self.clock.monotonic, self.clock.wall)
        self.stacks = StackFiles(tmp_path / "probe.sock")
        self.stacks.open()
        self.file = tmp_path / "probe.sock.stacks" / PROCESS.nonce
        self.letter = "S"
        self.asked = 0
        self.judge = StandingJudge(limits, self.stacks, lambda _pid: self.letter)
        self.progress_ns = self.clock.wall()
        self.steps = 1

    def report(self, phase: str = "backward", *, standby: str = "", moved: bool = False) -> None:
        """Send the counters, with a step's end now or as before."""
        if moved:
            self.progress_ns = self.clock.wall()
            self.steps += 1
        job = (("job", "127.0.0.1:29500"),)
        frame = Counters(0, steps=self.steps, phase=phase, progress_ns=self.progress_ns, job=job, standby=standby)
        self.watch.counters(frame)

    def train(self, seconds: int, phase: str = "backward") -> None:
        for _ in range(seconds):
            self.clock.seconds += 1
            self.report(phase, moved=True)

    def wait(self, seconds: float, phase: str = "backward", standby: str = "") -> Standing | None:
        """Report each second without progress; returns what the judge says at the end of each 10 s."""
        said = None
        for second in range(round(seconds)):
            self.clock.seconds += 1
            self.report(phase, standby=standby)
            if second % 10 == 9:
                said = self.judged()
        return said

    def judged(self) -> Standing | None:
        self.judge.begin(self.clock.monotonic())
        return self.judge.judge(PROCESS, self.watch, self.ask)

    def ask(self) -> None:
        self.asked += 1


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


MOVES = Standing("node/127.0.0.1:29500")


def test_a_program_stands_still_after_a_minute_in_training(program: Program) -> None:
    program.train(300)
    assert program.wait(50) == MOVES
    assert program.wait(10) == Standing("node/127.0.0.1:29500", "backward", 60.0)
    program.train(1)
    assert program.judged() == MOVES


@pytest.mark.parametrize("phase", ["evaluation", "checkpoint", "compilation", "other"])
def test_other_phases_have_ten_minutes(program: Program, phase: str) -> None:
    program.train(300)
    program.report(phase, moved=True)
    assert program.wait(590, phase) == MOVES
    assert program.wait(10, phase) == Standing("node/127.0.0.1:29500", phase, 600.0)


def test_slow_steps_raise_the_limit_to_ten_times_their_gap(program: Program) -> None:
    for _ in range(120):
        program.wait(20)
        program.report(moved=True)
    assert program.wait(190) == MOVES
    assert program.wait(30) is not None
    said = program.judged()
    assert said is not None
    assert said.state == "backward"


def test_a_program_that_came_back_from_a_long_gap_has_twice_of_it(program: Program) -> None:
    program.train(300)
    program.wait(100, "data")
    program.train(300, "data")
    assert program.wait(190, "data") == MOVES
    assert program.wait(20, "data") != MOVES
    assert program.wait(1) != MOVES  # another phase has its own


def test_a_process_that_was_stopped_learns_no_limit_from_it(program: Program) -> None:
    program.train(300)
    program.letter = "T"
    program.clock.seconds += 300
    said = program.judged()
    assert said == Standing("node/127.0.0.1:29500", "stopped", 300.0)
    program.letter = "S"
    program.train(10)
    assert program.wait(50) == MOVES
    assert program.wait(10) != MOVES


@pytest.mark.parametrize(
    ("letter", "standby", "silent", "state"),
    [
        ("T", "", True, "stopped"),
        ("t", "", True, "stopped"),
        ("D", "", False, "disk"),
        ("S", "", True, "silent"),
        ("S", "person", False, "person"),
        ("S", "ended", False, "ended"),
        ("S", "", False, "backward"),
    ],
)
def test_the_state_says_what_it_waits_in(
    program: Program, letter: str, standby: str, state: str, *, silent: bool
) -> None:
    program.train(40)
    program.letter = letter
    if silent:
        program.clock.seconds += 60
    said = program.judged() if silent else program.wait(60, standby=standby)
    assert said is not None
    assert (said.state, said.seconds) == (state, 60.0)


def test_a_kernel_that_ends_is_progress(program: Program) -> None:
    program.train(1_000)
    for count in range(1, 10):
        program.wait(20)
        rows = (KernelRow(1, count + 1, DurationTotals(count, count, count, 0, {0: count})),)
        program.watch.kernels(KernelRows(0, rows))
    assert program.judged() == MOVES
    program.watch.kernels(KernelRows(0, rows))  # sent again: none has ended
    assert program.wait(60) != MOVES


def test_a_program_without_steps_is_not_judged(program: Program) -> None:
    program.steps = 0
    program.report("data")
    program.clock.seconds += DAY
    assert program.judged() is None


def test_a_clock_that_is_set_is_no_stand_still(program: Program) -> None:
    program.train(300)
    program.clock.set_ns = 3_600_000_000_000
    assert program.wait(10) == MOVES
    program.train(3)
    program.clock.set_ns = -3_600_000_000_000
    program.train(3)
    assert program.judged() == MOVES
    assert program.watch.limit(LIMITS) == 60.0


def test_stacks_are_asked_for_before_the_limit_once_an_hour_and_named_with_it(program: Program) -> None:
    program.train(300)
    program.wait(40)
    assert program.asked == 0
    program.wait(10)
    assert program.asked == 1
    program.file.write_text("stacks")
    now = program.clock.wall()
    os.utime(program.file, ns=(now, now))
    said = program.wait(10)
    assert said is not None
    assert said.stacks == str(program.file)
    program.wait(1200)
    program.train(1)
    program.wait(1300)
    assert program.asked == 1
    program.wait(2000)
    assert program.asked == 2


def test_an_earlier_file_and_a_link_are_no_stacks(program: Program) -> None:
    now = program.clock.wall()
    program.file.write_text("an earlier one")
    os.utime(program.file, ns=(now, now))
    assert program.stacks.written(PROCESS.nonce, now + 10_000_000_000) == ""
    program.file.unlink()
    program.file.symlink_to("/etc/passwd")
    assert program.stacks.written(PROCESS.nonce, 1) == ""
    assert program.stacks.written("../../etc/passwd", 1) == ""


def test_the_newest_files_of_stacks_are_kept(program: Program) -> None:
    for number in range(MAX_STACK_FILES + 3):
        path = program.file.with_name(f"{number:016x}")
        path.touch()
        os.utime(path, ns=(number, number))
    program.stacks.remove_oldest()
    assert min(path.name for path in program.file.parent.iterdir()) == f"{3:016x}"
    assert len(list(program.file.parent.iterdir())) == MAX_STACK_FILES


def test_jobs_of_two_nodes_differ_where_their_address_is_each_nodes_own() -> None:
    assert identity(PROCESS, {"job": "127.0.0.1:29500"}) == "node/127.0.0.1:29500"
    assert identity(PROCESS, {"job": "node-1:29500"}) == "node-1:29500"
    assert identity(PROCESS, {}) == "node:77"


@pytest.mark.parametrize(
    ("shape", "quantile", "above"),
    [
        ("log-normal, sigma 0.6", lambda p: stats.lognorm.ppf(p, 0.6), lambda x: stats.lognorm.sf(x, 0.6)),
        ("Weibull, shape 0.8", lambda p: stats.weibull_min.ppf(p, 0.8), lambda x: stats.weibull_min.sf(x, 0.8)),
        ("Pareto, index 8", lambda p: stats.pareto.ppf(p, 8.0), lambda x: stats.pareto.sf(x, 8.0)),
    ],
)
def test_ten_thousand_days_of_healthy_programs_with_heavy_tails_raise_no_alarm(
    shape: str, quantile: Callable[[FloatArray], FloatArray], above: Callable[[float], float]
) -> None:
    """With a typical step between 0.2 s and 20 s."""
    days = TenThousandDays((0.2, 1.0, 5.0, 20.0), lambda random: (quantile(random.random(DRAWN)), above))
    assert days.alarms() == 0


@pytest.mark.parametrize("trace", ["AR", "ST"])
@pytest.mark.parametrize("marks", ["steps alone", "every pass"])
def test_ten_thousand_days_of_recorded_steps_raise_no_alarm(trace: str, marks: str) -> None:
    """Two jobs of ByteDance with pipelines: steps of 47 s and 2.2 s, in which a rank waits for up to 26 s and 0.8 s.

    As they were recorded, and with a model that takes three times as long.
    """
    ranks = recorded_ranks(trace, marks)
    gaps_per_step = ranks.shape[2]

    def rank(random: np.random.Generator) -> tuple[FloatArray, Callable[[float], float]]:
        steps = ranks[random.integers(len(ranks))]
        gaps = random.choice(steps, size=-(-DRAWN // gaps_per_step)).ravel()[:DRAWN]
        return gaps, lambda limit: float((steps > limit).mean())

    assert TenThousandDays((1.0, 3.0), rank, gaps_per_step).alarms() == 0


@dataclass(frozen=True)
class TenThousandDays:
    """1,000 healthy programs of ten days each.

    Attributes:
        scales: Lengths of the unit of the gaps, in seconds; each program has one of them.
        program: Draws the first gaps of a program, and the share of its gaps that are longer than an argument.
        gaps_per_step: Gaps of a step.
    """

    scales: Sequence[float]
    program: Callable[[np.random.Generator], tuple[FloatArray, Callable[[float], float]]]
    gaps_per_step: int = 1

    def alarms(self) -> int:
        """The first gaps of a program are judged as they come; of the others the number above its last limit."""
        random = np.random.default_rng(35)
        alarms, days = 0, 0.0
        for scale in random.choice(self.scales, size=1_000):
            watch = ProgressWatch()
            unscaled, above = self.program(random)
            gaps = scale * unscaled
            for start, end in itertools.pairwise((0, 30, 100, 300, 1_000, DRAWN)):
                alarms += int((gaps[start:end] > watch.limit(LIMITS)).sum())
                learn(watch, gaps[start:end], steps=end // self.gaps_per_step)
            rest = round(10 * DAY / max(1.0, float(gaps.mean()))) - DRAWN  # a frame a second shows one gap at most
            alarms += int(random.binomial(max(rest, 0), above(watch.limit(LIMITS) / scale)))
            days += max(10.0, float(gaps.sum()) / DAY)
        assert days >= 10_000
        return alarms


def recorded_ranks(trace: str, marks: str) -> FloatArray:
    """Seconds between two marks, by rank, step and mark; for steps alone the job's, as those of one rank."""
    rows = pd.read_csv(shared_data("straggler", f"trace-{trace}.csv.gz"))
    rows["end"] = rows["start_ts"] + rows["duration"]
    if marks == "steps alone":
        return np.asarray(rows.groupby("step")["end"].max(), dtype=np.float64)[np.newaxis, :, np.newaxis]
    passes = rows[rows["optype"].isin(("forward-compute", "backward-compute", "optimizer"))]
    ends = passes.groupby(["dp_rank", "rank", "step"])["end"]
    gaps = np.array([np.diff(np.sort(values), prepend=0.0) for _, values in ends])
    return gaps.reshape(-1, rows["step"].nunique(), gaps.shape[1])


def learn(watch: ProgressWatch, gaps: FloatArray, steps: int) -> None:
    """Add gaps to a watch, each as its bucket's upper bound would be, up to a number of steps."""
    index, counts = np.unique(np.ceil(np.log2(np.maximum(gaps, 1.0)) * 8), return_counts=True)
    for bound, count in zip((index / 8).tolist(), counts.tolist(), strict=True):
        watch._gaps.observe(round(2.0**bound * 1e9), count)
    watch._longest[""] = max(watch._longest.get("", 0.0), float(gaps.max()))
    watch._steps = steps
