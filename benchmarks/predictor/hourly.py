"""Hourly series of the kind of the M4 competition: read from its files, or simulated."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import Generator

from kernelcast.predictor.arrays import Floats

STEPS: Final = 48
DAY: Final = 24
WEEK: Final = 168
HISTORY: Final = 700
SIMULATED: Final = 120


@dataclass(frozen=True)
class Hourly:
    """One series.

    Attributes:
        history: Shape (t,).
        future: Shape (48,).
    """

    history: Floats
    future: Floats


def from_folder(folder: Path) -> list[Hourly]:
    """Series of a folder with M4's files: `*train.csv` and `*test.csv`, one series a line, its name first."""
    train, test = (_lines(next(iter(sorted(folder.rglob(pattern))))) for pattern in ("*train.csv", "*test.csv"))
    return [Hourly(values, test[name][:STEPS]) for name, values in train.items() if name in test]


def _lines(path: Path) -> dict[str, Floats]:
    with path.open(newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return {row[0]: np.array([float(cell) for cell in row[1:] if cell not in {"", "NA"}]) for row in rows}


def simulated(seed: int, count: int = SIMULATED) -> list[Hourly]:
    """Series with a day's and a week's profile, drift, autocorrelated noise, and some that are skewed or cut at 0."""
    rng = np.random.default_rng(seed)
    values = [_one(rng) for _ in range(count)]
    return [Hourly(one[:HISTORY], one[HISTORY:]) for one in values]


def _one(rng: Generator) -> Floats:
    hours = np.arange(HISTORY + STEPS)
    day = np.cumsum(rng.normal(size=DAY))
    day -= np.linspace(0, day[-1], DAY)
    week = np.repeat(np.where(rng.random(7) < 0.3, rng.normal(0, 1.5), 0.0), DAY)
    strength = 1 + 0.5 * rng.random() * week[hours % WEEK] * (rng.random() < 0.7)
    drift = np.cumsum(rng.normal(0, rng.choice([0, 0.02, 0.1]), len(hours)))
    trend = rng.normal() * 0.01 * hours * (rng.random() < 0.5)
    season = (day - day.mean())[hours % DAY] * strength * rng.choice([1, 3, 8])
    values = 50 + drift + trend + season + week[hours % WEEK] * rng.choice([0, 2, 5]) + _noise(rng, len(hours))
    if rng.random() < 0.3:
        values = np.exp(values / 30)
    if rng.random() < 0.2:
        values = np.maximum(values - np.quantile(values, 0.3), 0)
    return np.asarray(np.round(values, 2))


def _noise(rng: Generator, length: int) -> Floats:
    shocks = rng.normal(0, rng.choice([0.3, 1, 3]), length)
    share, noise = float(rng.choice([0, 0.6, 0.9])), np.zeros(length)
    for index in range(1, length):
        noise[index] = share * noise[index - 1] + shocks[index]
    return noise
