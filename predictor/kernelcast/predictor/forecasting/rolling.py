"""Statistics at every interval of a panel, each made of that interval and earlier ones only.

All functions take and return float64 arrays of shape (n, t), series by intervals, the newest last. Linear recursions
run as filters (scipy.signal.lfilter), so their cost does not depend on the interpreter.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kernelcast.predictor.arrays import Bools, Floats

BYTES_AT_ONCE: Final = 64 * 2**20
"""A rolling median copies each window; rows are taken in groups whose copies have this size at most."""
LEAST_WINDOWS: Final = 10_000
"""Values from which on a rolling median uses machine code."""


def _filtered(numerator: Sequence[float], denominator: Sequence[float], values: Floats, **options: Any) -> Any:
    """Filter rows with scipy.signal.lfilter; scipy.signal is imported with the first call."""
    from scipy.signal import lfilter  # noqa: PLC0415  takes as long as all other imports of a predictor

    return lfilter(numerator, denominator, values, **options)


def forward_filled(values: Floats) -> Floats:
    """Each gap filled with the value before it; gaps at the beginning with the first value, empty rows with 0."""
    known = ~np.isnan(values)
    newest = np.maximum.accumulate(np.where(known, np.arange(values.shape[1]), -1), axis=1)
    newest = np.where(newest < 0, np.argmax(known, axis=1)[:, None], newest)
    return np.nan_to_num(np.take_along_axis(values, newest, axis=1), nan=0.0)


def begun(values: Floats) -> Bools:
    """Mask of the intervals since the first value of each series; a filled value before it rests on the future."""
    had: Bools = np.logical_or.accumulate(~np.isnan(values), axis=1)
    return had


def lagged(values: Floats, lag: int) -> Floats:
    """The value `lag` intervals earlier, along the last axis; NaN where there is none."""
    shifted = np.full_like(values, np.nan)
    if lag < values.shape[-1]:
        shifted[..., lag:] = values[..., : values.shape[-1] - lag]
    return shifted


def exponential_mean(values: Floats, alpha: float) -> Floats:
    """Simple exponential smoothing, begun at the first value."""
    start = (1 - alpha) * values[:, :1]
    smoothed: Floats = _filtered([alpha], [1, alpha - 1], values, axis=1, zi=start)[0]
    return smoothed


def damped_trend(values: Floats, alpha: float, beta: float, phi: float) -> tuple[Floats, Floats]:
    """Level and slope of additive exponential smoothing with a damped trend, begun at the first value and slope 0.

    The recursion `l = a*y + (1-a)*(l' + phi*b')`, `b = b*(l-l') + (1-b)*phi*b'` is linear: level and slope are
    second-order filters of the values. Source: Hyndman and others, Forecasting with Exponential Smoothing, 2008,
    table 2.1.

    Args:
        values: Without gaps.
        alpha: Weight of a new value in the level.
        beta: Weight of a new difference of levels in the slope.
        phi: Damping of the slope.
    """
    own, cross = 1 - alpha, (1 - alpha) * phi
    back, keep = -alpha * beta, phi * (1 - alpha * beta)
    recursion = [1, -(own + keep), own * keep - cross * back]
    centred = values - values[:, :1]
    level = _filtered([alpha, -keep * alpha + cross * alpha * beta], recursion, centred, axis=1)
    slope = _filtered([alpha * beta, back * alpha - own * alpha * beta], recursion, centred, axis=1)
    return level + values[:, :1], slope


def rolling_median(values: Floats, length: int, every: int = 1) -> Floats:
    """Median of the last `length` values; the first value is repeated before the beginning.

    Args:
        values: Without gaps.
        length: Number of values.
        every: Intervals from one median to the next; each is held until then.
    """
    if values.size >= LEAST_WINDOWS:
        from kernelcast.predictor.forecasting import machine_code  # noqa: PLC0415  small panels need no compiler

        return machine_code.medians(values, length, every)
    result = np.empty_like(values)
    columns = -(-values.shape[1] // every)
    group = max(1, BYTES_AT_ONCE // (8 * length * columns))
    for begin in range(0, len(values), group):
        part = values[begin : begin + group]
        padded = np.concatenate([np.repeat(part[:, :1], length - 1, axis=1), part], axis=1)
        # Faster than np.median: numpy sorts many short rows with vector instructions.
        ordered = np.sort(sliding_window_view(padded, length, axis=1)[:, ::every], axis=2)
        medians = (ordered[:, :, (length - 1) // 2] + ordered[:, :, length // 2]) / 2
        result[begin : begin + group] = np.repeat(medians, every, axis=1)[:, : values.shape[1]]
    return result


def seasonal_mean(values: Floats, season: int, lead: int, cycles: int) -> Floats:
    """Mean of the last `cycles` values that have the phase of `lead` intervals ahead; NaN before the first one."""
    nearest = -(-lead // season)
    total, count = np.zeros_like(values), np.zeros_like(values)
    for cycle in range(nearest, nearest + cycles):
        earlier = lagged(values, cycle * season - lead)
        there = ~np.isnan(earlier)
        total[there] += earlier[there]
        count += there
    with np.errstate(invalid="ignore"):
        mean: Floats = total / count
    return mean


def recent_mean(values: Floats, valid: Bools, memory: float) -> Floats:
    """Exponentially weighted mean of the valid values so far; NaN before the first. Any leading axes.

    Args:
        values: Shape (..., t).
        valid: Which of them count.
        memory: Intervals after which a value has lost 63 % of its weight.
    """
    decay = [1, 1 / memory - 1]
    total = _filtered([1 / memory], decay, np.where(valid, values, 0.0), axis=-1)
    weight = _filtered([1 / memory], decay, valid.astype(float), axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = total / weight
    return mean
