"""Simulated series without a fault, one value a minute, on which a detector should be silent."""

from collections.abc import Callable
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats

Generator = np.random.Generator

DAY: Final = 1440


def white(rng: Generator, rows: int) -> Floats:
    """Independent normal noise."""
    return 50 + rng.uniform(0.5, 5) * rng.standard_normal(rows)


def autoregressive(rng: Generator, rows: int) -> Floats:
    """AR(1) with a coefficient of 0.5, 0.9 or 0.97."""
    weight = rng.choice([0.5, 0.9, 0.97])
    values = rng.standard_normal(rows)
    for row in range(1, rows):
        values[row] += weight * values[row - 1]
    return 100 + values


def diurnal(rng: Generator, rows: int) -> Floats:
    """Two harmonics of a day whose size differs from day to day."""
    phase = 2 * np.pi * np.arange(rows) / DAY
    size = rng.uniform(2, 15) * np.repeat(1 + 0.15 * rng.standard_normal(rows // DAY + 1), DAY)[:rows]
    shape = np.sin(phase + rng.uniform(0, 6)) + 0.3 * np.sin(2 * phase + rng.uniform(0, 6))
    return 60 + size * shape + rng.standard_normal(rows)


def stepped(rng: Generator, rows: int) -> Floats:
    """A constant with rare steps of one unit and back."""
    values = np.full(rows, rng.integers(60, 100), np.float64)
    values += (rng.random(rows) < 1 / 500) * rng.choice([-1, 1], rows)
    return values


def rounded(rng: Generator, rows: int) -> Floats:
    """Noise as an integer sensor shows it."""
    return np.round(65 + rng.uniform(0.3, 2) * rng.standard_normal(rows))


def sawtooth(rng: Generator, rows: int) -> Floats:
    """Grows and falls back, with a period of 1 to 12 hours."""
    ramp = np.arange(rows) % rng.integers(60, 720)
    return 20 + rng.uniform(0.5, 2) * ramp + rng.uniform(0.1, 3) * rng.standard_normal(rows)


def student(rng: Generator, rows: int) -> Floats:
    """Student's t with three degrees of freedom."""
    return 10 + rng.standard_t(3, rows)


def lognormal(rng: Generator, rows: int) -> Floats:
    """Skewed, with a heavy tail, such as a latency."""
    return rng.lognormal(0, 0.8, rows)


def bursts(rng: Generator, rows: int) -> Floats:
    """Noise with a large value in one interval of a hundred."""
    return 5 + 0.5 * rng.standard_normal(rows) + (rng.random(rows) < 0.01) * rng.exponential(20, rows)


def jobs(rng: Generator, rows: int) -> Floats:
    """Idle and busy in turn, for two hours on average."""
    lengths = 20 + rng.exponential(120, rows // 20).astype(np.int64)
    levels = np.where(np.arange(len(lengths)) % 2, rng.uniform(60, 98, len(lengths)), 1.0)
    return np.repeat(levels, lengths)[:rows] + 0.8 * rng.standard_normal(rows)


KINDS: Final[tuple[Callable[[Generator, int], Floats], ...]] = (
    white,
    autoregressive,
    diurnal,
    stepped,
    rounded,
    sawtooth,
    student,
    lognormal,
    bursts,
    jobs,
)
