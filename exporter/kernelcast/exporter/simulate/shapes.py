"""Shapes over time of faults and backgrounds: pure functions of the time since they began.

The fleet evaluates them at one moment, the benchmarks of the predictor for whole series at once, so both have the same
faults. Times are in seconds, as a number or as an array; results are arrays of the same shape.
"""

from typing import TypeAlias

import numpy as np

from kernelcast.exporter.simulate.program import FloatArray

Times: TypeAlias = FloatArray | float


def linear(elapsed: Times, per_second: float) -> FloatArray:
    """Growth at a constant rate, 0 before the beginning."""
    return np.asarray(np.maximum(elapsed, 0.0) * per_second, dtype=np.float64)


def ramp(elapsed: Times, over: float) -> FloatArray:
    """Share of a change that is complete: 0 at the beginning, 1 after `over` seconds; a step where `over` is 0."""
    since = np.asarray(elapsed, dtype=np.float64)
    return np.where(since < 0, 0.0, np.minimum(since / over, 1.0) if over else 1.0)


def saturating(elapsed: Times, time_constant: float) -> FloatArray:
    """Share of a change that is complete when it slows down as it approaches its end, as a body that warms up."""
    since = np.maximum(np.asarray(elapsed, dtype=np.float64), 0.0)
    return 1.0 - np.exp(-since / time_constant)


def periodic(elapsed: Times, period: float) -> FloatArray:
    """A sine of amplitude 1 that begins at 0."""
    return np.asarray(np.sin(2.0 * np.pi * np.asarray(elapsed) / period), dtype=np.float64)


def sawtooth(elapsed: Times, period: float) -> FloatArray:
    """Rises from 0 to 1 in each period and falls back at once, as a cache that is emptied."""
    return np.asarray(np.mod(np.asarray(elapsed, dtype=np.float64), period) / period)


def spikes(elapsed: Times, every: float, length: float) -> FloatArray:
    """1 for `length` seconds of each `every` seconds, else 0."""
    return np.where(np.mod(np.asarray(elapsed, dtype=np.float64), every) < length, 1.0, 0.0)


def opening(elapsed: Times, length: float) -> FloatArray:
    """1 for the first `length` seconds, else 0: compilation, autotuning, or clocks that are still cold."""
    since = np.asarray(elapsed, dtype=np.float64)
    return np.where((since >= 0) & (since < length), 1.0, 0.0)
