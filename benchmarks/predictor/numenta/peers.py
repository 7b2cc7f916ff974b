"""Simple detectors to compare with: a windowed Gaussian, an EWMA z-score, and a CUSUM."""

import math
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats

_WEIGHT: Final = 0.02
_LEAST_DEVIATION: Final = 1e-6
_SLACK, _LIMIT, _WARM_UP, _CLIP = 0.5, 8.0, 20, 4.0


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
    """1 where a two-sided CUSUM of standardised errors (Page, Biometrika 41, 1954) is over its limit, else 0.

    The errors are those of an exponentially weighted mean, clipped so that a single spike is no shift.
    """
    mean, variance, up, down = values[0], 0.0, 0.0, 0.0
    scores = np.zeros(len(values))
    for row, value in enumerate(values[1:], start=1):
        deviation = max(math.sqrt(variance), _LEAST_DEVIATION)
        error = float(np.clip((value - mean) / deviation, -_CLIP, _CLIP)) if row >= _WARM_UP else 0.0
        up, down = max(up + error - _SLACK, 0.0), max(down - error - _SLACK, 0.0)
        scores[row] = float(max(up, down) > _LIMIT)
        moved = error * deviation if row >= _WARM_UP else value - mean
        mean += _WEIGHT * moved
        variance += _WEIGHT * (moved * moved - variance)
    return scores
