"""The experiment of all ranks: the first rank plans its launches and judges it by the sums over the ranks.

`Leader` has a `PooledTrial` while a trial is open. A launch counts only if each rank has reported its time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from time import perf_counter_ns
from typing import Final

from kernelcast.probe.ranks.messages import MAX_LAUNCHES, Ended, Report, Timed, Work
from kernelcast.probe.trial import PATIENCE_NS
from kernelcast.tuning.experiment import Arm, Decision, Experiment, Rules

# Limit of the launches of a plan; leaves room in a report for late times.
PLANNED: Final = MAX_LAUNCHES - 128


class PooledTimes:
    """Sums the times of a launch over the ranks, and records those that all ranks have.

    Args:
        record: Takes arm, seconds, items and number of a launch.
    """

    def __init__(self, record: Callable[[Arm, float, float, int], None]) -> None:
        self._record = record
        self._times: dict[int, dict[int, tuple[float, float]]] = {}
        self._newest: dict[int, int] = {}

    def add(self, rank: int, times: Sequence[Timed]) -> None:
        """Add a rank's times, which come in the order of their numbers."""
        for number, seconds, items in times:
            self._times.setdefault(number, {})[rank] = (seconds, items)
            self._newest[rank] = max(number, self._newest.get(rank, -1))

    @property
    def ranks(self) -> int:
        """Number of ranks that have reported a time."""
        return len(self._newest)

    @property
    def complete_before(self) -> int:
        """The lowest number of which a rank that has times may still report one."""
        return min(self._newest.values(), default=-1) + 1

    def record_before(self, number: int, arms: Mapping[int, Arm], ranks: int) -> None:
        """Record the launches before a number; those of which fewer ranks have a time are left out."""
        for one in sorted(known for known in self._times if known < number):
            by_rank = self._times.pop(one)
            if one in arms and len(by_rank) == ranks:
                seconds, items = (sum(values) for values in zip(*by_rank.values(), strict=True))
                self._record(arms[one], seconds, items, one)


class PooledTrial:
    """One trial of all ranks, on the first rank.

    Args:
        work: The trial; its plan is not used.
        rules: Limits of the experiment.
        seed: Of the order in which the values run; None draws one.
        by_device_time: Whether device time decides, else the time of a launch; the other one can prevent a gain.
    """

    def __init__(self, work: Work, rules: Rules, *, seed: int | None = None, by_device_time: bool = False) -> None:
        self.work = work
        self._by_device_time = by_device_time
        drawn = Random().randrange(2**32) if seed is None else seed  # noqa: S311  the order is no secret
        self._experiment = Experiment(
            seed=drawn, minimum_gain=rules.minimum_gain, maximum_new=rules.maximum_new, rules=rules
        )
        first, second = self._experiment.record, self._experiment.record_second
        wall, device = (second, first) if by_device_time else (first, second)
        self._wall, self._device = PooledTimes(wall), PooledTimes(device)
        self._arms: dict[int, Arm] = {}
        self._next_number = 0
        self._planned = 0
        """Number of the first launch after the next meeting; all before it have run by then."""
        self._waits_since_ns = 0

    @property
    def is_planned(self) -> bool:
        """Whether a plan has been made, so that ranks may know of the trial."""
        return self._next_number > 0

    def plan(self, boundaries: int) -> Work:
        """Plan the launches until the next meeting."""
        plan: list[str] = []
        self._planned = self._next_number
        experiment = self._experiment
        while len(plan) < min(boundaries, PLANNED) and experiment.verdict() is None and not experiment.waiting:
            launch = experiment.launch()
            self._arms[launch.number] = launch.arm
            self._next_number = launch.number + 1
            plan.append(self.work.value if launch.arm is Arm.CANDIDATE else self.work.old)
        return replace(self.work, first=self._planned, plan=runs_of(plan))

    def pool(self, reports: Sequence[Report | None]) -> None:
        """Add the reports of a meeting, in the order of the ranks; None of a rank whose message is missing."""
        planned = self._planned
        for rank, report in enumerate(reports):
            if report is not None and report.trial == self.work.trial:
                self._wall.add(rank, report.launches)
                self._device.add(rank, report.device)
        self._device.record_before(self._device.complete_before, self._arms, self._device.ranks)
        self._wall.record_before(planned, self._arms, len(reports))
        if not self._by_device_time:
            self._experiment.unrecorded_before(planned)
        self._end_waiting()

    def ended(self) -> Ended | None:
        """Return the end; None before it."""
        verdict = self._experiment.verdict()
        if verdict is None:
            return None
        wall, device = verdict.ratio, verdict.second_ratio
        if self._by_device_time:
            wall, device = device, wall
        return Ended(
            self.work.trial,
            self.work.tunable,
            self.work.value,
            verdict.decision.value,
            verdict.reason,
            verdict.ratio,
            verdict.interval,
            wall,
            device,
            verdict.blocks,
            verdict.candidate_launches,
        )

    def abandon(self, reason: str) -> Ended:
        """End without a decision, because of something that says nothing about the value."""
        self._experiment.abandon(reason)
        ended = self.ended() or Ended(
            self.work.trial, self.work.tunable, self.work.value, Decision.INCONCLUSIVE.value, reason
        )
        return replace(ended, outside=True)

    def _end_waiting(self) -> None:
        """Decide without the missing times once they are overdue."""
        if not self._experiment.waiting:
            self._waits_since_ns = 0
        elif not self._waits_since_ns:
            self._waits_since_ns = perf_counter_ns()
        elif perf_counter_ns() - self._waits_since_ns >= PATIENCE_NS:
            self._experiment.end_of_records()


def runs_of(values: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return equal values in a row as one value with its number."""
    runs: list[tuple[str, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return tuple(runs)
