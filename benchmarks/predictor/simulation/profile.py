"""Profile of one series: what acts on its GPU and its kernel in each interval."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from benchmarks.predictor.simulation.scenario import NEVER

from kernelcast.predictor.arrays import Floats, Ints

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Grid:
    """Times of all series.

    Attributes:
        interval_seconds: Length of an interval.
        history: Intervals before the evaluation.
        length: Intervals in all.
    """

    interval_seconds: float = 60.0
    history: int = 1440
    length: int = 2880

    @property
    def seconds(self) -> Floats:
        """Shape (length,), time of each interval since the beginning."""
        return np.arange(self.length, dtype=np.float64) * self.interval_seconds

    @property
    def begin_seconds(self) -> float:
        """Start of the evaluation."""
        return self.history * self.interval_seconds

    @property
    def end_seconds(self) -> float:
        """End of the evaluation."""
        return self.length * self.interval_seconds


class Profile:
    """Arrays of shape (t,), changed by the class that draws them; at first a GPU at its usual load, without noise.

    Attributes:
        metric: "temperature", "memory", "load" or "kernel".
        heat_c, load, kernel, bandwidth, memory_mib: As `Influence`; memory is the program's.
        version, process: As `Scenarios`.
        load_noise, kernel_noise: Standard deviations, relative.
        spike: Factor on the observed kernel duration only.
        onset_seconds: When the fault begins; None without one.
    """

    def __init__(self, metric: str, grid: Grid) -> None:
        self.metric = metric
        self.grid = grid
        self.seconds = grid.seconds
        t = grid.length
        self.heat_c = np.zeros(t)
        self.load = np.ones(t)
        self.kernel = np.ones(t)
        self.bandwidth = np.ones(t)
        self.memory_mib = np.zeros(t)
        self.version: Ints = np.zeros(t, dtype=np.int64)
        self.process: Ints = np.zeros(t, dtype=np.int64)
        self.expected = np.ones(t)
        self.load_noise = 0.02
        self.kernel_noise = 0.01
        self.spike = np.ones(t)
        self.onset_seconds: float | None = None

    @property
    def onset(self) -> int:
        """First interval of the fault."""
        if self.onset_seconds is None:
            return NEVER
        return int(np.searchsorted(self.seconds, self.onset_seconds))

    def since(self, seconds: float) -> Floats:
        """Time since a moment; negative before it."""
        return self.seconds - seconds

    def after(self, seconds: float) -> slice:
        """The intervals from a moment on."""
        return slice(int(np.searchsorted(self.seconds, seconds)), None)
