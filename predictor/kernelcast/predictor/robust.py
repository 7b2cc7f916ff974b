"""Medians, quantiles, slopes and newest values of the rows of an array, ignoring NaN.

Pure functions for all folders of the predictor.

Theil-Sen: Gilbert, Statistical Methods for Environmental Pollution Monitoring (1987), section 16.5.
"""

from functools import cache
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints

MAD_TO_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution, as a multiple of its median absolute deviation (MAD)."""


def row_medians(values: Floats) -> Floats:
    """Medians of rows, ignoring NaN; NaN for rows without a value."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)
    known, last = np.isfinite(ordered), values.shape[1] - 1
    if known.all():
        whole: Floats = (ordered[:, last // 2] + ordered[:, (last + 1) // 2]) / 2
        return whole
    count = known.sum(axis=1)
    rows = np.arange(len(values))
    medians: Floats = (ordered[rows, np.maximum((count - 1) // 2, 0)] + ordered[rows, np.minimum(count // 2, last)]) / 2
    medians[count == 0] = np.nan
    return medians


def row_quantiles(values: Floats, share: float) -> Floats:
    """Quantiles of rows, the lower of two neighbours, ignoring NaN; NaN for rows without a value."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)
    last = np.maximum(np.isfinite(ordered).sum(axis=1) - 1, 0)
    quantiles: Floats = ordered[np.arange(len(values)), np.floor(share * last).astype(np.int64)]
    return quantiles


def row_last(values: Floats) -> Floats:
    """The newest known value of each row, shape (n,); NaN without one."""
    place = values.shape[1] - 1 - np.argmax(np.isfinite(values)[:, ::-1], axis=1)
    return np.asarray(values[np.arange(len(values)), place])


def shrunk_gain(changes: Floats, drivers: Floats, *, usual: float, weight: Floats | float) -> Floats:
    """Slopes of a line through the origin, not negative, drawn to a usual one by ridge regression, shape (n,).

    Args:
        changes: Shape (n, k).
        drivers: Shape (n, k), changes of what they follow.
        usual: Gain without any change of the driver.
        weight: Sum of squares of the driver's changes that say as much as `usual`.
    """
    both = np.isfinite(changes) & np.isfinite(drivers)
    changes, drivers = np.where(both, changes, 0.0), np.where(both, drivers, 0.0)
    gain: Floats = ((changes * drivers).sum(axis=1) + usual * weight) / ((drivers**2).sum(axis=1) + weight)
    return np.maximum(gain, 0.0)


def theil_sen(blocks: Floats) -> Floats:
    """The median of all pairwise slopes per row, per block; NaN where there are no two values."""
    first, second, apart = _pairs(blocks.shape[1])
    return row_medians((blocks[:, second] - blocks[:, first]) / apart)


@cache
def _pairs(length: int) -> tuple[Ints, Ints, Ints]:
    """Places of all pairs of blocks, and their distances."""
    first, second = np.triu_indices(length, 1)
    return first, second, second - first
