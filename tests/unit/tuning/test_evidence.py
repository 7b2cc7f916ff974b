"""The evidence of 1,200 launches of each arm: how often a candidate is proved faster in the mean, and is not faster."""

from collections.abc import Callable
from math import exp
from random import Random
from statistics import fmean

import pytest

from kernelcast.tuning.experiment.evidence import Block, Evidence, Tail, body_limit

Launches = Callable[[Random, bool], float]
"""Takes whether the candidate runs; returns a launch's time, 1 for a typical one of the kept configuration."""
WORST = 6.0
BLOCKS, SLOT = 75, 16


def with_tails(typical: float, rate: float, times: float, kept_rate: float = 0.0) -> Launches:
    """Usual launches of the candidate take `typical`; one in 1 / `rate` takes `times` as long."""

    def seconds(random: Random, candidate: bool) -> float:  # noqa: FBT001
        is_long = random.random() < (rate if candidate else kept_rate)
        return (typical if candidate else 1.0) * (times if is_long else 1.0) * exp(random.gauss(0, 0.02))

    return seconds


def clustered(change: float) -> Launches:
    """Launches take four times as long for five in a row, once in 250, whatever arm runs."""
    left = [0]

    def seconds(random: Random, candidate: bool) -> float:  # noqa: FBT001
        left[0] = left[0] - 1 if left[0] else 5 * (random.random() < 1 / 250)
        return (4.0 if left[0] else 1.0) * exp(random.gauss(0, 0.02)) * (1 + change * candidate)

    return seconds


def is_proved(launches: Launches, random: Random) -> bool:
    limit = body_limit(WORST)
    blocks: list[Block] = []
    excess: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(BLOCKS):
        order = [True, False, False, True] if random.random() < 0.5 else [False, True, True, False]
        times: dict[bool, list[float]] = {True: [], False: []}
        for candidate in order:
            times[candidate] += [launches(random, candidate) for _ in range(SLOT // 2)]
        above = {arm: [max(0.0, time - limit) for time in times[arm]] for arm in times}
        bodies = {arm: fmean(min(time, limit) for time in times[arm]) for arm in times}
        blocks.append(Block(bodies[True], bodies[False], fmean(above[True]), fmean(above[False]), SLOT))
        for arm in times:
            excess[arm] += above[arm]
    found = Evidence(blocks, Tail(excess[True], WORST), Tail(excess[False], WORST), level=0.95)
    return found.is_below(1.0, last=True)


def share_proved(make: Callable[[], Launches], trials: int) -> float:
    random = Random(1)
    return fmean(is_proved(make(), random) for _ in range(trials))


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_tails(1 / 1.25, 1 / 20, 6),
        lambda: with_tails(1 / 1.05, 1 / 100, 6),
        lambda: with_tails(1 / 1.3, 0.3, 2),
        lambda: with_tails(1.0, 1 / 30, 6, 1 / 30),
        lambda: with_tails(1.0, 1 / 50, 3, 1 / 50),
        lambda: with_tails(1.04 / 1.08, 1 / 25, 3, 1 / 50),
        lambda: clustered(0.0),
    ],
)
def test_a_candidate_with_the_same_mean_is_hardly_ever_proved_faster(make: Callable[[], Launches]) -> None:
    """An error of 1 in 200 is permitted at this analysis; 5 of 200 are exceeded by chance in 1 of 1,700."""
    assert share_proved(make, 200) <= 5 / 200


def test_pauses_of_both_arms_hide_a_gain_of_five_percent_in_one_of_ten_experiments_at_most() -> None:
    """The bound of the pauses was added to the noise that they make in the body, which has them already."""
    assert share_proved(lambda: with_tails(0.95, 1 / 50, 3, 1 / 50), 100) >= 0.9
