"""Removes single values far outside of all earlier ones: one broken reading must not widen later forecasts.

A value is judged when it comes, by earlier values alone. So the first value of a step to a level that the series never
had is replaced as well; the next one confirms it.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.forecasting.rolling import forward_filled
from kernelcast.predictor.robust import MAD_TO_SIGMA, row_medians

_SPREADS: Final = 10.0
"""Distance from the median of three values, in usual changes, from which a value is a spike."""
_MEMORY: Final = 96
"""Changes from one interval to the next that show how much a series moves."""
_LEAST_CHANGES: Final = 8
"""Changes that must be known before a value can be a spike."""
_AT_ONCE: Final = 4096
"""Values whose earlier changes are copied together: in a series that only rises, every value is a new maximum."""


def without_spikes(values: Floats) -> Floats:
    """Replace first values far outside of the range of all earlier ones by the median of the last three.

    Args:
        values: Shape (n, t), NaN for gaps.

    Returns:
        Shape (n, t); each column rests on itself and earlier ones.
    """
    if values.shape[1] < _LEAST_CHANGES + 2:
        return values
    low = np.fmin.accumulate(values, axis=1)[:, :-1]
    high = np.fmax.accumulate(values, axis=1)[:, :-1]
    row, column = np.nonzero((values[:, 1:] < low) | (values[:, 1:] > high))
    column += 1
    late = column > _LEAST_CHANGES
    row, column = row[late], column[late]
    if not len(row):
        return values
    filled = forward_filled(values)
    before, recent, here = filled[row, column - 2], filled[row, column - 1], filled[row, column]
    middle = np.maximum(np.minimum(before, recent), np.minimum(np.maximum(before, recent), here))
    spike = np.abs(here - middle) > _SPREADS * _usual_change(values, row.astype(np.int64), column.astype(np.int64))
    replaced = values.copy()
    replaced[row[spike], column[spike]] = middle[spike]
    return replaced


def _usual_change(values: Floats, row: Ints, column: Ints) -> Floats:
    """Robust size of the changes before some values, shape (k,); infinite where too few are known."""
    change = np.pad(np.abs(np.diff(values, axis=1)), ((0, 0), (_MEMORY, 0)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(change, _MEMORY, axis=1)
    parts = (slice(begin, begin + _AT_ONCE) for begin in range(0, len(row), _AT_ONCE))
    return np.concatenate([_usual(windows[row[part], column[part] - 1]) for part in parts])


def _usual(changes: Floats) -> Floats:
    """Robust size of the changes in each row; infinite where too few are known."""
    known = np.isfinite(changes).sum(axis=1)
    spread = MAD_TO_SIGMA * row_medians(changes)
    # A gauge that rarely changes has no spread: then its mean change is the measure.
    moved = np.nan_to_num(changes)
    mean = moved.sum(axis=1) / np.maximum((moved > 0).sum(axis=1), 1)
    usual = np.where(spread > 0, spread, mean)
    return np.where((known >= _LEAST_CHANGES) & (usual > 0), usual, np.inf)
