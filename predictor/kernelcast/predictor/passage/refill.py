"""Series that fall at once and rise again, as a cache that is emptied or memory after a restart.

A rise up to the level before the fall is no drift.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats

_FALL_SHARE: Final = 0.25
_FALL_NOISE: Final = 8.0
_MARGIN_SHARE: Final = 0.15


def refilling(values: Floats, noise: Floats, target: Floats) -> Bools:
    """Whether each series is below the level from which it fell, shape (n,).

    Args:
        values: Shape (n, b), so directed that a rise is bad; NaN for gaps.
        noise: Shape (n,), standard deviation of a block.
        target: Shape (n,), the limit; a fall from there does not count, as it was a breach.
    """
    known = np.where(np.isfinite(values), values, -np.inf)
    peak = np.maximum.accumulate(known, axis=1)
    lowest = np.where(np.isfinite(known), known, np.inf).min(axis=1)
    span = np.maximum(peak[:, -1] - lowest, 0.0)
    bar = np.maximum(_FALL_SHARE * span, _FALL_NOISE * noise)
    before, after = known[:, :-2], known[:, 2:]
    both = np.isfinite(before) & np.isfinite(after)
    fall = np.where(both, np.where(both, before, 0.0) - np.where(both, after, 0.0), 0.0)
    falls = fall > bar[:, None]
    last = np.where(falls.any(axis=1), falls.shape[1] - 1 - np.argmax(falls[:, ::-1], axis=1), -1)
    rows = np.arange(len(values))
    top = peak[rows, np.maximum(last, 0)]
    size = np.where(last >= 0, fall[rows, np.maximum(last, 0)], 0.0)
    newest = np.where(np.isfinite(known[:, -1]), known[:, -1], -np.inf)
    found: Bools = (last >= 0) & (newest < top + _MARGIN_SHARE * size) & (top < target - 0.02 * np.abs(target))
    return found
