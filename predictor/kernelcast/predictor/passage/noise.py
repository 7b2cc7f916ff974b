"""Noise of a block and its correlation with the next one, from the last day of each series.

`trend` computes errors of slopes from it, `detector` the noise of slow blocks.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.passage.series import DAY_BLOCKS
from kernelcast.predictor.robust import MAD_TO_SIGMA, row_medians

RESOLUTION_NOISE: Final = 0.4
"""Smallest assumed noise of a block, in steps of the gauge; rounding alone makes 0.29 of a step."""
_MOST_CORRELATION: Final = 0.9
"""Correlation of neighbouring blocks at which the table `_HOURLY` ends."""
_MEMORY_HOURS: Final = 3.0
"""Hours that the usual correlation, 0.24, weighs beside measured ones."""
_MEMORY_ERRORS: Final = 0.5
"""Standard errors that are added to the correlation."""


def change_noise(values: Floats) -> Floats:
    """Noise of a block, shape (n,), from the changes between neighbours, which a fall from time to time spares."""
    change = np.diff(values, axis=1)
    spread: Floats = MAD_TO_SIGMA / np.sqrt(2.0) * row_medians(np.abs(change - row_medians(change)[:, None]))
    return spread


def block_noise(values: Floats, resolution: Floats | float) -> tuple[Floats, Floats, Floats]:
    """Noise of a block around the running median of an hour, its correlation, and a cautious one for slopes."""
    day = values[:, -DAY_BLOCKS:]
    whole = day.shape[1] // 12 * 12
    parts = day[:, -whole:].reshape(len(day), whole // 12, 12)
    hourly = row_medians(parts.reshape(-1, 12)).reshape(len(day), -1)
    rest = parts - hourly[:, :, None]
    # Within an hour a drift adds to the spread; its straight part is taken out.
    middle = np.arange(12) - 5.5
    tilt = np.nansum(rest * middle, axis=2) / (middle @ middle)
    rest -= tilt[:, :, None] * middle
    spread = MAD_TO_SIGMA * row_medians(np.abs(rest.reshape(len(day), whole)))
    bound = 4.0 * np.maximum(spread, RESOLUTION_NOISE * resolution)[:, None, None]
    clipped = np.nan_to_num(np.clip(rest, -bound, bound))
    variance, neighbours, hours = _of_calm_hours(clipped, np.isfinite(rest).sum(axis=2))
    ratio = neighbours / variance
    correlation, left = (np.interp(ratio * hours / (hours + 1), _HOURLY[0], column) for column in _HOURLY[1:])
    sigma = np.sqrt(np.maximum(variance / left, (RESOLUTION_NOISE * resolution) ** 2))
    # A few hours say little about the memory, and a slope seems certain where it is underestimated.
    weight = hours + _MEMORY_HOURS
    memory = np.interp(ratio * hours / weight + _MEMORY_ERRORS / np.sqrt(12.0 * weight), *_HOURLY[:2])
    return sigma, correlation, memory


def _of_calm_hours(rest: Floats, known: Ints) -> tuple[Floats, Floats, Ints]:
    """Variance of blocks, covariance of neighbours, and hours that count; `known` is the number of blocks in each."""
    # A line through an hour with gaps is no fit: the fullest hours count.
    full = known > 0.9 * known.max(axis=1, keepdims=True)
    power = np.where(full, (rest**2).sum(axis=2) / np.maximum(known, 1), np.nan)
    pairs = (rest[:, :, 1:] * rest[:, :, :-1]).sum(axis=2) / np.maximum(known - 1, 1)
    # A step or the onset of a drift is no noise: it spoils the hour in which it lies.
    hours = full.sum(axis=1)
    hours -= hours // 12
    order = np.argsort(power, axis=1)
    calm = np.arange(order.shape[1]) < hours[:, None]
    variance, neighbours = (
        np.where(calm, np.take_along_axis(one, order, 1), 0.0).sum(axis=1) / np.maximum(hours, 1)
        for one in (power, pairs)
    )
    return np.maximum(variance, 1e-30), neighbours, hours


def _hourly() -> tuple[Floats, Floats, Floats]:
    """Table for noise around lines through hours: its correlation, the correlation without lines, its variance."""
    true = np.linspace(0.0, _MOST_CORRELATION, 19)
    place = np.arange(12.0)
    line = np.stack([np.full(12, 12**-0.5), (place - 5.5) / np.linalg.norm(place - 5.5)])
    rest = np.eye(12) - line.T @ line
    left = rest @ true[:, None, None] ** np.abs(np.subtract.outer(place, place)) @ rest
    variance = np.trace(left, axis1=1, axis2=2) / 12
    return np.trace(left, 1, 1, 2) / 11 / variance, true, variance


_HOURLY: Final = _hourly()
