"""Factors of intervals that simulated series needed, by class of metric and state; a site's own outcomes replace them.

Shipped for 5 and 15 minutes, 1 and 4 hours. The days before a deploy or a fault do not show its effect, and at 4 hours
the outcomes of a day rest on six times. A step that nothing announces is as large in a quiet series as in a noisy one,
so the factors scale a base half-width that is partly a share of the value.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.scoring.classes import CLASSES

STATES: Final = 3
NO_PLACE: Final = -1
_EDGES: Final = (1.0, 2.0)
"""Surprises, in half-widths of the 80 % interval, that divide the states: as forecast, off, far off."""
_FILE: Final = "factors.json"
_NEAREST: Final = 1.5
"""Largest ratio of another horizon to that of the factors."""


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Distributions of needed factors.

    Attributes:
        origin: Where the outcomes come from.
        horizons_seconds: Shape (p,), of the forecasts.
        leads: Shape (p,), blocks of each horizon: errors of 150 short blocks ahead are not those of one long block.
        needed: Shape (p, classes, states, coverages, knots), equally likely values, ascending; NaN for classes without.
        widths: Shape (p, classes, states, coverages, 2), base half-width, which the factors scale: multiple of the
            forecast's own half-width, and share of its median that is added; NaN for classes without.
    """

    origin: str
    horizons_seconds: Floats
    leads: Ints
    needed: Floats
    widths: Floats

    def places(self, horizons_seconds: Floats, leads: Ints) -> Ints:
        """Places of the horizons that others are near to, in seconds and in blocks, shape (h,); `NO_PLACE` for none.

        Args:
            horizons_seconds: Shape (h,), the others.
            leads: Shape (h,), blocks of each.
        """
        apart = np.maximum(_apart(horizons_seconds, self.horizons_seconds), _apart(leads, self.leads))
        return np.where(apart.min(axis=1) <= np.log(_NEAREST), apart.argmin(axis=1), NO_PLACE).astype(np.int64)


def _apart(one: Floats | Ints, other: Floats | Ints) -> Floats:
    """Logarithm of the ratio of each value of one array to each of another, without its sign."""
    apart: Floats = np.abs(np.log(one[:, None] / other))
    return apart


def with_base_widths(quantiles: Floats, widths: Floats, pairs: tuple[tuple[int, int], ...], median: int) -> Floats:
    """Give each interval its base half-widths, which the factors scale; returns quantiles of shape (n, levels).

    Args:
        quantiles: Shape (n, levels).
        widths: Shape (n, intervals, 2), as in `Prior`; intervals of NaN stay as they are.
        pairs: Places of the bounds of each interval.
        median: Place of the median.
    """
    widened, center = quantiles.copy(), quantiles[:, median]
    for place, (low, high) in enumerate(pairs):
        known = np.isfinite(widths[:, place]).all(axis=1)
        own = np.where(known, widths[:, place, 0], 1.0)
        added = np.where(known, widths[:, place, 1], 0.0) * np.abs(center)
        widened[:, low] = center - own * (center - quantiles[:, low]) - added
        widened[:, high] = center + own * (quantiles[:, high] - center) + added
    return widened


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
    distances: Floats = np.where(half > 0, away / np.where(half > 0, half, 1.0), np.where(away > 0, np.inf, 0.0))
    return np.where(np.isfinite(half + away), distances, np.nan)


@cache
def shipped() -> Prior:
    """The factors that come with the package; fitted by `python -m benchmarks.predictor.fitting.factors`."""
    data = json.loads(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
    each = data["horizons"]
    needed, widths = (np.stack([_by_class(horizon[name]) for horizon in each]) for name in ("classes", "widths"))
    seconds, leads = (np.array([horizon[name] for horizon in each]) for name in ("seconds", "blocks"))
    return Prior(data["origin"], seconds, leads, needed, widths)


def _by_class(values: Mapping[str, Any]) -> Floats:
    """An array with the classes as its first axis; NaN for those without values."""
    by_class = np.full((len(CLASSES), *np.shape(next(iter(values.values())))), np.nan)
    for name, value in values.items():
        by_class[CLASSES.index(name)] = value
    return by_class
