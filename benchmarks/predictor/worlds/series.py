"""What a test world is, and what one draw of it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class WorldSeries:
    """One series of a world, with the truth about its fault.

    `times` are Unix seconds (UTC), increasing; `values` are in the metric's own unit, NaN where there is no sample. The
    limit is reached where values >= limit. `onset` is when the fault begins, `breach` the first time at which it brings
    the series to its limit, both in Unix seconds; None means never. `companions` are other series on the same times.
    """

    metric: str
    times: NDArray[np.float64]
    values: NDArray[np.float64]
    limit: float
    onset: float | None
    breach: float | None
    companions: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class World:
    """A way for a series to behave; `make` draws one series of the given number of days, each draw a different one."""

    name: str
    healthy: bool
    make: Callable[[np.random.Generator, float], WorldSeries]
    note: str
