"""Launches of both arms by block, and how they become comparable: local level, items, and limit of the body.

A block holds launches of both arms in a counterbalanced order (kept, candidate, candidate, kept, or the reverse), so
that a steady drift cancels out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, sqrt
from statistics import fmean, median, stdev
from typing import Final, NamedTuple

from kernelcast.tuning.experiment.arms import Arm, Rules
from kernelcast.tuning.experiment.evidence import Block, Evidence, Tail, body_limit

SLOPE_PAIRS: Final = 8
"""Neighbouring launches of one arm with different items, from which the effect of the items is estimated."""

SMALLEST_ITEM_CHANGE: Final = 0.02
"""Change of log items below which a slope would be mostly noise."""
DIFFERENT_ITEMS_ERRORS: Final = 4.0
"""Standard errors from which on the mean difference of log items is no chance, but part of the candidate."""
LEVEL_LAUNCHES: Final = 8
"""Launches of the kept configuration whose median is the level: those of the half, and of halves before it."""
LONG_SETTLING: Final = 6
"""Launches before a configuration has settled from which on the long blocks are compared, too.

Before, they are left out, because drift within them is large; their long launches count."""


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
        is_look: Whether it is a long one.
        halves: The records of the two halves.
    """

    open: int
    is_look: bool = False
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
    bodies: list[Block] = []
    excess: dict[Arm, list[float]] = {Arm.KEPT: [], Arm.CANDIDATE: []}
    kept: list[float] = []
    for block in blocks:
        differences: list[tuple[float, float]] = []
        launches = 0
        for half in (_by_arm(one, slope, settle) for one in block.halves):
            own = half[Arm.KEPT]
            kept = own if len(own) >= LEVEL_LAUNCHES else [*kept, *own][-LEVEL_LAUNCHES:]
            if not kept:
                continue
            level = median(kept)
            times = {arm: [exp(min(time - level, 300.0)) for time in half[arm]] for arm in Arm}
            for arm in Arm:
                excess[arm].extend(max(0.0, time - limit) for time in times[arm])
            new, old = times[Arm.CANDIDATE], times[Arm.KEPT]
            if new and old:
                differences.append((_body(new, limit), _body(old, limit)))
                launches += len(new)
        if differences and (not block.is_look or settle > LONG_SETTLING):
            new_body, old_body = (fmean(side) for side in zip(*differences, strict=True))
            bodies.append(Block(new_body, old_body, launches))
    if not bodies:
        return None
    new_tail, old_tail = (Tail(excess[arm], rules.worst) for arm in (Arm.CANDIDATE, Arm.KEPT))
    return Evidence(bodies, new_tail, old_tail, rules.level)


def look_ratio(blocks: Sequence[OpenBlock]) -> float | None:
    """Return the ratio of the arms in the later halves of long slots; None without long blocks."""
    differences = []
    for block in blocks:
        for half in block.halves if block.is_look else ():
            times = _by_arm(half, 0.0, len(half) // 4)
            if all(times.values()):
                differences.append(median(times[Arm.CANDIDATE]) - median(times[Arm.KEPT]))
    return exp(fmean(differences)) if differences else None


def _by_arm(half: Sequence[LaunchRecord], slope: float, settle: int) -> dict[Arm, list[float]]:
    times: dict[Arm, list[float]] = {Arm.KEPT: [], Arm.CANDIDATE: []}
    for record in half:
        if record.position >= settle:
            times[record.arm].append(record.time - slope * record.items)
    return times


def _body(times: Sequence[float], limit: float) -> float:
    return fmean([min(time, limit) for time in times])


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
