"""Mean and median of groups of intervals, for many series at once: a pure function that makes blocks and hours."""

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Floats


def condense(values: NDArray[np.float32] | Floats, width: int) -> tuple[Floats, Floats]:
    """Means and medians of groups of consecutive values.

    Args:
        values: Shape (n, t), t a multiple of `width`; NaN where missing.
        width: Values in a group.

    Returns:
        Two arrays of shape (n, t // width); NaN for groups without a value.
    """
    if width == 1:
        return values.astype(np.float64), values.astype(np.float64)
    ordered = np.sort(values.reshape(len(values), values.shape[1] // width, width), axis=2)  # NaN goes last
    known = np.isfinite(ordered)
    count = known.sum(axis=2)
    mean = np.where(known, ordered, 0.0).sum(axis=2, dtype=np.float64) / np.where(count > 0, count, np.nan)
    places = np.stack([np.maximum((count - 1) // 2, 0), np.minimum(count // 2, width - 1)], axis=2)
    median = np.take_along_axis(ordered, places, axis=2).mean(axis=2, dtype=np.float64)
    return mean, np.where(count > 0, median, np.nan)
