"""A trial of all ranks, as each of them runs it: the planned values one after another, and their times.

`Council` makes a `FollowedTrial` when the first rank's state has a trial, passes it each plan, and reports its times.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

from kernelcast.probe.conditions.pauses import CheckpointWatch
from kernelcast.probe.ranks.messages import MAX_LAUNCHES, Timed, Work
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.trial import SURVIVED_STEPS, LaunchMeasurement
from kernelcast.probe.trial_budget import LaunchCost, TrialBudget
from kernelcast.probe.tunables import AnyTunable

MAX_WAITING: Final = 2 * MAX_LAUNCHES
"""Times of one kind that wait for the next meeting; beyond it the oldest are dropped."""


class FollowedTrial:
    """Runs the plans of a trial. For the program's thread.

    Args:
        work: The trial.
        tunable: Its tunable, if this process has it: its value changes here.
        recorder: Measures the kernels.
        budget: What the trial is charged to.
        clock: Nanoseconds; None reads the process's.

    Attributes:
        trial: Id of the trial.
        tunable: Its tunable.
        value: The value tried.
        is_exploring: Whether it is the part of a search that tries many values, before the proof of the best one.
        survived: Whether the last boundary completed the first few launches of another value than the kept one.
        dropped: Times that were dropped.
    """

    def __init__(
        self,
        work: Work,
        tunable: AnyTunable,
        recorder: Recorder,
        budget: TrialBudget,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.trial = work.trial
        self.value = work.value
        self.is_exploring = work.is_exploring
        self.tunable = tunable
        self.survived = False
        self.dropped = 0
        self._old = tunable.kept
        self._measured = LaunchMeasurement(recorder, tunable.terms.kernels, clock)
        self._planned: deque[str] = deque()
        self._next_number = 0
        self._step = -1
        self._numbers: OrderedDict[int, int] = OrderedDict()
        """Numbers in the plan of launches without a device time, by their number here: unplanned ones have none."""
        self._running = ""
        self._candidate_launches = 0
        self._is_paused = False
        self._checkpoints = CheckpointWatch()
        self._cost = LaunchCost(budget)
        self._launches: deque[Timed] = deque()
        self._device: deque[Timed] = deque()

    def step_ended(self, items: float) -> None:
        """Add the step that has just ended to the present launch."""
        if self._step >= 0:
            self._measured.step_ended(items)

    def end_launch(self) -> None:
        """End the present launch at a boundary at which the value may change."""
        self.survived = False
        if self._step < 0 or self._is_paused:
            return
        seconds, items = self._measured.end()
        if self._checkpoints.in_step() and self.tunable.terms.granularity != "epoch":
            self._numbers.pop(self._step, None)  # it is not compared on any rank
        else:
            number = self._numbers.get(self._step)
            if number is not None:
                self._add(self._launches, (number, seconds, items))
            self._cost.launch(seconds, candidate=self._running != self._old)
        if self._running != self._old:
            self._candidate_launches += 1
            self.survived = self._candidate_launches == SURVIVED_STEPS

    def begin_launch(self) -> None:
        """Begin the next launch of the plan; beyond it the kept value runs, and its times are not reported."""
        self._is_paused = False
        self._step += 1
        if self._planned:
            self._running = self._planned.popleft()
            self._numbers[self._step] = self._next_number
            self._next_number += 1
            if len(self._numbers) > MAX_WAITING:
                self._numbers.popitem(last=False)
        else:
            self._running = self._old
        self.tunable.set_for_trial(self._running)
        self._measured.begin(self._step, self._running)

    def follow(self, work: Work) -> None:
        """Replace the plan by that until the next meeting."""
        self._next_number = work.first
        self._planned.clear()
        for value, count in work.plan:
            self._planned.extend([value if value in self.tunable.allowed else self._old] * min(count, MAX_LAUNCHES))

    def drop_plan(self) -> None:
        """Run the kept value until the next meeting."""
        self._planned.clear()

    def pause(self) -> None:
        """Run the kept value until the next launch; the present one is neither compared nor charged."""
        self._measured.end()
        self._checkpoints.in_step()  # else the next launch would count as the one with the checkpoint
        self._numbers.pop(self._step, None)
        self._is_paused, self.survived = True, False
        self._planned.clear()
        self.tunable.set_for_trial(self._old)

    def times(self) -> tuple[tuple[Timed, ...], tuple[Timed, ...]]:
        """Return the times since the last call: of launches, and of the device."""
        for step in self._measured.device_times():
            number = self._numbers.pop(step.number, None)
            if number is not None:
                self._add(self._device, (number, step.seconds, step.items))
        return tuple(self._pop_times(self._launches)), tuple(self._pop_times(self._device))

    def close(self, value: str) -> None:
        """End the trial: this value is kept."""
        self._measured.close()
        self.tunable.put(value if value in self.tunable.allowed else self._old)

    def _add(self, times: deque[Timed], one: Timed) -> None:
        times.append(one)
        if len(times) > MAX_WAITING:
            times.popleft()
            self.dropped += 1

    @staticmethod
    def _pop_times(times: deque[Timed]) -> Iterable[Timed]:
        for _ in range(min(len(times), MAX_LAUNCHES)):
            yield times.popleft()
