"""Evidence about the 99th percentile of a launch's time per item: how often each arm exceeds that of both together.

Let t be the 99th percentile of both arms together, each with the same weight. The candidate's 99th percentile is lower
than the kept one's exactly if the candidate exceeds t more rarely. So the test compares two shares, not two quantiles.
A block's score is the number of the candidate's launches above t less that of the kept configuration. A fair coin
decides the order of a block, so under the null hypothesis the sign of a score is symmetric, also where long launches
come in bursts, with a period or with drift. The binomial bounds of an order statistic would be too narrow there. The
e-value is that of `evidence`. Times are not relative to a local level: a program's drift is part of its percentile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import ceil, exp, inf, log
from typing import Final, NamedTuple

from kernelcast.tuning.experiment.arms import LEAST_OF_P99, Arm
from kernelcast.tuning.experiment.blocks import OpenBlock
from kernelcast.tuning.experiment.evidence import edge, log_e_value
from kernelcast.tuning.experiment.schedule import BlockKind

ABOVE: Final = 0.01
"""Share of the launches above the percentile."""
LIMIT_TO_KEEP: Final = -log(0.005)
"""Logarithm of the e-value from which on the candidate is proved lower: chance reaches it in 1 of 200 experiments."""


class Percentiles(NamedTuple):
    """The 99th percentiles of both arms in seconds an item, and the interval of their ratio; None where unknown."""

    new: float | None
    old: float | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class _LongLaunch:
    """A launch that can be above the percentile: its log time, its block, and what it adds to the block's score."""

    time: float
    block: int
    score: float


class PercentileEvidence:
    """Compares the longest launches of both arms in all complete blocks; `Evidence` does so with the means.

    Args:
        blocks: The blocks. Those without settled launches of both arms are left out.
        settle: Launches after a change that are left out.
        level: Coverage of the interval, as of `Evidence`.

    Attributes:
        launches: Compared launches of the candidate.
    """

    def __init__(self, blocks: Sequence[OpenBlock], settle: int, level: float) -> None:
        launches: dict[Arm, list[_LongLaunch]] = {arm: [] for arm in Arm}
        for number, block in enumerate(blocks):
            if block.kind is BlockKind.STAY:
                continue
            log_times = _settled_times(block, settle)
            pairs = min(map(len, log_times.values()))
            for arm, sign in ((Arm.CANDIDATE, 1.0), (Arm.KEPT, -1.0)):
                if pairs:
                    score = sign * pairs / len(log_times[arm])
                    launches[arm] += (_LongLaunch(time, number, score) for time in log_times[arm])
        self.launches, self._kept_launches = len(launches[Arm.CANDIDATE]), len(launches[Arm.KEPT])
        self._above = round(ABOVE * (self.launches + self._kept_launches))
        self._new, self._old = (
            nlargest(self._above + 1, launches[arm], key=lambda launch: launch.time)
            for arm in (Arm.CANDIDATE, Arm.KEPT)
        )
        self._log_limit = log(2 / (1 - level))

    @property
    def is_enough(self) -> bool:
        """Whether both arms have the launches that a percentile needs."""
        return min(self.launches, self._kept_launches) >= LEAST_OF_P99

    @property
    def estimate(self) -> float:
        """The candidate's percentile over the kept one's."""
        return exp(_log_percentile(self._new, self.launches) - _log_percentile(self._old, self._kept_launches))

    def measured(self) -> Percentiles:
        """Return both percentiles, once each arm has the launches for it."""
        if not self.is_enough:
            return Percentiles(None, None)
        new, old = _log_percentile(self._new, self.launches), _log_percentile(self._old, self._kept_launches)
        middle = exp(new - old)
        low = edge(self.is_above, middle, 0.0)
        high = edge(self.is_below, middle, 16 * middle)
        return Percentiles(exp(new), exp(old), (low, high) if 0 < low <= high < 16 * middle else None)

    @property
    def is_lower(self) -> bool:
        """Whether the data prove the candidate's percentile lower than the kept one's."""
        return self.is_enough and log_e_value(*self._score(1.0)) >= LIMIT_TO_KEEP

    def is_below(self, ratio: float) -> bool:
        """Whether the interval of the ratio of the percentiles ends below a ratio."""
        return self.is_enough and log_e_value(*self._score(ratio)) >= self._log_limit

    def is_above(self, ratio: float) -> bool:
        """Whether the interval of the ratio of the percentiles begins above a ratio."""
        total, squares = self._score(ratio)
        return self.is_enough and log_e_value(-total, squares) >= self._log_limit

    def missing(self) -> float:
        """Return the factor on the number of launches that would prove the candidate lower; infinite if none would."""
        total, squares = self._score(1.0)
        if total >= 0:
            return inf
        # The e-value of n times as many launches, with the same share of long ones, rises with n.
        low, high = 1.0, 2.0
        while log_e_value(high * total, high * squares) < LIMIT_TO_KEEP:
            low, high = high, 2 * high
        while high - low > 0.01 * high:
            middle = (low + high) / 2
            is_proved = log_e_value(middle * total, middle * squares) >= LIMIT_TO_KEEP
            low, high = (low, middle) if is_proved else (middle, high)
        return max(high, LEAST_OF_P99 / max(1, min(self.launches, self._kept_launches)))

    def _score(self, ratio: float) -> tuple[float, float]:
        """Return the sums of the blocks' scores and of their squares if the ratio of the percentiles is as given."""
        shift = log(ratio) if ratio > 0 else -inf
        long = [(launch.time, launch.block, launch.score) for launch in self._new]
        long += [(launch.time + shift, launch.block, launch.score) for launch in self._old]
        long.sort(reverse=True)
        limit = long[self._above][0] if len(long) > self._above else -inf
        scores: dict[int, float] = {}
        for time, block, score in long[: self._above]:
            if time > limit:
                scores[block] = scores.get(block, 0.0) + score
        return sum(scores.values()), sum(score * score for score in scores.values())


def percentile(log_times: Sequence[float]) -> float | None:
    """Return the time that one in a hundred launches exceeds; None if there are too few launches."""
    if len(log_times) < LEAST_OF_P99:
        return None
    return exp(sorted(log_times)[ceil((1 - ABOVE) * len(log_times)) - 1])


def _settled_times(block: OpenBlock, settle: int) -> dict[Arm, list[float]]:
    """Return the log times of the block's launches that have settled, by arm."""
    times: dict[Arm, list[float]] = {arm: [] for arm in Arm}
    for half in block.halves:
        for record in half:
            if record.position >= settle:
                times[record.arm].append(record.time)
    return times


def _log_percentile(longest: Sequence[_LongLaunch], launches: int) -> float:
    """Return the log time that one in a hundred launches exceeds.

    Args:
        longest: The longest launches, in descending order.
        launches: Number of all launches.
    """
    return longest[min(len(longest), launches - ceil((1 - ABOVE) * launches) + 1) - 1].time if longest else 0.0
