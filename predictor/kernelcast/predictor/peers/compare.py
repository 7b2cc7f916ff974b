"""Robust comparison of members with their peers, for all groups at once: pure functions for the whole folder."""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints

LOW_QUANTILE: Final = 0.35
"""Quantile of absolute deviations from which `scatter` estimates a standard deviation."""
LOW_QUANTILE_OF_NORMAL: Final = 0.4538
"""The quantile of the absolute value of a standard normal variable."""


def median(values: Floats, axis: int, *, lower: bool = False) -> Floats:
    """Median along an axis without NaN; NaN where every value is NaN. numpy's own warns of that.

    With `lower`, the lower middle one of an even number of values, not the mean of both.
    """
    if values.shape[axis] == 1:
        return np.asarray(np.squeeze(values, axis=axis))
    ranked = np.sort(values, axis=axis)
    known = np.sum(~np.isnan(values), axis=axis, keepdims=True)
    low = np.take_along_axis(ranked, np.maximum((known - 1) // 2, 0), axis=axis)
    high = low if lower else np.take_along_axis(ranked, np.minimum(known // 2, values.shape[axis] - 1), axis=axis)
    return np.asarray(np.squeeze(np.where(known > 0, (low + high) / 2, np.nan), axis=axis))


def scatter(deviations: Floats) -> float:
    """Standard deviation of the healthy part of deviations from 0; NaN without any.

    A low quantile of the absolute values replaces their median, as several slow members also shift the reference
    of the healthy ones: two slow members of four make all four deviate.
    """
    known = np.abs(deviations[~np.isnan(deviations)])
    return float(_quantile(known, LOW_QUANTILE)) / LOW_QUANTILE_OF_NORMAL if len(known) else float("nan")


def _quantile(values: Floats, share: float) -> float:
    """A quantile, linear between two values as numpy's own, which takes ten times as long for a few hundred values."""
    ranked = np.sort(values)
    place = share * (len(ranked) - 1)
    below = int(place)
    part = place - below
    low, high = float(ranked[below]), float(ranked[min(below + 1, len(ranked) - 1)])
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def others_median(grid: Floats, *, lower: bool = False) -> Floats:
    """Median of the other values of the same row.

    Args:
        grid: Shape (rows, columns) or (rows, columns, k); NaN where a value is missing.
        lower: Of an even number of values take the lower middle one, not the mean of both.

    Returns:
        The shape of `grid`; NaN where no other value exists.
    """
    order = np.argsort(grid, axis=1, kind="stable")
    ranked = _along(grid, order)
    position: Ints = np.argsort(order, axis=1, kind="stable").astype(np.int64)
    known = np.sum(~np.isnan(grid), axis=1, keepdims=True)
    others: Ints = np.where(np.isnan(grid), known, known - 1).astype(np.int64)
    low = _without_own(ranked, position, (others - 1) // 2)
    high = low if lower else _without_own(ranked, position, others // 2)
    return np.where(others > 0, (low + high) / 2, np.nan)


def others_known(grid: Floats) -> Floats:
    """Number of other known values of the same row; shape of `grid`, (rows, columns)."""
    known = ~np.isnan(grid)
    return np.asarray(np.sum(known, axis=1, keepdims=True) - known.astype(np.float64))


def log_ratio(own: Floats, reference: Floats) -> Floats:
    """Logarithm of own by reference; NaN where either is missing or not positive."""
    usable = (own > 0) & (reference > 0)
    return np.log(np.where(usable, own, np.nan) / np.where(usable, reference, np.nan))


def _without_own(ranked: Floats, position: Ints, index: Ints) -> Floats:
    last = ranked.shape[1] - 1
    kept = np.clip(index, 0, last)
    shifted = np.where(kept >= position, np.minimum(kept + 1, last), kept)
    return _along(ranked, shifted)


def _along(values: Floats, index: Ints) -> Floats:
    """Values by their index along axis 1."""
    if values.ndim == 2:
        return np.asarray(values[np.arange(len(values))[:, np.newaxis], index])
    return np.asarray(np.take_along_axis(values, index, axis=1))
