"""Selection of predictions: which are strong enough, given how many series are watched.

Pure functions, which `FindingCandidates.accept` calls once a cycle with all predicted candidates.
Each prediction has a *score*: the odds of a breach that its probability claims, over `BASE_ODDS`, times a factor for
the time that it has lasted. Predictions of k units (racks, programs, GPUs) among m watched series are accepted where
the weakest has a score of m / (q k). This is the step-up of e-BH. It would bound the share of false ones by q if scores
were e-values; they are not: both constants come from simulated fleets, and a site's prevalence is not known. So q
orders predictions and sets how long they wait; `benchmarks.predictor fleet` measures the share of false pages.

Predictions of one unit with one cause count once: a room that gets warmer for an hour warms all GPUs of a rack alike,
so that forty wrong predictions are as likely as one.

Source of the step-up: Wang and Ramdas, False discovery rate control with e-values, JRSS B 84 (2022), 822-852.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools

BASE_ODDS: Final = 0.25
"""Odds of a breach within a day among the series with which the probabilities were calibrated, which were simulated.

In the fleets of seeds 7 and 8 (`benchmarks.predictor fleet`, no budget), .05, .25 and 1 gave 5.9, 4.6 and 3.8 pages a
day, a precision of .37, .42 and .51, and a median lead of 218, 175 and 155 minutes.
"""
GROWTH_PER_HOUR: Final = 64.0
"""Factor on a score for each hour that a prediction lasts without a break: false ones do not last.

Of 380 healthy series (`benchmarks.predictor others-fleet` and `worlds`), 18 of four programs had a false alert on their
first day. Its probability held for 12 minutes on average over programs, 18 over series: a factor of 120 or 26 an hour.
The 2,350 series-days afterwards had no false alert.
"""
HIGHEST_PROBABILITY: Final = 0.999
"""Probabilities are bounded by it and by 1 minus it, so that the odds stay finite."""
_SECONDS_PER_HOUR: Final = 3600.0


def log_score(probability: float, lasting_seconds: float, bar: float) -> float:
    """Logarithm of a prediction's score.

    Args:
        probability: Of reaching the limit, calibrated.
        lasting_seconds: Time for which the prediction has been made without a break.
        bar: Divisor of the score; above 1 for a series that people marked as a false alarm (`alarms.bars`).
    """
    bounded = min(max(probability, 1 - HIGHEST_PROBABILITY), HIGHEST_PROBABILITY)
    odds = bounded / (1 - bounded) / BASE_ODDS
    return math.log(odds) + lasting_seconds / _SECONDS_PER_HOUR * math.log(GROWTH_PER_HOUR) - math.log(bar)


def accepted(log_scores: Sequence[float], units: Sequence[Hashable], watched: int, ratio: float) -> Bools:
    """Apply the step-up.

    Args:
        log_scores: Logarithms of the predictions' scores.
        units: Unit that each prediction concerns.
        watched: Number of series that could have had a prediction; at least as many as have one.
        ratio: Share q: the smaller, the stronger a prediction must be.

    Returns:
        Shape (n,), which predictions are accepted.
    """
    values = np.asarray(log_scores, dtype=np.float64)
    chosen = np.zeros(len(values), dtype=np.bool_)
    order = np.argsort(-values, kind="stable")
    first = {units[place]: number for number, place in reversed(list(enumerate(order.tolist())))}
    rank = np.cumsum(np.isin(np.arange(len(values)), list(first.values())))
    strong = np.flatnonzero(values[order] >= math.log(max(watched, len(values), 1) / ratio) - np.log(rank))
    if len(strong):
        chosen[order[: strong[-1] + 1]] = True
    return chosen
