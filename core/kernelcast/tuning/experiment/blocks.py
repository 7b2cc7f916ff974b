"""Launches of both arms by block, and how they become comparable: local level, items, and limit of the body.

A block holds launches of both arms in a counterbalanced order (kept, candidate, candidate, kept, or the reverse), so
that a steady drift cancels out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb, exp, inf, sqrt
from statistics import fmean, median, stdev
from typing import Final, NamedTuple

from kernelcast.tuning.experiment.arms import Arm, Rules
from kernelcast.tuning.experiment.evidence import SCALE_OF_MEDIAN, Block, Evidence, Tail, body_limit
from kernelcast.tuning.experiment.schedule import BlockKind

SLOPE_PAIRS: Final = 8
"""Neighbouring launches of one arm with different items, from which the effect of the items is estimated."""

SMALLEST_ITEM_CHANGE: Final = 0.02
"""Change of log items below which a slope would be mostly noise."""
DIFFERENT_ITEMS_ERRORS: Final = 4.0
"""Standard errors from which on the mean difference of log items is no chance, but part of the candidate."""
LEVEL_LAUNCHES: Final = 8
"""Launches of the kept configuration whose median is the level: those of the half, and of halves before it."""
LONG_SETTLING: Final = 6
"""Launches before a configuration has settled from which on looks are compared, too.

