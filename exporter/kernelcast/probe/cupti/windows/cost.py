"""Learns from the program's own steps what measuring costs: steps with measuring beside steps without, by turns.

A *block* is an unbroken stretch of steps in one state. Each short block is compared with as many steps around it, half
of them right before and half right after, so that drift cancels. Without a cost both have the same distribution, so the
logarithm of their ratio is symmetric about 0, where Student's interval errs on the safe side whatever the noise is. (A
bootstrap over blocks did not: with 2 % of steps eight times as long it found a cost that was not there in three of
three simulated hours.)

Source: Efron, "Student's t-test under symmetry conditions", JASA 64 (1969).
"""

from collections import deque
from collections.abc import Iterable
from math import exp, log, sqrt
from statistics import fmean, median, pstdev
from typing import Final, NamedTuple

FIRST_STEPS: Final = 30
"""Steps of a program that are not compared: its start differs."""
AFTER_A_SWITCH: Final = 2
"""Steps that are dropped after a switch: the one under way, and the first that begins in the new state."""
SHORTEST_BLOCK: Final = 10
LONGEST_BLOCK: Final = 256
"""Steps of a block that are kept at either end."""
CLIPPED_AT: Final = 2.0
"""A step counts as at most so many medians: a checkpoint in one of the two states is no cost of measuring."""
FEWEST: Final = 8
"""Comparisons before a ratio is known."""
MOST: Final = 60
STUDENT: Final = ((7, 5.41), (9, 4.78), (12, 4.32), (15, 4.07), (20, 3.85), (30, 3.65), (40, 3.55), (59, 3.46))
"""Degrees of freedom and Student's quantile of .9995: an interval of 99.9 %, because many are looked at."""


class Ratio(NamedTuple):
    """Step time with measuring over step time without, and the bounds of its 99.9 % interval."""

    lower: float
    median: float
    upper: float


class _Block:
    """Steps of one state: the first and the last ones."""

    def __init__(self, *, measuring: bool) -> None:
        self.measuring = measuring
        self.spoilt = False
        self.first: list[float] = []
        self.last: deque[float] = deque(maxlen=LONGEST_BLOCK)
        self._to_drop = AFTER_A_SWITCH

    def add(self, seconds: float) -> None:
        if self._to_drop:
            self._to_drop -= 1
            return
        if len(self.first) < LONGEST_BLOCK:
            self.first.append(seconds)
        self.last.append(seconds)


class CostRatio:
    """Compares steps with and without measuring. Times are nanoseconds of one monotonic clock.

    >>> cost = CostRatio()
    >>> cost.switched(0, measuring=True)
    >>> cost.ratio() is None
    True
    """

    def __init__(self) -> None:
        self._switches: deque[tuple[int, bool]] = deque(maxlen=1024)
        self._blocks: list[_Block] = []
        self._ratios: deque[float] = deque(maxlen=MOST)
        self._last_end_ns: int | None = None
        self._steps = 0
        self._known: Ratio | None = None
        self._durations: deque[float] = deque(maxlen=64)

    @property
    def steps(self) -> int:
        """Steps so far."""
        return self._steps

    @property
    def block_seconds(self) -> float:
        """Time in which ten whole steps end besides those that are dropped, in 999 cases of 1,000; 0 without a step."""
        if not self._durations:
            return 0.0
        most = CLIPPED_AT * median(self._durations)
        steps = [min(seconds, most) for seconds in self._durations]
        needed = SHORTEST_BLOCK + AFTER_A_SWITCH
        return needed * fmean(steps) + 5 * pstdev(steps) * sqrt(needed)

    def switched(self, now_ns: int, *, measuring: bool) -> None:
        """Say that measuring begins or ends."""
        self._switches.append((now_ns, measuring))

    def forget(self) -> None:
        """Drop all comparisons: what is measured has changed."""
        self._ratios.clear()
        self._blocks.clear()
        self._known = None

    def spoil(self) -> None:
        """Leave the present block out, such as during a trial of the tuner, whose steps differ."""
        if self._blocks:
            self._blocks[-1].spoilt = True

    def add(self, ends_ns: Iterable[int]) -> None:
        """Add the steps that have ended since the last call, by the times of their ends."""
        for end_ns in ends_ns:
            last_ns, self._last_end_ns = self._last_end_ns, end_ns
            self._steps += 1
            while self._switches and self._switches[0][0] <= end_ns:
                self._open(measuring=self._switches.popleft()[1])
            if last_ns is None:
                continue
            seconds = (end_ns - last_ns) / 1e9
            self._durations.append(seconds)
            if self._blocks and self._steps > FIRST_STEPS:
                self._blocks[-1].add(seconds)
                self._compare()

    def ratio(self) -> Ratio | None:
        """Return the ratio and its interval; None before there are enough comparisons."""
        if self._known is None and len(self._ratios) >= FEWEST:
            self._known = _interval(self._ratios)
        return self._known

    def _open(self, *, measuring: bool) -> None:
        self._blocks = [*self._blocks[-2:], _Block(measuring=measuring)]

    def _compare(self) -> None:
        """Compare the block before the present one with its neighbours, once half as many steps have followed it.

        Only the shorter blocks are compared, so that each step counts once.
        """
        if len(self._blocks) < 3:
            return
        before, middle, after = self._blocks
        half = len(middle.first) // 2
        if len(after.first) < half:
            return
        self._blocks = [middle, after]
        alternate = before.measuring == after.measuring != middle.measuring
        if alternate and SHORTEST_BLOCK <= 2 * half <= len(before.last) and not (before.spoilt or middle.spoilt):
            around = [*list(before.last)[-half:], *after.first[:half]]
            self._add(middle.first[: 2 * half], around, measuring=middle.measuring)

    def _add(self, inside: list[float], around: list[float], *, measuring: bool) -> None:
        most = CLIPPED_AT * median([*inside, *around])
        means = [fmean(min(seconds, most) for seconds in steps) for steps in (inside, around)]
        if all(means):
            difference = log(means[0] / means[1])
            self._ratios.append(difference if measuring else -difference)
            self._known = None


def _interval(logarithms: Iterable[float]) -> Ratio:
    values = list(logarithms)
    mean, free = fmean(values), len(values) - 1
    quantile = next(quantile for degrees, quantile in reversed(STUDENT) if degrees <= free)
    error = quantile * sqrt(fmean((value - mean) ** 2 for value in values) / free)
    return Ratio(exp(mean - error), exp(mean), exp(mean + error))
