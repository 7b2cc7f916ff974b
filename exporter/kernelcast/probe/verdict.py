"""Decides whether a new value is faster, by paired measurements and without assumptions on the noise distribution.

Kernel times have spikes and steps (clocks, neighbours). So the median of the log-ratios is tested by the sign test's
order-statistic interval, whose coverage is exact for any continuous distribution.
Source: Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2 (confidence interval for a quantile).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import comb, exp
from statistics import median
from typing import Final

from kernelcast.wire.errors import WindowError

LEVEL: Final = 0.95


class Decision(Enum):
    """Decision after the pairs so far."""

    MEASURE_ON = "measure on"
    KEEP = "keep"
    ROLL_BACK = "roll back"


@dataclass(frozen=True, slots=True)
class CanaryPolicy:
    """Limits of a trial.

    With these values at most 90 steps run on the new value. The pairs are evaluated twice, at 15 and at 30: an
    evaluation after each pair would keep a useless value in more than 5 % of trials (a unit test simulates that).

    Attributes:
        warm_up_steps: Steps at the start of each block that are not measured: caches, clocks, late timings.
        measured_steps: Steps of each block that are measured.
        min_pairs: Pairs between two evaluations; nothing is kept before the first.
        max_pairs: Pairs after which the value is rolled back unless it is proved faster.
        keep_below: The upper bound of the ratio must be below this.
        max_slowdown: A median ratio above this ends the trial at once.
        abort_pairs: Smallest number of pairs for that.
        max_void_blocks: Blocks without one timed launch, after which the trial ends.
    """

    warm_up_steps: int = 1
    measured_steps: int = 2
    min_pairs: int = 15
    max_pairs: int = 30
    keep_below: float = 0.99
    max_slowdown: float = 1.2
    abort_pairs: int = 3
    max_void_blocks: int = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision with its reason and figures; `ratio` is new time over old, None before the first pair."""

    decision: Decision
    reason: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    pairs: int = 0


def judge(log_ratios: Sequence[float], policy: CanaryPolicy) -> Verdict:
    """Decide by the pairs so far.

    Args:
        log_ratios: Natural logarithm of new time over old, one per pair.
        policy: The limits.
    """
    pairs = len(log_ratios)
    if not pairs:
        return Verdict(Decision.MEASURE_ON, "nothing measured yet")
    ratio = exp(median(log_ratios))
    if pairs >= policy.abort_pairs and ratio > policy.max_slowdown:
        reason = f"{ratio:.3f} times the old time after {pairs} pairs; the limit is {policy.max_slowdown}"
        return Verdict(Decision.ROLL_BACK, reason, ratio, _interval(log_ratios), pairs)
    if pairs % policy.min_pairs and pairs < policy.max_pairs:
        return Verdict(Decision.MEASURE_ON, "not looked at yet", ratio, None, pairs)
    low, high = _bounds(log_ratios)
    if high < policy.keep_below:
        reason = f"{ratio:.3f} times the old time, at most {high:.3f} with {LEVEL:.0%} confidence"
        return Verdict(Decision.KEEP, reason, ratio, (low, high), pairs)
    if ratio >= policy.keep_below or pairs >= policy.max_pairs:
        reason = f"{ratio:.3f} times the old time; its upper bound {high:.3f} is not below {policy.keep_below}"
        return Verdict(Decision.ROLL_BACK, reason, ratio, (low, high), pairs)
    return Verdict(Decision.MEASURE_ON, "not decided yet", ratio, (low, high), pairs)


def median_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return a confidence interval for the median.

    Args:
        values: Shape (n,), independent, at least 6 for a level of 0.95.
        level: Coverage, between 0 and 1.

    Returns:
        The two order statistics that cover the median with at least that probability.

    Raises:
        WindowError: Too few values for that level.
    """
    count = len(values)
    rank, tail = 0, 0.0
    while rank <= count:
        tail += comb(count, rank) / 2.0**count
        if tail > (1 - level) / 2:
            break
        rank += 1
    if not rank:
        raise WindowError(f"{count} pairs cannot give an interval of level {level}; measure at least 6")
    ordered = sorted(values)
    return ordered[rank - 1], ordered[count - rank]


def _bounds(log_ratios: Sequence[float]) -> tuple[float, float]:
    low, high = median_interval(log_ratios)
    return exp(low), exp(high)


def _interval(log_ratios: Sequence[float]) -> tuple[float, float] | None:
    try:
        return _bounds(log_ratios)
    except WindowError:
        return None
