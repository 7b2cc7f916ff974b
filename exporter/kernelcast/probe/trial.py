"""One trial of one value: an experiment over the steps of the program, in step time and device time.

`HintReceiver` runs a `RunningTrial` for a hint or the check of a kept value. Councils use `LaunchMeasurement` alone. An
*arm* is one side of the comparison, the kept value or the candidate; a *launch* is the steps between two changes.
All of it runs on the program's thread.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter_ns
from typing import Final

from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.step_times import StepTime, StepTimes, grown
from kernelcast.probe.trial_budget import LaunchCost, TrialBudget
from kernelcast.probe.tunables import AnyTunable
from kernelcast.tuning.experiment import Arm, Decision, Experiment, ExperimentVerdict, Launch, Rules
from kernelcast.tuning.payback import paid_back
from kernelcast.wire.events import Hint
from kernelcast.wire.tuning.pauses import LATER

PATIENCE_STEPS: Final = 64
# Reports come at most 10 s apart; a trial that waits this long for the times of its launches ends without them.
PATIENCE_NS: Final = 30_000_000_000

# Launches of a candidate after which it is not held responsible for a later end of the process.
SURVIVED_STEPS: Final = 3
# A trial that is paused for longer ends without a decision: the program may have changed.
LONGEST_PAUSE_NS: Final = 3600 * 1_000_000_000

# Methods that report totals or counts only, which no step can be given.
METHODS_WITHOUT_STEPS: Final = ("cupti", "count")

# Methods that number each launch by the configuration in force. `observe` may be called late without a number.
METHODS_WITH_NUMBERS: Final = ("event",)


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of a value on a tunable that has another value now.

    Attributes:
        hint: The hint that proposes the value; None in the check of a kept value, which tries the one before it.
        tunable: The tunable.
        old: The value in force.
        new: The value tried.
    """

    hint: Hint | None
    tunable: AnyTunable
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The end of a trial: its verdict, and both measures; None for a measure without figures."""

    verdict: ExperimentVerdict
    step_time_ratio: float | None
    device_time_ratio: float | None


class LaunchMeasurement:
    """Measures the launches of a trial one after another: step time at boundaries, device time when it is reported.

    A launch is a step, or several where the values change at epochs only. Its number is passed to the recorder as the
    configuration in force, by which a duration that is known later finds its launch.

    Args:
        recorder: Measures the kernels.
        kernels: Signatures of the kernels that count; empty for all.
        clock: Nanoseconds.
    """

    def __init__(self, recorder: Recorder, kernels: Iterable[str], clock: Callable[[], int] | None = None) -> None:
        self._recorder = recorder
        self._clock = clock or perf_counter_ns
        self._base = recorder.configuration + 1
        self._times = StepTimes(kernels)
        self._seconds = self._items = 0.0
        self._number = -1
        self._counts = self._launch_counts()
        recorder.step_times = self._times
        self._began_ns = self._clock()

    def begin(self, number: int, arm: str) -> None:
        """Begin a launch; numbers rise."""
        self._number = self._base + number
        self._times.begin(self._number, arm)
        self._recorder.configuration = self._number
        self._seconds = self._items = 0.0
        self._began_ns = self._clock()

    def step_ended(self, items: float) -> None:
        """Add the step that has just ended to the present launch."""
        now_ns = self._clock()
        self._seconds += (now_ns - self._began_ns) / 1e9
        self._items += items
        self._began_ns = now_ns

    def end(self) -> tuple[float, float]:
        """End the present launch; returns its seconds and items."""
        counts = self._launch_counts()
        for (device, signature), launches in grown(self._counts, counts).items():
            self._times.launched(device, signature, launches, self._number)
        self._counts = counts
        self._times.end(self._number, self._items)
        return self._seconds, self._items

    def device_times(self) -> list[StepTime]:
        """Return the device times of launches that have become complete, oldest first."""
        return [step._replace(number=step.number - self._base) for step in self._times.pop_complete()]

    def close(self) -> None:
        """Measure no more."""
        self._recorder.step_times = None
        self._recorder.configuration += 1

    def _launch_counts(self) -> Mapping[tuple[int, str], int]:
        count = self._recorder.launch_counts
        return count() if count is not None else {}


def device_time_decides(tunable: AnyTunable, recorder: Recorder) -> bool:
    """Whether a tunable is judged by device time: it names its kernels, and their launches are timed one by one."""
    return bool(tunable.terms.kernels) and method_of(recorder) not in METHODS_WITHOUT_STEPS


def method_of(recorder: Recorder) -> str:
    """Return the method that times the program's launches; empty before one does."""
    return recorder.current.method if recorder.current else ""


