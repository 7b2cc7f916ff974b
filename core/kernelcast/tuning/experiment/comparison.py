"""Compares the two arms by one measure: matches records with launches, completes blocks, and judges them.

`Experiment` has one for each measure. In: planned launches (`expect`) and their times (`record`), in order of launch.
Out: `result`. An *analysis* tests all complete blocks; it is an interim analysis until the last one.
"""

from collections import OrderedDict
from enum import Enum
from math import ceil, exp, inf, isfinite, log
from statistics import median
from typing import Final, NamedTuple

from kernelcast.tuning.experiment.arms import Arm, Decision, Objective, Rules
from kernelcast.tuning.experiment.blocks import ItemSlope, LaunchRecord, Look, OpenBlock, evidence, look
from kernelcast.tuning.experiment.evidence import Evidence
from kernelcast.tuning.experiment.lag import Lag
from kernelcast.tuning.experiment.noise import Noise
from kernelcast.tuning.experiment.percentile import PercentileEvidence, Percentiles, percentile
from kernelcast.tuning.experiment.schedule import RACE_LAUNCHES, BlockKind, Launch, LaunchRole
from kernelcast.tuning.experiment.settling import Stay, settled_after

HARM_BLOCKS: Final = 3
"""Blocks from which on a candidate that is clearly slower is dropped."""
HARM_LAST: Final = 12
"""Blocks up to which this is looked for; later the judgement itself says it."""
BASELINE_RECORDS: Final = 2
"""Times of the kept configuration that the race needs."""
MAX_UNRECORDED: Final = 4096
"""Launches that wait for their times; of more, the oldest counts as never timed."""
LONGEST_SETTLING: Final = 33
"""Launches after a change that are left out at most."""
LOOK_ERRORS: Final = 1.5
"""Standard errors by which long slots must say that a candidate is faster, or that it gains what is looked for."""
MANY_PAIRS: Final = 8
"""Pairs of long slots from which on their median can confirm the ratio, and their signs can contradict it."""
MOST_PAIRS: Final = 24
"""Pairs from which on their median alone contradicts the ratio."""
ANALYSE_EVERY: Final = 1.2
"""Growth of the compared launches between two interim analyses, which take processor time in the program."""
FEW_BLOCKS: Final = 18
"""Blocks up to which each is analysed: that is quick, and a large gain needs no more."""


class ComparisonDecision(NamedTuple):
    """A decision with its reason; `last`: the last analysis made it; `is_early`: it had not time to settle."""

    decision: Decision
    reason: str
    ratio: float | None = None
    last: bool = False
    is_early: bool = False


