"""Windows condensed to block medians, and statistics of them for many series at once.

Mann-Kendall and Theil-Sen: Gilbert, Statistical Methods for Environmental Pollution Monitoring (1987), sections 16.4
and 16.5. Medians of blocks, because a quantised gauge ties most of its pairs.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.settings import BLOCKS

WindowArray = NDArray[np.float32]

MAD_TO_SIGMA: Final = 1.4826
"""Median absolute deviation of a normal distribution, as its standard deviation."""

_EDGE: Final = 3
"""Minimum number of blocks on either side of a step."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The best single step of each row.

    Attributes:
        block: First block after it, shape (n,).
        size: Mean after it less mean before it.
        better: Whether it explains the row better than a straight line does.
    """

    block: Ints
    size: Floats
    better: Bools


def block_medians(window: WindowArray, *, length: int) -> Floats:
    """Medians of the last `length` values in `BLOCKS` equal blocks.

    Args:
        window: Shape (n, points), oldest first, NaN where missing.
        length: A multiple of BLOCKS.

    Returns:
        Shape (n, BLOCKS); NaN for blocks without a value.
    """
    parts = window[:, -length:].reshape(len(window), BLOCKS, length // BLOCKS)
    if parts.shape[2] == 1:
        return parts[:, :, 0].astype(np.float64)
    ordered = np.sort(parts, axis=2)  # NaN goes last
    count = np.isfinite(ordered).sum(axis=2)
    low = np.take_along_axis(ordered, np.maximum((count - 1) // 2, 0)[:, :, None], axis=2)[:, :, 0]
    high = np.take_along_axis(ordered, np.minimum(count // 2, parts.shape[2] - 1)[:, :, None], axis=2)[:, :, 0]
    medians = (low.astype(np.float64) + high) / 2
    medians[count == 0] = np.nan
    return medians


def row_medians(values: Floats) -> Floats:
    """Medians of rows, ignoring NaN; NaN for rows without a value."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)
    count = np.isfinite(ordered).sum(axis=1)
    rows = np.arange(len(values))
    last = values.shape[1] - 1
    medians: Floats = (ordered[rows, np.maximum((count - 1) // 2, 0)] + ordered[rows, np.minimum(count // 2, last)]) / 2
    medians[count == 0] = np.nan
    return medians


def mann_kendall(blocks: Floats) -> Floats:
    """Mann-Kendall's z per row: positive for rows that rise; 0 where fewer than 8 blocks have a value.

    Ties are not corrected for, which errs on the quiet side.
    """
    score = np.zeros(len(blocks))
    for lag in range(1, blocks.shape[1]):
        later, earlier = blocks[:, lag:], blocks[:, :-lag]
        score += (later > earlier).sum(axis=1)
        score -= (later < earlier).sum(axis=1)
    n = np.isfinite(blocks).sum(axis=1).astype(np.float64)
    deviation = np.sqrt(np.maximum(n * (n - 1) * (2 * n + 5) / 18, 1.0))
    z: Floats = np.where(n >= 8, np.sign(score) * np.maximum(np.abs(score) - 1, 0) / deviation, 0.0)
    return z


def theil_sen(blocks: Floats) -> Floats:
    """The median of all pairwise slopes per row, per block; NaN where there are no two values."""
    first, second = np.triu_indices(blocks.shape[1], 1)
    return row_medians((blocks[:, second] - blocks[:, first]) / (second - first))


def noise(blocks: Floats, slope: Floats) -> Floats:
    """The spread of blocks around their line, as a standard deviation."""
    rest = blocks - slope[:, None] * np.arange(blocks.shape[1])
    centred = rest - row_medians(rest)[:, None]
    return MAD_TO_SIGMA * row_medians(np.abs(centred))


def find_steps(blocks: Floats) -> Steps:
    """The single step that explains each row best, by least squares, against a straight line."""
    filled = _fill(blocks)
    n = blocks.shape[1]
    filled = filled - filled.mean(axis=1, keepdims=True)
    total = (filled**2).sum(axis=1)
    left = np.cumsum(filled, axis=1)[:, _EDGE - 1 : n - _EDGE]
    size_left = np.arange(_EDGE, n - _EDGE + 1)
    explained = left**2 / size_left + left**2 / (n - size_left)
    best = np.argmax(explained, axis=1)
    rows = np.arange(len(blocks))
    block = best + _EDGE
    at = left[rows, best]
    size = -at / (n - block) - at / block
    time = np.arange(n) - (n - 1) / 2
    by_line = (filled @ time) ** 2 / (time @ time)
    better = total - explained[rows, best] < 0.5 * (total - by_line)
    return Steps(block, size, better & (total > 0))


def settling(blocks: Floats, spread: Floats) -> Bools:
    """Whether the slope of a row's second half is under half that of its first half: the row approaches a level.

    Args:
        blocks: Shape (n, BLOCKS).
        spread: Shape (n,), noise of a block; the difference of the two slopes must exceed the error that it causes.
    """
    half = blocks.shape[1] // 2
    early, late = theil_sen(blocks[:, :half]), theil_sen(blocks[:, half:])
    direction = np.sign(early)
    slope_error = spread * np.sqrt(12.0 / half**3)
    falls: Bools = direction * (early - late) > 3.0 * np.sqrt(2.0) * slope_error
    dying: Bools = falls & (direction * late < 0.5 * np.abs(early)) & (direction != 0)
    return dying


def _fill(blocks: Floats) -> Floats:
    """NaN replaced by the last value before it, or the first after it."""
    known = np.isfinite(blocks)
    places = np.arange(blocks.shape[1])
    last = np.maximum.accumulate(np.where(known, places, -1), axis=1)
    first = np.argmax(known, axis=1)
    chosen = np.where(last < 0, first[:, None], last)
    filled = np.take_along_axis(blocks, chosen, axis=1)
    return np.nan_to_num(filled)
