"""The experiment of all ranks: the first rank plans its launches, and compares their times, summed over the ranks.

`Leader` has a `PooledTrial` while a trial is open, and calls it at each *meeting*, the exchange of a message of each
rank (`council.py`), on the program's thread. A launch counts only if all ranks of the job have reported its time.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import median
from time import perf_counter_ns
from typing import Final

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.ranks.messages import MAX_LAUNCHES, Ended, Report, Timed, Work
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.trial import METHODS_WITH_NUMBERS, device_time_decides, method_of
from kernelcast.probe.trial_budget import USUAL_LAUNCHES
from kernelcast.probe.tunables import AnyTunable
from kernelcast.tuning.experiment import Arm, Decision, Experiment, ExperimentVerdict, Rules
from kernelcast.tuning.payback import paid_back

PATIENCE_NS: Final = 30_000_000_000
"""Reports come at most 10 s apart; a trial that waits this long for the times of its launches ends without them."""
# Limit of the launches of a plan; leaves room in a report for late times.
MAX_PLANNED: Final = MAX_LAUNCHES - 128
# Meetings at which times must be missing before they are overdue: a launch of a minute is reported two meetings later.
PATIENCE_MEETINGS: Final = 8

# Example: at meeting 5 `plan` returns launches 40 to 47. The ranks run them, and report them at meeting 6. There `plan`
# returns launches 48 to 55 first; then `pool` gets the reports. Device times may come at a later meeting.


class PooledTimes:
    """Sums the times of a launch over the ranks, and records those that all ranks have. For the program's thread.

    Times are held until all ranks have reported a later launch, at most all times of a trial.

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

    def silent(self, ranks: int) -> list[int]:
        """Return the ranks of the job that have reported no time."""
        return [rank for rank in range(ranks) if rank not in self._newest]

    def reported_before(self, ranks: int) -> int:
        """Return the number below which no rank of the job will report another time."""
        # Example: the last times are those of launch 7 from rank 0 and of launch 5 from rank 1: 6. Without rank 1's: 0.
        return min(self._newest.get(rank, -1) for rank in range(ranks)) + 1

    def record_before(self, number: int, arms: Mapping[int, Arm], ranks: int) -> None:
        """Record the launches before a number; those of which fewer ranks have a time are left out."""
        for launch in sorted(launch for launch in self._times if launch < number):
            by_rank = self._times.pop(launch)
            if launch in arms and len(by_rank) == ranks:
                seconds, items = (sum(values) for values in zip(*by_rank.values(), strict=True))
                self._record(arms[launch], seconds, items, launch)


