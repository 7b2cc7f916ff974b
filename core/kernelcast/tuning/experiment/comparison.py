"""Compares the two arms by one measure: matches records with launches, completes blocks, and judges them.

`Experiment` has one for each measure. In: planned launches (`expect`) and their times (`record`), in order of launch.
Out: `result`. An *analysis* tests all complete blocks; it is an interim analysis until the last one.
"""

from collections import OrderedDict
from math import inf, isfinite, log
from statistics import median
from typing import Final, NamedTuple

from kernelcast.tuning.experiment.arms import Arm, Decision, Rules
from kernelcast.tuning.experiment.blocks import Block, Difference, ItemSlope, LaunchRecord, contrasts
from kernelcast.tuning.experiment.evidence import SequentialTest, estimate, ratio
from kernelcast.tuning.experiment.lag import Lag
from kernelcast.tuning.experiment.noise import Noise
from kernelcast.tuning.experiment.schedule import Launch, LaunchRole

HARM_BLOCKS: Final = 3
"""Blocks from which on a candidate that is clearly slower is dropped."""
BASELINE_RECORDS: Final = 2
"""Times of the kept configuration that the race needs."""
MAX_UNRECORDED: Final = 4096
"""Launches that wait for their times; of more, the oldest counts as never timed."""
ANALYSE_EVERY: Final = 2
"""Blocks between two interim analyses, which take processor time in the program."""


class ComparisonDecision(NamedTuple):
    """A decision with its reason; `last`: the last analysis made it."""

    decision: Decision
    reason: str
    ratio: float | None = None
    last: bool = False


