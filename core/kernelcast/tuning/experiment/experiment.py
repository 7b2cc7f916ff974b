"""One candidate configuration against the kept one: a race, then counterbalanced blocks, then a verdict.

Example::

    experiment = Experiment(seed=7)
    while (verdict := experiment.verdict()) is None:
        arm = experiment.next_arm()
        seconds = run(candidate if arm is Arm.CANDIDATE else kept)
        experiment.record(arm, seconds)
"""

from kernelcast.tuning.experiment.arms import Arm, Decision, ExperimentVerdict, Rules
from kernelcast.tuning.experiment.comparison import Comparison, ComparisonDecision
from kernelcast.tuning.experiment.percentile import Percentiles
from kernelcast.tuning.experiment.schedule import Launch, LaunchRole, LaunchSchedule


class Experiment:
    """Compares a candidate with the kept configuration.

    `next_arm` returns the arm of the next launch or step; `record` receives its time, at once or late, in order of
    launch.
    The verdict depends on the records alone: late records lead to the same decision later. For one thread; a caller
    with two holds a lock.

    Args:
        seed: Determines the order of the arms.
        rules: The limits; None for the usual ones.
        attributed: Each time given to `record` is known to be that of its launch, for example because the device
            numbers its launches. Otherwise times that follow the arm some launches later prevent a decision.
    """

    def __init__(
        self,
        *,
        seed: int,
        rules: Rules | None = None,
        attributed: bool = False,
    ) -> None:
        self.rules = rules or Rules()
        self._schedule = LaunchSchedule(seed, self.rules)
        self._launches = {Arm.KEPT: 0, Arm.CANDIDATE: 0}
        self._first = Comparison(self.rules, attributed=attributed)
        self._second = Comparison(self.rules, judges=False)
        self._closed = False
        self._verdict: ExperimentVerdict | None = None

    @property
    def waiting(self) -> bool:
        """Whether only records are missing: the kept configuration runs until they come."""
        return self._verdict is None and self._must_wait()

    @property
    def at_block_boundary(self) -> bool:
        """Whether the next launch begins a block, so that a pause before it is no part of a comparison."""
        return self._schedule.at_block_boundary

    def next_arm(self) -> Arm:
        """Return the arm of the next launch or step; after the verdict, the one that it leaves in force."""
        return self.launch().arm

    def launch(self) -> Launch:
        """Plan the next launch or step; `next_arm` with the launch's number, for records that are matched by number."""
        if self._verdict is not None:
            kept = self._verdict.decision is Decision.KEPT
            return Launch(-1, Arm.CANDIDATE if kept else Arm.KEPT, LaunchRole.IDLE, -1)
        self._schedule.settle, self._schedule.wanted = self._first.settle, self._first.wanted
        if self._first.has_raced and self.rules.patience:
            self._schedule.end_race()
        launch = self._schedule.idle() if self._must_wait() else self._schedule.next()
        self.expect(launch)
        if self._schedule.exhausted and not self._closed:
            self._closed = True
            self._first.end_of_blocks()
        return launch

    def expect(self, launch: Launch) -> None:
        """Count a launch and wait for its record; only for those of another `LaunchSchedule` than its own."""
        if self._verdict is None:
            self._launches[launch.arm] += 1
            self._first.expect(launch)
            self._second.expect(launch)

    def record(self, arm: Arm, seconds: float, items: float = 1.0, number: int | None = None) -> None:
        """Add the time of a launch or step.

        Args:
            arm: Its arm.
            seconds: Its time.
            items: Its units of work.
            number: The number of the launch; without it, the oldest launch of that arm without a record. Launches
                with lower numbers that have no record will get none.
        """
        if self._verdict is None:
            self._first.record(arm, seconds, items, number)
            self._conclude()

    def record_second(self, arm: Arm, seconds: float, items: float = 1.0, number: int | None = None) -> None:
        """Add the time of a launch or step by the second measure: reported, and able to prevent that it is kept.

        A verdict uses the records that have come by then. Arguments as of `record`.
        """
        if self._verdict is None:
            self._second.record(arm, seconds, items, number)

    def unrecorded_before(self, number: int) -> None:
        """Wait no more for records of launches with a lower number."""
        if self._verdict is None:
            self._first.skip_before(number)
            self._conclude()

    def failed(self, reason: str) -> None:
        """End the experiment: the candidate failed."""
        self._decide(ComparisonDecision(Decision.FAILED, reason))

    def abandon(self, reason: str) -> None:
        """End the experiment without a decision; the kept configuration stays in force."""
        self._decide(ComparisonDecision(Decision.INCONCLUSIVE, reason))

    def end_of_records(self) -> None:
        """Decide by the records so far, because no further one will come."""
        if self._verdict is None:
            self._first.end_of_records()
            self._conclude()

    def verdict(self) -> ExperimentVerdict | None:
        """Return the verdict; None before it."""
        return self._verdict

    # Between blocks, launches of the kept configuration fill the time until enough records have come.
    def _must_wait(self) -> bool:
        schedule, first = self._schedule, self._first
        if not schedule.at_block_boundary:
            return False
        return bool(first.race_open) or schedule.exhausted or first.pending_new > self.rules.maximum_pending

    def _conclude(self) -> None:
        if self._first.result is not None:
            self._decide(self._first.result)

    def _decide(self, result: ComparisonDecision) -> None:
        if self._verdict is not None:
            return
        measured, interval = self._first.measured(last=result.last)
        self._second.settle = self._first.settle
        second, second_interval = self._second.measured(last=True)
        if result.decision is Decision.KEPT and self._second.proved_slower():
            reason = f"{result.reason}, but the second measure is {second:.3f} times that of the kept configuration"
            result = ComparisonDecision(Decision.ROLLED_BACK, reason)
        self._verdict = ExperimentVerdict(
            result.decision,
            result.reason + _percentile_words(self._first.percentiles()),
            ratio=result.ratio or measured,
            interval=interval,
            second_ratio=second,
            second_interval=second_interval,
            blocks=self._first.blocks,
            kept_launches=self._launches[Arm.KEPT],
            candidate_launches=self._launches[Arm.CANDIDATE],
            settle=self._first.settle,
            is_early=result.is_early,
            first_launches=self._first.first_launches,
        )


def _percentile_words(percentiles: Percentiles) -> str:
    """Return the 99th percentiles that are known, as the end of a reason."""
    new, old, interval = percentiles
    if new is None:
        return "" if old is None else f"; the 99th percentile of the kept one is {old:.3g} s an item"
    if old is None:
        return f"; the 99th percentile is {new:.3g} s an item"
    bounds = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    times = f"{new:.3g} s an item, not {old:.3g} s"
    return f"; the 99th percentile is {new / old:.3f}{bounds} times the kept one: {times}"
