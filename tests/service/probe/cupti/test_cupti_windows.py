"""CUPTI's method in windows, beside a double of libcupti: what it costs is bounded, and what it saw is never scaled."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.service.probe.cupti.double import SMALL, Double, copied
from tests.service.probe.cupti.records import START_NS, Packer

from kernelcast.probe.cupti import build
from kernelcast.probe.cupti.library import SYNCHRONIZATION, WORK_KINDS, Cupti
from kernelcast.probe.cupti.method import ACTIVE, BACKED_OFF, OFF, ActivityEnvironment, ActivityMethod
from kernelcast.probe.cupti.native import ActivityDecoder
from kernelcast.probe.cupti.watch import ProfilerWatch
from kernelcast.probe.recording.recorder import Recorder

NANOSECONDS = 1_000_000_000
LAUNCHES = 1_000


@dataclass
class Program:
    """A measured program by a virtual clock: launches each tenth of a second, seen only while kinds are enabled."""

    folder: Path
    built: Path
    double: Double
    environ: dict[str, str]
    graphs: bool = False
    step_seconds: float = 0.0
    slower: float = 1.0
    """Length of a step while kernels are measured, over its usual length."""
    launches: int = LAUNCHES
    version: str = "12.9"

    def __post_init__(self) -> None:
        self.now_ns = 5_000 * NANOSECONDS
        self.launched = 0
        self.recorder = Recorder()
        self.recorder.clock = self.clock
        self._packer = Packer(self.version)
        self._next_step = 0.0
        watch = ProfilerWatch(self.environ, {}, frozenset)
        environment = ActivityEnvironment(
            self.environ,
            lambda: ActivityDecoder(copied(self.built / build.LIBRARY_NAME, self.folder)),
            lambda _: Cupti(self.double.library),
            watch,
            lambda _: (8, 0),
            lambda: self.now_ns / 1e9,
            SMALL,
            rest=0.0,
            step_clock=self.clock,
            unix_clock=self.clock,
        )
        self.method = ActivityMethod(self.recorder, environment)
        self.recorder.measured.begin(self.now_ns, measuring=False)
        assert self.method.start()

    def clock(self) -> int:
        return self.now_ns

    def run(self, seconds: float) -> None:
        for tenth in range(round(10 * seconds)):
            self.method.switch()
            self.now_ns += NANOSECONDS // 10
            measuring = 10 in self.double.enabled()
            self.launched += self.launches // 10
            if measuring and self.launches:
                kernel = self._packer.kernel("k", START_NS, START_NS + 100, graph=7 if self.graphs else 0)
                self.double.bring([kernel] * (self.launches // 10))
            if SYNCHRONIZATION in self.double.enabled():
                self.double.bring([self._packer.sync(3, START_NS, START_NS + 50)])
            self._steps(slower=self.slower if measuring else 1.0)
            if tenth % 10 == 9:
                self.method.tick()

    def _steps(self, *, slower: float) -> None:
        while self.step_seconds and self._next_step < self.now_ns:
            if self._next_step:
                self.recorder.progress.advance(round(self._next_step))
            self._next_step = (self._next_step or self.now_ns) + 1e9 * self.step_seconds * slower

    @property
    def seen(self) -> int:
        return sum(cell.launches for cell in self.recorder.cells(0))

    @property
    def measured_ratio(self) -> float:
        running_ns, measured_ns, _ = self.recorder.measured.until(self.now_ns)
        return measured_ns / running_ns

    @property
    def waits_seen(self) -> int:
        return sum(calls for _, calls, _ in self.recorder.counters(0, dropped_frames=0).sync)


@pytest.fixture
def programs(built: Path, double: Double, tmp_path: Path) -> Iterator[type["Made"]]:
    Made.environ, Made.where = {}, (tmp_path, built, double)
    yield Made
    for program in Made.all:
        program.method.stop()
    Made.all.clear()


class Made:
    """Makes programs for a test, and stops them after it."""

    where: tuple[Path, Path, Double]
    environ: dict[str, str]
    all: list[Program] = []  # noqa: RUF012

    def __new__(cls, **named: object) -> Program:  # type: ignore[misc]
        program = Program(*cls.where, cls.environ, **named)  # type: ignore[arg-type]
        cls.all.append(program)
        return program


def test_a_program_without_steps_is_in_windows_from_the_first_graph_on(programs: type[Made]) -> None:
    program = programs(graphs=True)
    program.run(200)
    assert program.method.state == BACKED_OFF
    assert program.method.reason.startswith("kernels are measured for 1 s in 10: it replays CUDA graphs")
    assert program.measured_ratio == pytest.approx(0.1, abs=0.02)
    assert program.seen == pytest.approx(program.launched * program.measured_ratio, rel=0.1)
    assert program.method.cost == ()


def test_a_program_without_steps_is_in_windows_above_fifty_thousand_kernels_a_second(programs: type[Made]) -> None:
    program = programs(launches=60_000)
    program.run(30)
    assert (program.method.state, program.double.enabled()) == (BACKED_OFF, set()) or program.measured_ratio < 0.5
    assert "over 50,000 kernels a second" in program.method.reason


def test_a_calm_program_is_measured_all_the_time(programs: type[Made]) -> None:
    program = programs()
    program.run(60)
    assert (program.method.state, program.method.reason, program.measured_ratio) == (ACTIVE, "", 1.0)
    assert program.seen == program.launched


def test_what_a_window_has_no_record_of_is_unknown_and_not_idle(programs: type[Made]) -> None:
    """1,000 kernels of 100 ns at one moment of each window: the states of the device sum to the measured time."""
    program = programs(graphs=True)
    program.run(300)
    program.method.stop()
    counters = program.recorder.counters(0, dropped_frames=0)
    states = dict(counters.device_time)
    assert states["unknown"] > 0
    assert states.get("idle", 0) == 0
    assert sum(states.values()) == pytest.approx(counters.measured_ns, rel=0.05)


def test_with_steps_the_cost_is_learnt_in_pauses_of_a_twentieth(programs: type[Made]) -> None:
    program = programs(step_seconds=0.05)
    program.run(400)
    assert program.measured_ratio == pytest.approx(0.95, abs=0.01)
    assert program.method.cost == pytest.approx((1, 1, 1), abs=0.02)
    assert (program.method.state, program.method.reason) == (ACTIVE, "")


def test_steps_that_measuring_makes_longer_are_measured_less(programs: type[Made]) -> None:
    program = programs(step_seconds=0.05, slower=1.10)
    program.run(300)
    assert program.method.state == BACKED_OFF
    assert program.method.reason.startswith("waits are not measured: steps last at least")
    assert program.double.enabled() <= set(WORK_KINDS)
    program.run(300)
    assert "kernels are measured for" in program.method.reason
    assert program.method.cost == () or program.method.cost[1] == pytest.approx(1.10, abs=0.02)


def test_ranks_without_a_common_id_are_not_compared(programs: type[Made]) -> None:
    programs.environ["WORLD_SIZE"] = "8"
    program = programs(step_seconds=0.05)
    program.run(300)
    assert (program.measured_ratio, program.method.cost) == (1.0, ())


def test_there_is_no_pause_during_a_trial_of_the_tuner(programs: type[Made]) -> None:
    program = programs(step_seconds=0.05)
    program.recorder.step_times = object()  # type: ignore[assignment]
    program.run(200)
    assert (program.measured_ratio, program.method.cost) == (1.0, ())
    program.recorder.step_times = None


def test_before_cuda_12_6_nothing_is_switched_and_too_high_a_cost_ends_it(built: Path, tmp_path: Path) -> None:
    double = Double(copied(built / "libcupti_double.so", tmp_path / "old"), "12.1")
    program = Program(tmp_path, built, double, {}, graphs=True, step_seconds=0.05, version="12.1")
    program.run(120)
    assert (program.method.state, program.measured_ratio) == (ACTIVE, 1.0)
    program.method.stop()
    without_steps = Program(tmp_path / "second", built, double, {}, graphs=True, version="12.1")
    without_steps.run(10)
    assert without_steps.method.state == OFF
    assert "CUDA before 12.6 cannot measure in windows" in without_steps.method.reason


def test_without_waits_their_measured_time_stands_still_and_goes_on_in_windows(programs: type[Made]) -> None:
    program = programs(step_seconds=0.05, slower=1.10)
    while program.method.state != BACKED_OFF:
        program.run(1)
    assert program.method.reason.startswith("waits are not measured")
    program.run(1)
    before, seen = program.recorder.measured.until(program.now_ns), program.waits_seen
    assert before.waits_measured_ns == pytest.approx(before.measured_ns, abs=2 * NANOSECONDS)
    assert seen == pytest.approx(10 * before.waits_measured_ns / NANOSECONDS, abs=10)
    program.run(30)
    after = program.recorder.measured.until(program.now_ns)
    assert (after.waits_measured_ns, program.waits_seen) == (before.waits_measured_ns, seen)
    assert after.measured_ns > before.measured_ns + 25 * NANOSECONDS
    while program.method.reason.startswith("waits are not measured"):
        program.run(1)
    opened = program.recorder.measured.until(program.now_ns)
    program.run(100)
    last = program.recorder.measured.until(program.now_ns)
    assert last.waits_measured_ns - opened.waits_measured_ns == pytest.approx(
        last.measured_ns - opened.measured_ns, rel=0.2
    )
    assert program.waits_seen - seen == pytest.approx(
        10 * (last.waits_measured_ns - before.waits_measured_ns) / NANOSECONDS, rel=0.2
    )


def test_waits_are_measured_again_where_it_is_calm(programs: type[Made]) -> None:
    program = programs()
    program.method.held_ns += 7 * 15_000_000
    for _ in range(7):
        program.run(1)
        program.method.held_ns += 15_000_000
    assert program.method.state == BACKED_OFF
    program.run(400)
    assert (program.method.state, SYNCHRONIZATION in program.double.enabled()) == (ACTIVE, True)