class Comparison:
    """Collects the records of one measure. For one thread.

    Args:
        rules: The limits.
        attributed: Each time is known to be that of its launch, so that no lag is searched for.

    Attributes:
        result: The decision; None before it.
        pending_new: Number of launches of the candidate without a record yet.
        race_open: Number of launches of the race without a record yet.
    """

    def __init__(self, rules: Rules, *, attributed: bool = False) -> None:
        self.result: ComparisonDecision | None = None
        self.pending_new = self.race_open = 0
        self._rules = rules
        self._test = SequentialTest(rules.level)
        self._log_minimum_gain = log(1 - rules.minimum_gain)
        self._waiting: OrderedDict[int, Launch] = OrderedDict()
        self._baseline: list[float] = []
        self._race: list[float] = []
        self._blocks: dict[int, Block] = {}
        self._differences: list[list[Difference]] = []
        self._slope = ItemSlope()
        self._lag = Lag()
        self._noise = Noise()
        self._attributed = attributed
        self._no_more_blocks = False

    @property
    def blocks(self) -> int:
        """Blocks with a record of each arm."""
        return len(self._differences)

    def expect(self, launch: Launch) -> None:
        """Wait for the record of a launch."""
        self._waiting[launch.number] = launch
        self._lag.launched(launch.number, new=launch.arm is Arm.CANDIDATE)
        self.pending_new += launch.arm is Arm.CANDIDATE
        self.race_open += launch.role is LaunchRole.RACE
        if len(self._waiting) > MAX_UNRECORDED:
            self._skip(next(iter(self._waiting)))

    def record(self, arm: Arm, seconds: float, items: float, number: int | None) -> None:
        """Add the time of a launch; launches before it that have no record will get none."""
        launch = self._match(arm, number)
        if launch is None:
            return
        if seconds > 0 and items > 0 and isfinite(seconds) and isfinite(items):
            self._add_time(launch, log(seconds) - log(items), log(items))  # their quotient may be 0 or infinite
        self._close(launch)

    def skip_before(self, number: int) -> None:
        """Wait no more for launches with a lower number."""
        while self._waiting and (oldest := next(iter(self._waiting))) < number:
            self._skip(oldest)

    def end_of_blocks(self) -> None:
        """Make the last analysis as soon as all blocks are complete: no further block will begin."""
        self._no_more_blocks = True
        if self._complete():
            self._analyse()

    def end_of_records(self) -> None:
        """Make the last analysis now: no further record will come."""
        self._no_more_blocks = True
        while self._waiting:
            self._skip(next(iter(self._waiting)))
        self._blocks.clear()  # launches of the last block that were not planned yet would keep it open
        self._analyse()

    def measured(self, *, last: bool) -> tuple[float | None, tuple[float, float] | None]:
        """Return the ratio and its interval; None where there is none."""
        if not self._differences:
            return None, None
        values = self._values()
        low, high = self._test.bounds(values, last=last)
        interval = (ratio(low), ratio(high)) if high < inf and low > -inf else None
        return ratio(estimate(values)), interval

    def proved_slower(self) -> bool:
        """Whether the candidate is proved slower, by an estimate of at least the smallest gain worth keeping."""
        if not self._differences:
            return False
        values = self._values()
        return self._test.above(values, 0.0, last=False) and estimate(values) >= -self._log_minimum_gain

    def _values(self) -> list[tuple[float, ...]]:
        return contrasts(self._differences, self._slope.value())

    def _match(self, arm: Arm, number: int | None) -> Launch | None:
        if number is None:
            number = next((launch.number for launch in self._waiting.values() if launch.arm is arm), -1)
        if number not in self._waiting or self._waiting[number].arm is not arm:
            return None
        self.skip_before(number)
        return self._forget(number)

    def _forget(self, number: int) -> Launch:
        launch = self._waiting.pop(number)
        self.pending_new -= launch.arm is Arm.CANDIDATE
        self.race_open -= launch.role is LaunchRole.RACE
        return launch

    def _skip(self, number: int) -> None:
        self._close(self._forget(number))

    def _add_time(self, launch: Launch, log_time: float, log_items: float) -> None:
        self._lag.timed(launch.number, log_time)
        if launch.role is not LaunchRole.DISCARDED and launch.arm is Arm.KEPT:
            self._noise.add(launch.number, log_time)
        if launch.role is not LaunchRole.DISCARDED:
            self._slope.add(launch.number, launch.arm, log_time, log_items)
        if launch.role is LaunchRole.COMPARED:
            self._block(launch).halves[launch.slot // 2].append(LaunchRecord(launch.arm, log_time, log_items))
        elif launch.role is LaunchRole.RACE:
            self._race.append(log_time)
            self._judge_race()
        elif launch.role is LaunchRole.IDLE and not self._race:
            self._baseline.append(log_time)

    def _block(self, launch: Launch) -> Block:
        return self._blocks.setdefault(launch.block, Block(self._rules.block_launches))

    # Drop a candidate whose last two launches were both much slower than the baseline.
    def _judge_race(self) -> None:
        if len(self._race) < 2 or len(self._baseline) < BASELINE_RECORDS:
            return
        slower = min(self._race[-2:]) - median(self._baseline)
        allowed = max(log(self._rules.race_ratio), self._noise.race_limit())
        if slower > allowed:
            limit = f"the limit is {ratio(allowed):.3g}"
            reason = f"two launches in a row took at least {ratio(slower):.2f} times the kept time; {limit}"
            self._conclude(ComparisonDecision(Decision.ROLLED_BACK, reason, ratio(slower)))

    # A launch has its record, or will get none. The last one of a block completes the block.
    def _close(self, launch: Launch) -> None:
        if launch.role is not LaunchRole.COMPARED:
            return
        block = self._block(launch)
        block.open -= 1
        if block.open:
            return
        del self._blocks[launch.block]
        if differences := block.differences():
            self._differences.append(differences)
        self._analyse()

    # Whether the present analysis is the last one: no block is open, and none will begin.
    def _complete(self) -> bool:
        if not self._no_more_blocks or self._blocks:
            return False
        return not any(one.role is LaunchRole.COMPARED for one in self._waiting.values())

    def _analyse(self) -> None:
        last = self._complete()
        count = len(self._differences)
        if self.result is not None:
            return
        if not count:
            if last:
                self._conclude(
                    ComparisonDecision(Decision.INCONCLUSIVE, "no block has a timed launch of both configurations")
                )
            return
        values = self._values()
        if count >= HARM_BLOCKS and not last:
            middle = median([value for block in values for value in block])
            if middle > max(log(self._rules.harmful_ratio), self._noise.harm_limit(self._rules, count)):
                reason = f"the median of {count} blocks is {ratio(middle):.3f} times the kept time"
                self._conclude(ComparisonDecision(Decision.ROLLED_BACK, reason, ratio(middle)))
                return
        if last or (count >= self._rules.minimum_blocks and count % ANALYSE_EVERY == 0):
            self._judge(values, last=last)

    # Kept: proved faster by the smallest gain; or, at the end, proved faster at all with an estimate of that gain.
    # Rolled back: that gain is excluded.
    def _judge(self, values: list[tuple[float, ...]], *, last: bool) -> None:
        gain = f"{self._rules.minimum_gain:.1%}"
        if self._test.below(values, self._log_minimum_gain, last=last):
            self._conclude(ComparisonDecision(Decision.KEPT, f"at least {gain} faster is proved", last=last))
        elif self._test.above(values, self._log_minimum_gain, last=last):
            self._conclude(ComparisonDecision(Decision.ROLLED_BACK, f"a gain of {gain} is excluded", last=last))
        elif last and self._test.below(values, 0.0, last=True) and estimate(values) <= self._log_minimum_gain:
            self._conclude(
                ComparisonDecision(Decision.KEPT, f"proved faster, and the estimate reaches {gain}", last=True)
            )
        elif last:
            reason = f"neither a gain of {gain} nor its absence was proved"
            self._conclude(ComparisonDecision(Decision.INCONCLUSIVE, reason, last=True))

    def _conclude(self, result: ComparisonDecision) -> None:
        if self.result is not None:
            return
        guarded = not self._attributed and result.decision is not Decision.INCONCLUSIVE
        if guarded and self.blocks >= HARM_BLOCKS and (lag := self._lag.value()):
            reason = f"times follow the configuration {lag} launches later; wait for the device in each step"
            result = ComparisonDecision(Decision.INCONCLUSIVE, reason, last=result.last)
        self.result = result