class PooledTrial:
    """A trial of all ranks, on the first rank. For the program's thread.

    Args:
        work: Id, tunable and values of the trial.
        rules: Limits of the experiment.
        seed: Seed of the order in which the values run; None draws one.
        by_device_time: Compare device time, else the time of a launch. The other one is reported; if it proves the
            value slower, the value is rolled back.
        clock: Nanoseconds.
        attributed: As of `Experiment`.
    """

    def __init__(
        self,
        work: Work,
        rules: Rules,
        *,
        seed: int | None = None,
        by_device_time: bool = False,
        clock: Callable[[], int] = perf_counter_ns,
        attributed: bool = False,
    ) -> None:
        self.work = work
        self._rules = rules
        self._by_device_time = by_device_time
        self._clock = clock
        order_seed = Random().randrange(2**32) if seed is None else seed  # noqa: S311  the order is no secret
        self._experiment = experiment = Experiment(seed=order_seed, rules=rules, attributed=attributed)
        self._record_wall, record_device = experiment.record, experiment.record_second
        if by_device_time:
            self._record_wall, record_device = record_device, self._record_wall
        self._wall, self._device = PooledTimes(self._record_launch), PooledTimes(record_device)
        self._ranks = 1
        self._usual_seconds: deque[float] = deque(maxlen=USUAL_LAUNCHES)
        self._arms: dict[int, Arm] = {}
        self._next_number = 0
        # First launch of the last plan. When `pool` is called, all launches before it have run.
        self._plan_begins = 0
        self._waits_since_ns: int | None = None
        self._waiting_meetings = 0

    @classmethod
    def of(
        cls, work: Work, tunable: AnyTunable, recorder: Recorder, context: HintContext, *, is_proof: bool = False
    ) -> "PooledTrial":
        """Return the trial of a tunable's value.

        It compares device time if the tunable names its kernels and their launches are timed one by one.

        Args:
            work: Id, tunable and values of the trial.
            tunable: The tunable.
            recorder: Measures the kernels.
            context: Rules, seed and clock.
            is_proof: Whether it proves the result of a search, which has compared the wall times of launches.
        """
        by_device_time = not is_proof and device_time_decides(tunable, recorder)
        return cls(
            work,
            tunable.terms.rules(context.rules),
            seed=context.seed,
            by_device_time=by_device_time,
            clock=context.step_clock or perf_counter_ns,
            attributed=by_device_time and method_of(recorder) in METHODS_WITH_NUMBERS,
        )

    @property
    def is_planned(self) -> bool:
        """Whether a plan has been made, so that ranks may know of the trial."""
        return self._next_number > 0

    def plan(self, boundaries: int) -> Work:
        """Plan the launches until the next meeting, at most one for each boundary."""
        plan: list[str] = []
        self._plan_begins = self._next_number
        experiment = self._experiment
        while len(plan) < min(boundaries, MAX_PLANNED) and experiment.verdict() is None and not experiment.waiting:
            launch = experiment.launch()
            self._arms[launch.number] = launch.arm
            self._next_number = launch.number + 1
            plan.append(self.work.value if launch.arm is Arm.CANDIDATE else self.work.old)
        return replace(self.work, first=self._plan_begins, plan=run_lengths(plan))

    def pool(self, reports: Sequence[Report | None], *, has_run: bool = False) -> None:
        """Add the reports of a meeting.

        Args:
            reports: One of each rank of the job, in order; None if its message is missing.
            has_run: Whether the last plan has run, too, as in a process without other ranks.
        """
        self._ranks = ranks = len(reports)
        next_to_run = self._next_number if has_run else self._plan_begins
        for rank, report in enumerate(reports):
            if report is not None and report.trial == self.work.trial:
                self._wall.add(rank, report.launches)
                self._device.add(rank, report.device)
        self._device.record_before(self._device.reported_before(ranks), self._arms, ranks)
        self._wall.record_before(next_to_run, self._arms, ranks)
        if not self._by_device_time:
            self._experiment.unrecorded_before(next_to_run)
        self._end_waiting(ranks)

    def skip(self) -> None:
        """Compare no launch that was planned so far and has no time yet."""
        self._experiment.unrecorded_before(self._next_number)

    def ended(self) -> Ended | None:
        """Return the end with its verdict; None while the trial is open."""
        verdict = self._experiment.verdict()
        return self._ended(verdict) if verdict is not None else None

    def abandon(self, reason: str) -> Ended:
        """End without a decision, because of an order or an error; a trial with a verdict ends with that."""
        outside = self._experiment.verdict() is None
        self._experiment.abandon(reason)
        verdict = self._experiment.verdict() or ExperimentVerdict(Decision.INCONCLUSIVE, reason)
        return replace(self._ended(verdict), outside=outside)

    def _record_launch(self, arm: Arm, seconds: float, items: float, number: int) -> None:
        if arm is Arm.KEPT:
            self._usual_seconds.append(seconds / self._ranks)
        self._record_wall(arm, seconds, items, number)

    def _ended(self, verdict: ExperimentVerdict) -> Ended:
        usual_seconds = median(self._usual_seconds) if self._usual_seconds else 0.0
        decision, reason = paid_back(verdict, verdict.first_launches, usual_seconds, self._rules)
        wall, device = verdict.ratio, verdict.second_ratio
        if self._by_device_time:
            wall, device = device, wall
        return Ended(
            self.work.trial,
            self.work.tunable,
            self.work.value,
            decision.value,
            reason,
            verdict.ratio,
            verdict.interval,
            wall,
            device,
            verdict.blocks,
            verdict.candidate_launches,
        )

    def _end_waiting(self, ranks: int) -> None:
        """Decide without the missing times once they have been missing for 30 s and 8 meetings."""
        if not self._experiment.waiting:
            self._waits_since_ns, self._waiting_meetings = None, 0
            return
        if self._waits_since_ns is None:
            self._waits_since_ns = self._clock()
        self._waiting_meetings += 1
        if self._waiting_meetings > PATIENCE_MEETINGS and self._clock() - self._waits_since_ns >= PATIENCE_NS:
            silent = self._device.silent(ranks) if self._by_device_time and ranks > 1 else []
            if silent:
                self._experiment.abandon(
                    f"rank {silent[0]} has reported no device time; name kernels that all ranks run"
                )
            self._experiment.end_of_records()


def run_lengths(values: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return the run-length encoding of values: `a a b` becomes `(a, 2), (b, 1)`."""
    runs: list[tuple[str, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return tuple(runs)
