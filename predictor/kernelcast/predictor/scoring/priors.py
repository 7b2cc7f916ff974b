"""Factors of intervals that simulated series needed, by class of metric and state; a site's own outcomes replace them.

Shipped for one horizon, 4 hours. There the days before a deploy or a fault do not show its effect, and the outcomes of
a day rest on six times. A step that nothing announces is as large in a quiet series as in a noisy one, so the factors
scale a base half-width that is partly a share of the value.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

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
        widths: Shape (classes, states, coverages, 2), base half-width, which the factors scale: multiple of the
            forecast's own half-width, and share of its median that is added; NaN for classes without.
    """

    origin: str
    horizon_seconds: float
    needed: Floats
    widths: Floats

    def concerns(self, horizons_seconds: Floats) -> Bools:
        """Mask of the horizons that it is for, shape (h,)."""
        found: Bools = np.abs(np.log(horizons_seconds / self.horizon_seconds)) <= np.log(_NEAREST)
        return found


def with_base_widths(quantiles: Floats, widths: Floats, pairs: tuple[tuple[int, int], ...], median: int) -> Floats:
    """Give each interval its base half-widths, which the factors scale; returns quantiles of shape (n, levels).

    Args:
        quantiles: Shape (n, levels).
        widths: Shape (n, intervals, 2), as in `Prior`; intervals of NaN stay as they are.
        pairs: Places of the bounds of each interval.
        median: Place of the median.
    """
    found, center = quantiles.copy(), quantiles[:, median]
    for place, (low, high) in enumerate(pairs):
        known = np.isfinite(widths[:, place]).all(axis=1)
        own = np.where(known, widths[:, place, 0], 1.0)
        added = np.where(known, widths[:, place, 1], 0.0) * np.abs(center)
        found[:, low] = center - own * (center - quantiles[:, low]) - added
        found[:, high] = center + own * (quantiles[:, high] - center) + added
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
    needed, widths = (_by_class(data[name]) for name in ("classes", "widths"))
    return Prior(data["origin"], float(data["horizon_seconds"]), needed, widths)


def _by_class(values: Mapping[str, Any]) -> Floats:
    """An array with the classes as its first axis; NaN for those without values."""
    found = np.full((len(CLASSES), *np.shape(next(iter(values.values())))), np.nan)
    for name, one in values.items():
        found[CLASSES.index(name)] = one
    return found