class RunningTrial:
    """Runs a trial. The program's thread calls `boundary` at each step boundary; only that changes the value.

    Device time decides where the tunable names its kernels and their launches are timed one by one, else the time
    of the step, both per item. The other measure is reported, and prevents a gain at its cost.

    Args:
        trial: The trial.
        recorder: Measures the kernels.
        rules: Limits of the experiment.
        seed: Seed of the order in which the values run; None draws one.
        clock: Nanoseconds; None reads the process's.
    """

    def __init__(
        self,
        trial: Trial,
        recorder: Recorder,
        rules: Rules,
        seed: int | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.trial = trial
        drawn = Random().randrange(2**32) if seed is None else seed  # noqa: S311  the order is no secret
        self._rules = rules = trial.tunable.terms.rules(rules)
        self.device_time_decides = device_time_decides(trial.tunable, recorder)
        self._experiment = Experiment(
            seed=drawn,
            rules=rules,
            attributed=self.device_time_decides and method_of(recorder) in METHODS_WITH_NUMBERS,
        )
        self._measured = LaunchMeasurement(recorder, trial.tunable.terms.kernels, clock)
        self._waited = 0
        self._waited_since_ns = 0
        self._candidate_steps = 0
        self._paused_since_ns: int | None = None
        self._cost = LaunchCost()
        self.just_survived = False
        """Whether the last step completed the first few of the candidate: it does not end the process."""
        self._launch = self._next()

    def step_ended(self, items: float) -> None:
        """Add the step that has just ended to the present launch, which may last several steps (an epoch)."""
        self._measured.step_ended(items)

    def boundary(self) -> TrialResult | None:
        """Change to the next value of the experiment; returns the result once there is one, and its value is set."""
        if self._paused_since_ns is None:
            self._record()
        self._paused_since_ns = None
        self._end_waiting()
        verdict = self._experiment.verdict()
        if verdict is not None:
            return self._result(self._paid_back(verdict))
        self._launch = self._next()
        return None

    def _paid_back(self, verdict: ExperimentVerdict) -> ExperimentVerdict:
        """Return the verdict with the time in which the value pays back what its first launches took."""
        if verdict.decision is not Decision.KEPT:
            return verdict
        decision, reason = paid_back(verdict, verdict.first_launches, self._cost.usual_seconds, self._rules)
        return replace(verdict, decision=decision, reason=reason)

    def pause(self, reason: str, now_ns: int) -> str:
        """Put the old value in force until the next `boundary`; the step that has just ended is not compared.

        Args:
            reason: Why.
            now_ns: Unix nanoseconds.

        Returns:
            The reason to end the trial if it has been paused for too long; empty otherwise.
        """
        if self._paused_since_ns is None:
            self._paused_since_ns = now_ns
            self._measured.end()
            self._experiment.unrecorded_before(self._launch.number + 1)
            self.trial.tunable.set_for_trial(self.trial.old)
        overdue = now_ns - self._paused_since_ns >= LONGEST_PAUSE_NS
        return f"it was paused for {LONGEST_PAUSE_NS // 10**9} s: {reason}; {LATER}" if overdue else ""

    def interrupt(self) -> None:
        """Count the cost of the launch that something else than the experiment ends; it is not compared."""
        if self._paused_since_ns is None:
            seconds, _ = self._measured.end()
            self._cost.launch(seconds, candidate=self._launch.arm is Arm.CANDIDATE)

    def spend(self, budget: TrialBudget) -> None:
        """Charge the cost of the launch that has ended to a budget."""
        self._cost.book(budget)

    def end(self, decision: Decision, reason: str) -> TrialResult:
        """End the trial now; the old value is in force."""
        if decision is Decision.FAILED:
            self._experiment.failed(reason)
        self._experiment.abandon(reason)
        verdict = self._experiment.verdict()
        return self._result(verdict or ExperimentVerdict(decision, reason))

    def _record(self) -> None:
        self._candidate_steps += self._launch.arm is Arm.CANDIDATE
        self.just_survived = self._launch.arm is Arm.CANDIDATE and self._candidate_steps == SURVIVED_STEPS
        launch = self._launch
        seconds, items = self._measured.end()
        self._cost.launch(seconds, candidate=launch.arm is Arm.CANDIDATE)
        record_wall, record_device = self._experiment.record_second, self._experiment.record
        if not self.device_time_decides:
            record_wall, record_device = record_device, record_wall
        record_wall(launch.arm, seconds, items, launch.number)
        for step in self._measured.device_times():
            record_device(Arm(step.arm), step.seconds, step.items, step.number)

    def _next(self) -> Launch:
        launch = self._experiment.launch()
        self.trial.tunable.set_for_trial(self.trial.new if launch.arm is Arm.CANDIDATE else self.trial.old)
        self._measured.begin(launch.number, launch.arm)
        return launch

    def _end_waiting(self) -> None:
        """Decide without the missing times once they are overdue."""
        if not self._experiment.waiting:
            self._waited = 0
            return
        if not self._waited:
            self._waited_since_ns = perf_counter_ns()
        self._waited += 1
        if self._waited >= PATIENCE_STEPS and perf_counter_ns() - self._waited_since_ns >= PATIENCE_NS:
            self._experiment.end_of_records()

    def _result(self, verdict: ExperimentVerdict) -> TrialResult:
        kept = verdict.decision is Decision.KEPT
        self.trial.tunable.put(self.trial.new if kept else self.trial.old)
        self._measured.close()
        first, second = verdict.ratio, verdict.second_ratio
        if self.device_time_decides:
            first, second = second, first
        return TrialResult(verdict, step_time_ratio=first, device_time_ratio=second)
