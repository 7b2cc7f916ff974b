"""False-discovery control: which predictions are strong enough, given how many series are watched.

Pure functions, which `FindingCandidates.accept` calls once a cycle with all predicted candidates.
Each prediction has an e-value: how many times likelier it is with a fault than without one. Its mean over healthy
series is at most 1. The e-BH procedure accepts predictions of k units (racks, programs, GPUs) among m watched series
where the weakest has an e-value of m / (q k); the expected share of false ones is then at most q.

Predictions of one unit with one cause count once: a room that gets warmer for an hour warms all GPUs of a rack alike,
so that forty wrong predictions are as likely as one.

Source: Wang and Ramdas, False discovery rate control with e-values, JRSS B 84 (2022), 822-852.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools

BASE_ODDS: Final = 0.25
"""Odds of a breach within a day among the series with which the probabilities were calibrated."""
GROWTH_PER_HOUR: Final = 8.0
"""Factor on an e-value for each hour that a prediction lasts without a break.

Of 48 predictions on 360 simulated healthy series none lasted an hour; 8 is a cautious choice.
"""
HIGHEST_PROBABILITY: Final = 0.999
"""Probabilities are bounded by it and by 1 minus it, so that the odds stay finite."""
_SECONDS_PER_HOUR: Final = 3600.0


def log_e_value(probability: float, lasting_seconds: float, bar: float) -> float:
    """Logarithm of a prediction's e-value.

    Args:
        probability: Of reaching the limit, calibrated.
        lasting_seconds: Time for which the prediction has been made without a break.
        bar: Divisor of the e-value; above 1 for a series that people marked as a false alarm (`alarms.bars`).
    """
    bounded = min(max(probability, 1 - HIGHEST_PROBABILITY), HIGHEST_PROBABILITY)
    odds = bounded / (1 - bounded) / BASE_ODDS
    return math.log(odds) + lasting_seconds / _SECONDS_PER_HOUR * math.log(GROWTH_PER_HOUR) - math.log(bar)


def accepted(log_e: Sequence[float], units: Sequence[Hashable], watched: int, ratio: float) -> Bools:
    """Apply e-BH.

    Args:
        log_e: Logarithms of the predictions' e-values.
        units: Unit that each prediction concerns.
        watched: Number of series that could have had a prediction; at least as many as have one.
        ratio: Accepted share of false ones.

    Returns:
        Shape (n,), which predictions are accepted.
    """
    values = np.asarray(log_e, dtype=np.float64)
    chosen = np.zeros(len(values), dtype=np.bool_)
    order = np.argsort(-values, kind="stable")
    first = {units[place]: number for number, place in reversed(list(enumerate(order.tolist())))}
    rank = np.cumsum(np.isin(np.arange(len(values)), list(first.values())))
    strong = np.flatnonzero(values[order] >= math.log(max(watched, len(values), 1) / ratio) - np.log(rank))
    if len(strong):
        chosen[order[: strong[-1] + 1]] = True
    return chosen