class Comparison:
    """Collects the records of one measure. For one thread.

    Args:
        rules: The limits.
        attributed: Each time is known to be that of its launch, so that no lag is searched for.
        judges: Whether it decides; otherwise it only answers.

    Attributes:
        result: The decision; None before it.
        pending_new: Number of launches of the candidate without a record yet.
        race_open: Number of launches of the race without a record yet.
    """

    def __init__(self, rules: Rules, *, attributed: bool = False, judges: bool = True) -> None:
        self.result: ComparisonDecision | None = None
        self.pending_new = self.race_open = 0
        self.settle = self._least_settle = rules.settle
        """Launches after a change of configuration that are not compared."""
        self.has_raced = False
        """Whether the race has ended, because the candidate is not much slower."""
        self._rules = rules
        self._waiting: OrderedDict[int, Launch] = OrderedDict()
        self._baseline: list[float] = []
        self._race: list[float] = []
        self._open: dict[int, OpenBlock] = {}
        self._blocks: list[OpenBlock] = []
        self._stays: list[Stay] = []
        self._settled: dict[Arm, list[float]] = {arm: [] for arm in Arm}
        """Log times of the launches that have settled."""
        self._slope = ItemSlope()
        self._lag = Lag()
        self._noise = Noise()
        self._attributed = attributed
        self._judges = judges
        self.wanted = BlockKind.COUNTERBALANCED
        """Kind of the next block that would help most."""
        self._no_more_blocks = False
        self._analysed_launches = 0

    @property
    def blocks(self) -> int:
        """Blocks that are compared."""
        found = self._evidence()
        return found.blocks if found is not None else 0

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
            log_time = log(seconds) - log(items)  # their quotient may be 0 or infinite
            self._add_time(launch, log_time, log(items))
            self._close(launch, log_time)
        else:
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
        self._open.clear()  # launches of the last block that were not planned yet would keep it open
        self._analyse()

    def measured(self, *, last: bool) -> tuple[float | None, tuple[float, float] | None]:
        """Return the ratio and its interval; None where there is none."""
        found = self._evidence()
        return (found.estimate, found.bounds(last=last)) if found is not None else (None, None)

    def percentiles(self) -> Percentiles:
        """Return the 99th percentiles of both arms; if they are not the objective, those of all settled launches."""
        if self._rules.objective is Objective.P99:
            return PercentileEvidence(self._blocks, self.settle, self._rules.level).measured()
        return Percentiles(percentile(self._settled[Arm.CANDIDATE]), percentile(self._settled[Arm.KEPT]))

    @property
    def first_launches(self) -> tuple[float, ...]:
        """Times of the candidate's first launches, in usual ones of the kept configuration."""
        if len(self._baseline) < BASELINE_RECORDS:
            return ()
        usual = median(self._baseline)
        return tuple(_ratio(log_time - usual) for log_time in self._race)

    def proved_slower(self) -> bool:
        """Whether the candidate is proved slower, by an estimate of at least the smallest gain worth keeping."""
        found = self._evidence()
        if found is None:
            return False
        return found.is_above(1.0, last=False) and found.estimate >= 1 / (1 - self._rules.minimum_gain)

    def _evidence(self) -> Evidence | None:
        return evidence(self._blocks, self._slope.value(), self.settle, self._rules)

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
        is_settled = launch.position >= self.settle
        if is_settled and launch.arm is Arm.KEPT:
            self._noise.add(launch.number, log_time)
        if is_settled:
            self._settled[launch.arm].append(log_time)
            self._slope.add(launch.number, launch.arm, log_time, log_items)
        if launch.role is LaunchRole.COMPARED:
            record = LaunchRecord(launch.arm, launch.position, log_time, log_items)
            self._block(launch).halves[launch.slot // 2].append(record)
        elif launch.role is LaunchRole.RACE:
            self._race.append(log_time)
            self._judge_race()
        elif not self._race:
            self._baseline.append(log_time)

    def _block(self, launch: Launch) -> OpenBlock:
        return self._open.setdefault(launch.block, OpenBlock(launch.block_launches, launch.kind))

    # Drop a candidate whose last two launches were both much slower than the baseline, and than its second longest
    # launch, once its patience is over.
    def _judge_race(self) -> None:
        settled = self._race[max(0, self._rules.settle - 1) :]
        if len(settled) < 2 or len(self._baseline) < BASELINE_RECORDS:
            return
        usual = median(self._baseline)
        slower = min(settled[-2:]) - usual
        # Of a kept value that takes twice its time in one launch of five, two long launches in a row say nothing.
        long_usual = sorted(self._baseline)[-2] - usual
        allowed = max(log(self._rules.race_ratio), self._noise.race_limit(), long_usual)
        if slower <= allowed:
            self.has_raced = True
        elif len(settled) >= 2 + self._rules.patience:
            limit = f"the limit is {exp(allowed):.3g}"
            after = f" after {len(self._race)}" if len(self._race) > RACE_LAUNCHES else ""
            reason = f"two launches in a row took at least {_ratio(slower):.2f} times the kept time{after}; {limit}"
            self._conclude(ComparisonDecision(Decision.ROLLED_BACK, reason, _ratio(slower), is_early=True))

    # A launch has its record, or will get none. The last one of a block completes the block.
    def _close(self, launch: Launch, log_time: float | None = None) -> None:
        if not launch.position or not self._stays:
            self._stays.append(Stay(launch.arm, []))
        if launch.role is not LaunchRole.RACE:
            self._stays[-1].times.append(log_time)
        if launch.role is not LaunchRole.COMPARED:
            return
        block = self._block(launch)
        block.open -= 1
        if block.open:
            return
        self._blocks.append(self._open.pop(launch.block))
        self._analyse()

    # Whether the present analysis is the last one: no block is open, and none will begin.
    def _complete(self) -> bool:
        if not self._no_more_blocks or self._open:
            return False
        return not any(one.role is LaunchRole.COMPARED for one in self._waiting.values())

    def _analyse(self) -> None:
        last = self._complete()
        if self.result is not None or not self._judges:
            return
        is_harm_possible = len(self._blocks) <= HARM_LAST and not last
        launches = sum(len(half) for block in self._blocks for half in block.halves)
        is_look = bool(self._blocks) and self._blocks[-1].kind is not BlockKind.COUNTERBALANCED
        is_due = len(self._blocks) <= FEW_BLOCKS or launches >= ANALYSE_EVERY * self._analysed_launches
        if not (last or is_look or is_due):
            return
        self._analysed_launches = launches
        self.settle = settled_after(self._stays, self._noise.deviation, self._least_settle)
        found = self._evidence()
        if found is None:
            if last:
                self._conclude(ComparisonDecision(Decision.INCONCLUSIVE, self._nothing_compared()))
            return
        if is_harm_possible and self._is_harmful(found):
            return
        looks = sum(block.kind is BlockKind.LOOK for block in self._blocks)
        if not last and (found.blocks < self._rules.minimum_blocks or looks < self._rules.look_blocks):
            return
        if self._rules.objective is Objective.P99:
            self._judge_percentile(PercentileEvidence(self._blocks, self.settle, self._rules.level), last=last)
        else:
            self._judge(found, last=last)

    def _nothing_compared(self) -> str:
        if not self._blocks:
            return "no block has a timed launch of both configurations"
        return f"times had not settled {self.settle} launches after a change of configuration"

    def _is_harmful(self, found: Evidence) -> bool:
        least = 1 if self._rules.patience else HARM_BLOCKS
        if found.blocks < least:
            return False
        middle = found.quartile
        if log(middle) <= max(log(self._rules.harmful_ratio), self._noise.harm_limit(self._rules, found.blocks)):
            return False
        reason = f"three quarters of {found.blocks} blocks took at least {middle:.3f} times the kept time"
        self._conclude(ComparisonDecision(Decision.ROLLED_BACK, reason, middle, is_early=True))
        return True

    # Kept: proved faster, and the estimate reaches the smallest gain. Rolled back: that gain is excluded. Long slots
    # must say the same. Where they say the contrary, a configuration shows later what it costs: slots become longer,
    # and it goes on. Where they say neither, there are more of them.
    def _judge(self, found: Evidence, *, last: bool) -> None:
        least = 1 - self._rules.minimum_gain
        gain = f"{self._rules.minimum_gain:.1%}"
        long = look(self._blocks, self._noise.deviation)
        is_faster = found.estimate <= least and found.is_below(1.0, last=last)
        is_useless = not is_faster and found.is_above(least, last=last)
        is_body_faster = found.estimate <= least and found.is_body_below
        says = _compare_look(long, found.estimate, self._rules.minimum_gain, is_faster=is_body_faster)
        is_decided = is_faster or is_useless
        self.wanted = BlockKind.COUNTERBALANCED
        if says is LookSays.NEITHER and (is_body_faster or is_useless):
            self.wanted = BlockKind.LOOK
        elif long and is_body_faster and found.needs_stays:
            self.wanted = BlockKind.STAY
        if not last and is_decided and says is LookSays.CONTRARY:
            self._least_settle = self.settle = min(4 * self.settle + 1, LONGEST_SETTLING)
        elif not last and is_decided and says is LookSays.NEITHER:
            return
        elif is_faster and (says is LookSays.SAME or (long is not None and long.log_ratio <= log(found.estimate) / 2)):
            reason = f"proved faster in the mean, long launches up to {self._rules.worst:g} times the usual included"
            self._conclude(ComparisonDecision(Decision.KEPT, reason, last=last))
        elif is_useless:
            self._conclude(ComparisonDecision(Decision.ROLLED_BACK, f"a gain of {gain} is excluded", last=last))
        elif last:
            self._end_undecided(found)

    def _judge_percentile(self, percentiles: PercentileEvidence, *, last: bool) -> None:
        worth_keeping = 1 - self._rules.minimum_gain
        if percentiles.estimate <= worth_keeping and percentiles.is_lower:
            self._conclude(ComparisonDecision(Decision.KEPT, "proved faster at the 99th percentile", last=last))
        elif percentiles.is_above(worth_keeping):
            reason = f"a gain of {self._rules.minimum_gain:.1%} at the 99th percentile is excluded"
            self._conclude(ComparisonDecision(Decision.ROLLED_BACK, reason, last=last))
        elif last:
            self._end_undecided(percentiles)

    def _end_undecided(self, data: Evidence | PercentileEvidence) -> None:
        reason = f"neither a gain of {self._rules.minimum_gain:.1%} nor its absence was proved"
        factor = data.missing()
        if data.estimate <= 1 - self._rules.minimum_gain and factor < inf:
            more = ceil((factor - 1) * data.launches)
            reason += f"; at {data.estimate:.3f} times the kept time, it needs about {more} more launches of each"
        self._conclude(ComparisonDecision(Decision.INCONCLUSIVE, reason, last=True))

    # Times that follow the configuration some launches later show its effect beside launches of the other one. Where
    # blocks can be longer than that, those launches are left out, and the comparison goes on.
    def _conclude(self, result: ComparisonDecision) -> None:
        if self.result is not None:
            return
        guarded = not self._attributed and (result.decision is Decision.KEPT or result.is_early)
        if guarded and len(self._blocks) >= HARM_BLOCKS and (lag := self._lag.value()) and lag >= self.settle:
            self.settle = self._least_settle = lag + 1
            if not result.last:
                return
            reason = f"times follow the configuration {lag} launches later; wait for the device in each step"
            result = ComparisonDecision(Decision.INCONCLUSIVE, reason, last=result.last)
        self.result = result


class LookSays(Enum):
    """What long slots say about a decision by short ones."""

    SAME = "same"
    NEITHER = "neither"
    CONTRARY = "contrary"


def _compare_look(long: Look | None, ratio: float, minimum_gain: float, *, is_faster: bool) -> LookSays:
    """Compare long slots with the ratio of short ones, by which a candidate is faster, or not faster enough."""
    if long is None:
        return LookSays.SAME
    errors = 0.0 if long.pairs >= MANY_PAIRS else LOOK_ERRORS * long.error
    half, gain = log(ratio) / 2, log(1 - minimum_gain)
    if is_faster:
        is_same = long.log_ratio <= half and long.log_ratio + errors <= 0
        is_contrary = long.mostly(above=half)
    else:
        is_same = long.log_ratio + errors > gain
        is_contrary = long.mostly(below=gain)
    if is_same:
        return LookSays.SAME
    if long.pairs >= MOST_PAIRS or (long.pairs >= MANY_PAIRS and is_contrary):
        return LookSays.CONTRARY
    return LookSays.NEITHER


def _ratio(log_ratio: float) -> float:
    return exp(min(log_ratio, 700.0))