Before, they are left out, because drift within them is large; their long launches count."""
SIGN_ERROR: Final = 0.005
"""Error of the sign test: all of 8 pairs, or 19 of 24."""
MEDIAN_ERROR: Final = 1.25
"""Standard error of a median over that of a mean, for normal noise."""


class LaunchRecord(NamedTuple):
    """Log time per item and log items of a launch, and the launches in a row on its configuration before it."""

    arm: Arm
    position: int
    time: float
    items: float


@dataclass(slots=True)
class OpenBlock:
    """The launches of a block by half: each half has both arms.

    Attributes:
        open: Launches that have neither a record nor been skipped.
        kind: Its kind.
        halves: The records of the two halves.
    """

    open: int
    kind: BlockKind = BlockKind.COUNTERBALANCED
    halves: tuple[list[LaunchRecord], list[LaunchRecord]] = field(default_factory=lambda: ([], []))


class ItemSlope:
    """Estimates how time per item depends on the number of items, from neighbouring launches of one configuration.

    Where a launch has a fixed cost besides that of its items, a launch with more items takes less time per item.
    Without the correction such a difference in items between the arms would look like a difference between them.
    """

    def __init__(self) -> None:
        self._slopes: list[float] = []
        self._last: tuple[int, Arm, float, float] | None = None

    def add(self, number: int, arm: Arm, log_time: float, log_items: float) -> None:
        """Add a launch that is not the first after a change."""
        last, self._last = self._last, (number, arm, log_time, log_items)
        if last is None or last[0] != number - 1 or last[1] is not arm:
            return
        change = log_items - last[3]
        if abs(change) >= SMALLEST_ITEM_CHANGE:
            self._slopes.append((log_time - last[2]) / change)

    def value(self) -> float:
        """Return the slope of log time per item over log items; 0 while too little is known."""
        return median(self._slopes) if len(self._slopes) >= SLOPE_PAIRS else 0.0


def evidence(blocks: Sequence[OpenBlock], slope: float, settle: int, rules: Rules) -> Evidence | None:
    """Return the evidence of complete blocks; None if no block has settled launches of both arms.

    Args:
        blocks: The blocks.
        slope: Slope of log time per item over log items.
        settle: Launches after a change that are left out.
        rules: The limits.
    """
    slope = 0.0 if slope and _items_differ(blocks, settle) else slope
    limit = body_limit(rules.worst)
    compared: list[Block] = []
    excess: dict[Arm, list[float]] = {Arm.KEPT: [], Arm.CANDIDATE: []}
    kept: list[float] = []
    for block in blocks:
        halves: list[list[float]] = []
        launches = 0
        for half in (_by_arm(records, slope, settle) for records in block.halves):
            own = half[Arm.KEPT]
            kept = own if len(own) >= LEVEL_LAUNCHES else [*kept, *own][-LEVEL_LAUNCHES:]
            if not kept:
                continue
            level = median(kept)
            times = {arm: [exp(min(time - level, 300.0)) for time in half[arm]] for arm in Arm}
            bodies = {arm: [min(time, limit) for time in times[arm]] for arm in Arm}
            above = {arm: [max(0.0, time - limit) for time in times[arm]] for arm in Arm}
            for arm in Arm:
                excess[arm].extend(above[arm])
            if all(times.values()):
                halves.append([fmean(part[arm]) for part in (bodies, above) for arm in (Arm.CANDIDATE, Arm.KEPT)])
                launches += len(times[Arm.CANDIDATE])
        is_compared = block.kind is BlockKind.COUNTERBALANCED or (
            block.kind is BlockKind.LOOK and settle > LONG_SETTLING
        )
        if halves and is_compared:
            compared.append(Block(*map(fmean, zip(*halves, strict=True)), launches))
    if not compared:
        return None
    new_tail, old_tail = (Tail(excess[arm], rules.worst) for arm in (Arm.CANDIDATE, Arm.KEPT))
    return Evidence(compared, new_tail, old_tail, rules.level)


class Look(NamedTuple):
    """Log-ratio of the later halves of long slots, its standard error, and the log-ratio of each pair of slots."""

    log_ratio: float
    error: float
    differences: list[float]

    @property
    def pairs(self) -> int:
        """Number of pairs of slots."""
        return len(self.differences)

    def mostly(self, *, above: float = inf, below: float = -inf) -> bool:
        """Whether significantly more than half of the pairs are above or below a log-ratio: the exact sign test.

        It holds also where the level jumps within a pair, for example because the clock is throttled.
        """
        beyond = sum(difference > above or difference < below for difference in self.differences)
        as_many = sum(comb(self.pairs, number) for number in range(beyond, self.pairs + 1))
        return as_many <= SIGN_ERROR * 2.0**self.pairs


def look(blocks: Sequence[OpenBlock], noise: float) -> Look | None:
    """Return what long slots say; None without any.

    Args:
        blocks: The blocks.
        noise: Standard deviation of log times.
    """
    differences: list[float] = []
    launches: list[int] = []
    for block in blocks:
        slots = [_later(half, arm) for half in block.halves for arm in _order(half)]
        if block.kind is not BlockKind.LOOK or not all(slots):
            continue
        first, second, third, fourth = map(median, slots)
        sign = 1 if _order(block.halves[0])[1] is Arm.CANDIDATE else -1
        # A slot against those before and after it, so that a steady drift cancels out.
        differences += sign * (second - (first + third) / 2), sign * ((second + fourth) / 2 - third)
        launches.append(min(map(len, slots)))
    pairs = len(differences)
    if not pairs:
        return None
    noise_spread = noise * sqrt(1.5 / median(launches))
    middle = median(differences)  # the level can jump within a pair
    spread = SCALE_OF_MEDIAN * median([abs(difference - middle) for difference in differences])
    return Look(middle, MEDIAN_ERROR * max(noise_spread, spread) / sqrt(pairs), differences)


def _order(half: Sequence[LaunchRecord]) -> tuple[Arm, Arm]:
    """Return the arms of the two slots of a half, first to last."""
    is_candidate_first = bool(half) and half[0].arm is Arm.CANDIDATE
    return (Arm.CANDIDATE, Arm.KEPT) if is_candidate_first else (Arm.KEPT, Arm.CANDIDATE)


def _later(half: Sequence[LaunchRecord], arm: Arm) -> list[float]:
    own = [record for record in half if record.arm is arm]
    longest = max((record.position for record in own), default=0)
    return [record.time for record in own if 2 * record.position > longest]


def _by_arm(half: Sequence[LaunchRecord], slope: float, settle: int) -> dict[Arm, list[float]]:
    times: dict[Arm, list[float]] = {Arm.KEPT: [], Arm.CANDIDATE: []}
    for record in half:
        if record.position >= settle:
            times[record.arm].append(record.time - slope * record.items)
    return times


def _items_differ(blocks: Sequence[OpenBlock], settle: int) -> bool:
    """Whether the candidate changes the items themselves (a batch size): then that is a part of the candidate."""
    changes = []
    for block in blocks:
        items: dict[Arm, list[float]] = {Arm.KEPT: [], Arm.CANDIDATE: []}
        for half in block.halves:
            for record in half:
                if record.position >= settle:
                    items[record.arm].append(record.items)
        if all(items.values()):
            changes.append(fmean(items[Arm.CANDIDATE]) - fmean(items[Arm.KEPT]))
    if len(changes) < 2:
        return False
    return abs(fmean(changes)) > DIFFERENT_ITEMS_ERRORS * stdev(changes) / sqrt(len(changes))
