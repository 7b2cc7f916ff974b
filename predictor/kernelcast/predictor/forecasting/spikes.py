"""Removes single values that differ from both neighbours: one broken reading must not widen later forecasts."""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.screening.blocks import MAD_TO_SIGMA, row_medians

_SPREADS: Final = 10.0


def without_spikes(values: Floats) -> Floats:
    """Replace spikes of one interval by the median of three; the newest value stays.

    Args:
        values: Shape (n, t), NaN for gaps.

    Returns:
        Shape (n, t).
    """
    if values.shape[1] < 3:
        return values
    before, here, after = values[:, :-2], values[:, 1:-1], values[:, 2:]
    middle = np.maximum(np.minimum(before, here), np.minimum(np.maximum(before, here), after))
    step = np.abs(np.diff(values, axis=1))
    spread = MAD_TO_SIGMA * row_medians(step)
    # A gauge that rarely changes has no spread: then its mean step is the measure.
    moved = np.nan_to_num(step)
    mean_step = moved.sum(axis=1) / np.maximum((moved > 0).sum(axis=1), 1)
    spread = np.where(spread > 0, spread, mean_step)
    spike = np.abs(here - middle) > _SPREADS * spread[:, None]
    found = values.copy()
    found[:, 1:-1] = np.where(spike, middle, here)
    return found
