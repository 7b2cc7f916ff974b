"""Medians and robust slopes of the rows of an array, ignoring NaN: pure functions for all folders of the predictor.

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


def theil_sen(blocks: Floats) -> Floats:
    """The median of all pairwise slopes per row, per block; NaN where there are no two values."""
    first, second, apart = _pairs(blocks.shape[1])
    return row_medians((blocks[:, second] - blocks[:, first]) / apart)


@cache
def _pairs(length: int) -> tuple[Ints, Ints, Ints]:
    """Places of all pairs of blocks, and their distances."""
    first, second = np.triu_indices(length, 1)
    return first, second, second - first
