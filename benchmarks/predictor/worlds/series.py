"""One simulated series of a world, and the world that makes it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.local_time import LocalTime


@dataclass(frozen=True, slots=True)
class WorldSeries:
    """One series with a known truth.

    Attributes:
        metric: Prometheus name.
        times: Unix times, seconds, ascending.
        values: float64, one for each time; NaN where there is no sample.
        limit: Limit of the metric, reached when the value is at or above it.
        onset: Unix time at which the fault begins; None for a healthy series.
        breach: Unix time at which the limit is reached for five minutes; None for a healthy series.
        companions: Values of other metrics of the same GPU at the same times, by Prometheus name.
        local_time: Clock and holidays that the settings of its site have.
    """

    metric: str
    times: NDArray[np.float64]
    values: NDArray[np.float64]
    limit: float
    onset: float | None = None
    breach: float | None = None
    companions: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    local_time: LocalTime = field(default_factory=LocalTime)


Make: TypeAlias = Callable[[np.random.Generator, float], WorldSeries]
"""Makes a series of some days."""


@dataclass(frozen=True, slots=True)
class World:
    """A shape of series.

    Attributes:
        name: Its name in tables.
        healthy: Whether its series have no fault.
        make: Makes one series from a random generator and a number of days.
        note: Description of the shape.
    """

    name: str
    healthy: bool
    make: Make
    note: str
