"""Simple detectors to compare with: a windowed Gaussian, an EWMA z-score, and the predictor's CUSUM."""

import math
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.screening.online import OnlineState

_WEIGHT: Final = 0.02
_LEAST_DEVIATION: Final = 1e-6


def windowed_gaussian(values: Floats) -> Floats:
    """1 minus the tail probability of a normal distribution that is fitted to all earlier values.

    The published one has a window of 6,400 values and moves it in steps of 100; no file here is longer than the window.
    """
    centred = values - values[0]
    count = np.arange(1, len(values))
    mean = np.cumsum(centred)[:-1] / count
    variance = np.cumsum(centred**2)[:-1] / count - mean**2
    deviation = np.maximum(np.sqrt(np.maximum(variance, 0)), _LEAST_DEVIATION)
    distance = np.abs(centred[1:] - mean) / deviation
    tail = np.array([0.5 * math.erfc(one / math.sqrt(2)) for one in distance])
    return np.concatenate([[0.0], 1 - tail])


def ewma_z_score(values: Floats) -> Floats:
    """Distance of each value from an exponentially weighted mean, in standard deviations of that distance."""
    mean, variance = values[0], 0.0
    scores = np.zeros(len(values))
    for row, value in enumerate(values[1:], start=1):
        error = value - mean
        scores[row] = abs(error) / max(math.sqrt(variance), _LEAST_DEVIATION)
        mean += _WEIGHT * error
        variance += _WEIGHT * (error * error - variance)
    return scores


def cusum(values: Floats) -> Floats:
    """1 where the predictor's own CUSUM is over its limit, else 0."""
    state, row = OnlineState(), np.zeros(1, np.int64)
    scores = np.zeros(len(values))
    for place in range(len(values)):
        state.update(row, values[place : place + 1])
        scores[place] = float(state.shifted(row)[0])
    return scores
