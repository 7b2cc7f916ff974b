"""Chooses between fitted models and the combination of the fast methods, by their past errors on the same series.

At every interval the forecast is the combination, or its mean with one of the models or with all of them, whichever had
the least error recently; it replaces the combination only if its error was at least 6 % less.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.forecasting.rolling import lagged, recent_mean

LEAST_ERRORS: Final = 48
"""Errors of a model, at the same lead, before it can be used."""
LEAST_GAIN: Final = 0.94
"""Ratio of errors below which a model replaces the combination."""
MEMORY_INTERVALS: Final = 336.0
"""Intervals after which an error has lost 63 % of its weight."""


def shares(names: int) -> Floats:
    """Shares of the combination and of each model in each candidate, shape (candidates, 1 + names)."""
    alone = [[0.5, *(0.5 * (each == other) for other in range(names))] for each in range(names)]
    together = [[1 / (1 + names)] * (1 + names)] if names > 1 else []
    return np.array([[1.0] + [0.0] * names, *alone, *together])


def selected(fast: Floats, models: Mapping[str, Floats], values: Floats, known: Bools, lead: int) -> tuple[Floats, ...]:
    """Choose at every interval by the errors so far.

    Args:
        fast: Shape (n, t), the combination, made at each interval.
        models: Forecasts of each model, of the same shape; NaN where it has none.
        values: Shape (n, t), without gaps.
        known: Where there was a value.
        lead: Intervals from the origin to the forecast.

    Returns:
        The forecast, shape (n, t); and the shares of the combination and of each model in the last one, shape
        (n, 1 + models).
    """
    weights = shares(len(models))
    center, choice = fast.copy(), np.zeros(len(fast), np.int64)
    memory = max(MEMORY_INTERVALS, 4.0 * lead)
    plain = np.abs(values - lagged(fast, lead))
    least = np.full(fast.shape, LEAST_GAIN)
    stacked = np.stack([fast, *models.values()])
    for number, share in enumerate(weights[1:], 1):
        mixed = np.tensordot(share[share > 0], stacked[share > 0], axes=1)
        errors = np.abs(values - lagged(mixed, lead))
        valid = known & np.isfinite(errors)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = recent_mean(errors, valid, memory) / recent_mean(plain, valid, memory)
        better = (ratio < least) & (np.cumsum(valid, axis=1) >= LEAST_ERRORS) & np.isfinite(mixed)
        center, least = np.where(better, mixed, center), np.where(better, ratio, least)
        choice = np.where(better[:, -1], number, choice)
    return center, weights[choice]
