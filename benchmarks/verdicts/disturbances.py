"""Disturbances that are added to recorded launch noise.

Each generator yields, launch by launch, the factor on the launch's time and the items that the launch processed. It
does not depend on the arm.
"""

from collections.abc import Callable, Iterator
from itertools import count
from math import exp, sqrt
from random import Random
from typing import Final

Disturbance = Callable[[Random], Iterator[tuple[float, float]]]

# The docstrings below give each value's meaning; all are shares of a launch's time, or probabilities a launch.
DRIFT: Final = 0.03
DRIFT_CORRELATION: Final = 0.9
SPIKE_PROBABILITY: Final = 0.02
LARGEST_SPIKE: Final = 3.0
WALK_STEP: Final = 0.01
TREND: Final = 0.004
LOAD: Final = 1.1
BURST: Final = 1.15
BURST_BEGINS: Final = 0.04
BURST_ENDS: Final = 0.1
WORK_SPREAD: Final = 0.3
FIXED_SHARE: Final = 0.3


def none(_random: Random) -> Iterator[tuple[float, float]]:
    """Recorded noise alone."""
    while True:
        yield 1.0, 1.0


def drift(random: Random) -> Iterator[tuple[float, float]]:
    """First-order autoregressive drift with a standard deviation of 3 %, and spikes of up to three times the time."""
    level = random.gauss(0, DRIFT)
    while True:
        level = DRIFT_CORRELATION * level + random.gauss(0, DRIFT * sqrt(1 - DRIFT_CORRELATION**2))
        spike = random.uniform(1, LARGEST_SPIKE) if random.random() < SPIKE_PROBABILITY else 1.0
        yield exp(level) * spike, 1.0


def walk(random: Random) -> Iterator[tuple[float, float]]:
    """Random walk of 1 % a launch."""
    level = 0.0
    while True:
        level += random.gauss(0, WALK_STEP)
        yield exp(level), 1.0


def trend(slope: float) -> Disturbance:
    """Every launch is slower than the one before by the same share."""

    def generate(_random: Random) -> Iterator[tuple[float, float]]:
        for launch in count():
            yield exp(slope * launch), 1.0

    return generate


def load(period: int) -> Disturbance:
    """Every `period` launches, one takes 10 % longer."""

    def generate(random: Random) -> Iterator[tuple[float, float]]:
        for launch in count(random.randrange(period)):
            yield (LOAD if launch % period == 0 else 1.0), 1.0

    return generate


def burst(random: Random) -> Iterator[tuple[float, float]]:
    """A neighbour that takes 15 % for 10 launches and rests for 25, on average."""
    busy = random.random() < BURST_BEGINS / (BURST_BEGINS + BURST_ENDS)
    while True:
        if random.random() < (BURST_ENDS if busy else BURST_BEGINS):
            busy = not busy
        yield (BURST if busy else 1.0), 1.0


def work(random: Random) -> Iterator[tuple[float, float]]:
    """Items per launch vary by 30 %, and the time with them."""
    while True:
        items = exp(random.gauss(0, WORK_SPREAD))
        yield items, items


def work_with_fixed_cost(random: Random) -> Iterator[tuple[float, float]]:
    """Items per launch vary by 30 %; 30 % of an average launch's time does not depend on them."""
    while True:
        items = exp(random.gauss(0, WORK_SPREAD))
        yield FIXED_SHARE + (1 - FIXED_SHARE) * items, items


DISTURBANCES: Final[dict[str, Disturbance]] = {
    "none": none,
    "drift and spikes": drift,
    "random walk": walk,
    "0.4 % slower a step": trend(TREND),
    "0.4 % faster a step": trend(-TREND),
    **{f"load every {period}": load(period) for period in range(2, 13)},
    "bursty neighbour": burst,
    "work varies": work,
    "work varies, fixed cost": work_with_fixed_cost,
}
