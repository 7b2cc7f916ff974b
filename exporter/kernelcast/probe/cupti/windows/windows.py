"""Decides whether kernels are measured at this moment, from what measuring costs this program.

`ActivityMethod` owns one and asks it under its lock: `moment` says whether to measure and until when, `switched` hears
what was done, `feed` learns from each report.
"""

from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Final

from kernelcast.probe.cupti.windows.cost import FIRST_STEPS, CostRatio, Ratio
from kernelcast.probe.cupti.windows.levels import NANOSECONDS, Level, LevelChoice, Spent
from kernelcast.probe.cupti.windows.schedule import Moment, Schedule, window_seconds
from kernelcast.probe.process.job import Job
from kernelcast.probe.recording.recorder import Recorder

RECORDS_PER_SECOND: Final = 50_000
"""Kernel records from which a program without steps is measured in windows."""
REPLAYS: Final = "it replays CUDA graphs and calls no step, so that what measuring costs is unknown"
BUSY: Final = "it has over 50,000 kernels a second and calls no step, so that what measuring costs is unknown"
NEED_SECONDS: Final = 600
"""How long such a program is measured in windows after the last sign of it."""
ALWAYS: Final = Moment(True, 2**63 - 1)


class Windows:
    """The windows of one process.

    Args:
        recorder: Has the program's steps and trials; is told when kernels are measured.
        job: The job; ranks without a common id are not compared.
        can_switch: Whether this CUPTI may switch kinds while CUDA graphs exist: from CUDA 12.6 on.
        clock: Monotonic nanoseconds, the clock of the program's steps.
        unix_clock: Unix nanoseconds, the same for all ranks.
    """

    def __init__(
        self,
        recorder: Recorder,
        job: Job,
        *,
        can_switch: bool,
        clock: Callable[[], int] = monotonic_ns,
        unix_clock: Callable[[], int] = time_ns,
    ) -> None:
        self._recorder = recorder
        self._job = job
        self._can_switch = can_switch
        self._clock = clock
        self._unix_clock = unix_clock
        self._choice = LevelChoice()
        self._cost = CostRatio()
        self._schedule = Schedule(job.id)
        self._lost_ns = recorder.budget.lost_ns
        self._measured_ns = 0
        self._need, self._need_ns = "", 0
        self.measuring = False

    @property
    def level(self) -> Level:
        """How much is measured."""
        return self._choice.level

    @property
    def ratio(self) -> Ratio | None:
        """Step time with measuring over step time without; None where it is unknown."""
        return self._cost.ratio()

    @property
    def reason(self) -> str:
        """How much is measured and why not more; empty while all is."""
        level = self.level
        if level is Level.FULL:
            return ""
        how_much = (
            "waits are not measured"
            if level is Level.NO_WAITS
            else f"kernels are measured for {self._schedule.seconds:.3g} s in "
            f"{level.windows_apart * self._schedule.seconds:.3g}"
        )
        return f"{how_much}: {self._choice.reason}"

    @property
    def waits(self) -> bool:
        """Whether waits are measured where kernels are."""
        return self.level is not Level.NO_WAITS

    @property
    def exceeded(self) -> bool:
        """Whether measuring costs too much and cannot be switched, so that it must end."""
        return not self._can_switch and self.level > Level.FULL

    def moment(self) -> Moment:
        """Return whether kernels are to be measured now, and for how many nanoseconds from now that holds."""
        if not self._can_switch:
            return ALWAYS
        return self._schedule.at(self.level, self._unix_clock(), pauses=self._compares())

    def switched(self, *, measuring: bool) -> None:
        """Say that kernels are measured from now on, with waits where the level has them, or no longer."""
        now_ns = self._clock()
        self._recorder.measured.switch(now_ns, measuring=measuring, waits=measuring and self.waits)
        if measuring is not self.measuring:
            self._cost.switched(now_ns, measuring=measuring)
        self.measuring = measuring

    def feed(self, *, records: int, graph_launches: int, held_ns: int, decoding_ns: int, untimed: str = "") -> None:
        """Learn from one report.

        Args:
            records: Activity records since the last report.
            graph_launches: Kernels of CUDA graphs among them.
            held_ns: Time for which measuring has held the program so far.
            decoding_ns: Processor time of the decoder so far.
            untimed: Why records have no usable time; empty if they have.
        """
        now_ns = self._clock()
        self._learn_steps()
        least, why = self._least(now_ns, records, graph_launches, untimed)
        ratio = self._cost.ratio()
        slower = max(0.0, ratio.lower - 1) if ratio else None
        before = self.level
        spent = Spent(self._measured_ns, held_ns, decoding_ns)
        if self._choice.feed(now_ns, spent, least=least, why=why, slower=slower) is not before:
            self._cost.forget()
        seconds = window_seconds(self._cost.block_seconds)
        if seconds != self._schedule.seconds:
            self._schedule = Schedule(self._job.id, seconds)

    def _compares(self) -> bool:
        """Whether continuous measuring pauses, to learn its cost."""
        alone = self._job.ranks == 1
        return self._cost.steps >= FIRST_STEPS and (alone or bool(self._job.id)) and not self._in_trial()

    def _in_trial(self) -> bool:
        return self._recorder.step_times is not None

    def _learn_steps(self) -> None:
        ends = self._recorder.progress.ends_ns
        self._cost.add(ends.popleft() for _ in range(len(ends)))
        lost_ns = self._recorder.budget.lost_ns
        if self._in_trial() or lost_ns != self._lost_ns:
            self._cost.spoil()
        self._lost_ns = lost_ns

    def _least(self, now_ns: int, records: int, graph_launches: int, untimed: str) -> tuple[Level, str]:
        """Return the level that the program needs whatever measuring costs, and why."""
        measured_ns = self._recorder.measured.until(now_ns).measured_ns
        seconds, self._measured_ns = (measured_ns - self._measured_ns) / NANOSECONDS, measured_ns
        if untimed:
            return Level.TENTH, untimed
        if self._cost.steps:
            return Level.FULL, ""
        if graph_launches or records > RECORDS_PER_SECOND * max(seconds, 0.1):
            self._need, self._need_ns = REPLAYS if graph_launches else BUSY, now_ns
        if self._need and now_ns - self._need_ns < NEED_SECONDS * NANOSECONDS:
            return Level.TENTH, self._need
        return Level.FULL, ""
