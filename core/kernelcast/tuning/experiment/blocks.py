"""The two arms block by block, in log time per item: `comparison` fills the blocks and takes their log-ratios.

A block holds launches of both arms in a counterbalanced order (kept, candidate, candidate, kept, or the reverse), so
that a steady drift cancels out. Each half of it compares the two arms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, median, stdev
from typing import Final, NamedTuple

from kernelcast.tuning.experiment.arms import Arm

SLOPE_PAIRS: Final = 8
"""Neighbouring launches of one arm with different items, from which the effect of the items is estimated."""

SMALLEST_ITEM_CHANGE: Final = 0.02
"""Change of log items below which a slope would be mostly noise."""
DIFFERENT_ITEMS_ERRORS: Final = 4.0
"""Standard errors from which on the mean difference of log items is no chance, but part of the candidate."""


class LaunchRecord(NamedTuple):
    """Log time per item and log items of a compared launch."""

    arm: Arm
    time: float
    items: float


class Difference(NamedTuple):
    """Candidate minus kept of two launches of one half of a block: log time per item, and log items."""

    time: float
    items: float


@dataclass(slots=True)
class Block:
    """The compared launches of a block, by half: each half has both arms, in opposite order.

    Attributes:
        open: Launches that have neither a record nor been skipped.
        halves: The records of the two halves.
    """

    open: int
    halves: tuple[list[LaunchRecord], list[LaunchRecord]] = field(default_factory=lambda: ([], []))

    def differences(self) -> list[Difference]:
        """Return the difference of each launch of the candidate to each of the kept one in the same half."""
        return [
            Difference(new.time - old.time, new.items - old.items)
            for half in self.halves
            for new in half
            if new.arm is Arm.CANDIDATE
            for old in half
            if old.arm is Arm.KEPT
        ]


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


def contrasts(blocks: Sequence[Sequence[Difference]], slope: float) -> list[tuple[float, ...]]:
    """Return the log-ratios of each block, corrected for a difference in items that arose by chance.

    A candidate that changes the items itself (a batch size) differs in nearly every block: then time per item is
    compared as it is, because the change of items is a part of the candidate.
    """
    changes = [difference.items for block in blocks for difference in block]
    if slope and len(changes) > 1:
        error = stdev(changes) / sqrt(len(changes))
        if abs(fmean(changes)) <= DIFFERENT_ITEMS_ERRORS * error:
            return [tuple(one.time - slope * one.items for one in block) for block in blocks]
    return [tuple(one.time for one in block) for block in blocks]
