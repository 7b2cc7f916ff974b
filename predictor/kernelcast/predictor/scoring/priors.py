"""Factors of intervals that simulated series needed, by class of metric and state; a site's own outcomes replace them.

Shipped for one horizon, 4 hours. There the days before a deploy or a fault do not show its effect, and the outcomes of
a day rest on six times.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring.classes import CLASSES

STATES: Final = 3
_EDGES: Final = (1.0, 2.0)
"""Surprises, in half-widths of the 80 % interval, that divide the states: as forecast, off, far off."""
_FILE: Final = "factors.json"
_NEAREST: Final = 1.5
"""Largest ratio of another horizon to that of the factors."""


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Distribution of needed factors.

    Attributes:
        origin: Where the outcomes come from.
        horizon_seconds: Of the forecasts.
        needed: Shape (classes, states, coverages, knots), equally likely values, ascending; NaN for classes without.
    """

    origin: str
    horizon_seconds: float
    needed: Floats

    def concerns(self, horizons_seconds: Floats) -> Bools:
        """Mask of the horizons that it is for, shape (h,)."""
        found: Bools = np.abs(np.log(horizons_seconds / self.horizon_seconds)) <= np.log(_NEAREST)
        return found


def states(surprise: Floats) -> Ints:
    """State of series, shape (n,); the first one where the surprise is not known."""
    return np.digitize(np.nan_to_num(surprise), _EDGES).astype(np.int64)


def surprises(value: Floats, median: Floats, lower: Floats, upper: Floats) -> Floats:
    """Distance of values from the forecasts of them, in half-widths of their 80 % intervals; NaN for unknown ones.

    Args:
        value: Shape (n,), the values.
        median: Shape (n,), their forecasts.
        lower: Shape (n,), lower bound of the interval.
        upper: Shape (n,), its upper bound.
    """
    half = np.where(value > median, upper - median, median - lower)
    away = np.abs(value - median)
    found: Floats = np.where(half > 0, away / np.where(half > 0, half, 1.0), np.where(away > 0, np.inf, 0.0))
    return np.where(np.isfinite(half + away), found, np.nan)


@cache
def shipped() -> Prior:
    """The factors that come with the package; fitted by `python -m benchmarks.predictor.fitting.factors`."""
    data = json.loads(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
    classes = data["classes"]
    one = np.array(next(iter(classes.values())), np.float64)
    needed = np.full((len(CLASSES), *one.shape), np.nan)
    for name, values in classes.items():
        needed[CLASSES.index(name)] = values
    return Prior(data["origin"], float(data["horizon_seconds"]), needed)
