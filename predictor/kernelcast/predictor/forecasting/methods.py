"""The forecasting methods that `combination` weighs: each gives, at every interval, a forecast for `lead` later.

A method sees one array of many series and returns one of the same shape, NaN where it has too little history. Plug-ins
add methods under the entry point group `kernelcast.forecasters`, each a function
`(values, lead, seasons) -> {name: forecasts}`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Final, TypeAlias

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.rolling import (
    damped_trend,
    exponential_mean,
    lagged,
    rolling_median,
    seasonal_mean,
)

Methods: TypeAlias = Callable[[Floats, int, Sequence[int]], Mapping[str, Floats]]
ENTRY_POINTS: Final = "kernelcast.forecasters"
NAIVE: Final = "last value"
"""Name of the method that repeats the last value; others must beat it."""
MEDIANS: Final = (3, 12, 36, 72, 288)
"""Numbers of newest values whose median is a forecast."""
DENSE_MEDIAN: Final = 36
"""Longer medians are computed as often as their cost is that of this one, and held between."""
WEIGHTS: Final = (0.5, 0.2, 0.05, 0.01)
"""Weights of the newest value in exponential smoothing."""
TRENDS: Final = ((0.3, 0.1, 0.9), (0.3, 0.05, 0.98), (0.1, 0.02, 0.99))
"""Weights of level and slope, and damping."""
REVERSIONS: Final = ((0.6, 0.9), (0.6, 0.97), (0.6, 1.0), (0.1, 0.99), (0.1, 1.0))
"""Weight of a new deviation from the seasonal profile, and the share of it that is left an interval later."""
DEVIATION_CYCLES: Final = (1, 4)
"""Cycles of which the seasonal profile is the mean from which a deviation is taken."""


class BuiltIn:
    """The built-in methods on one array: what does not depend on the lead is computed once, when first needed.

    These are the last value, medians, exponential smoothing without and with damped trend, seasonal methods. For one
    thread.

    Args:
        values: float64, shape (n, t), without gaps.
    """

    def __init__(self, values: Floats) -> None:
        self._values = values
        self._levels: dict[str, Floats] = {}
        self._trends: dict[str, tuple[float, Floats, Floats]] = {}
        self._deviations: dict[tuple[int, int, float], Floats] = {}

    def __call__(self, values: Floats, lead: int, seasons: Sequence[int]) -> dict[str, Floats]:
        """Forecasts by method.

        Args:
            values: The array of `__init__`.
            lead: Intervals from the origin to the forecast.
            seasons: Lengths of seasons, intervals. Forecasts by the shortest begin with the first value of the same
                phase, those by others after two cycles.
        """
        self._smooth()
        forecasts = dict(self._levels)
        for name, (phi, level, slope) in self._trends.items():
            forecasts[name] = level + slope * phi * (1 - phi**lead) / (1 - phi)
        for season in seasons:
            first = 2 * season + lead - 1 if season > min(seasons) else -lead % season
            if season > 1 and values.shape[1] > first:
                seasonal = self._seasonal(lead, season)
                for each in seasonal.values():
                    each[:, :first] = np.nan
                forecasts |= seasonal
        return forecasts

    def _smooth(self) -> None:
        """Compute the methods that know no season, for every lead."""
        if self._levels:
            return
        values = self._values
        self._levels[NAIVE] = values
        self._levels |= {
            f"median of {length}": rolling_median(values, length, -(-length // DENSE_MEDIAN)) for length in MEDIANS
        }
        self._levels |= {f"smoothing {alpha}": exponential_mean(values, alpha) for alpha in WEIGHTS}
        for alpha, beta, phi in TRENDS:
            self._trends[f"trend {alpha} {beta} {phi}"] = (phi, *damped_trend(values, alpha, beta, phi))

    def _seasonal(self, lead: int, season: int) -> dict[str, Floats]:
        """Means of earlier seasons, alone and with a share of the present deviation from them."""
        profiles = {cycles: seasonal_mean(self._values, season, lead, cycles) for cycles in (1, 3, 4, 6)}
        forecasts = {f"season {season} mean of {cycles}": profiles[cycles].copy() for cycles in (1, 3, 6)}
        for cycles in DEVIATION_CYCLES:
            for alpha, share in REVERSIONS:
                recent = self._deviation(season, cycles, alpha)
                forecasts[f"season {season} mean of {cycles} deviation {alpha} {share}"] = (
                    profiles[cycles] + recent * share**lead
                )
        return forecasts

    def _deviation(self, season: int, cycles: int, alpha: float) -> Floats:
        """The smoothed deviation from the mean of earlier seasons, at every interval."""
        key = season, cycles, alpha
        if key not in self._deviations:
            expected = lagged(seasonal_mean(self._values, season, season, cycles), season)
            deviation = np.nan_to_num(self._values - expected, nan=0.0)
            for each in {each for each, _ in REVERSIONS}:
                self._deviations[season, cycles, each] = exponential_mean(deviation, each)
        return self._deviations[key]


def built_in(values: Floats, lead: int, seasons: Sequence[int]) -> dict[str, Floats]:
    """The built-in methods for one lead; `for_leads` shares their work between leads."""
    return BuiltIn(values)(values, lead, seasons)


def for_leads(methods: Sequence[Methods], values: Floats) -> tuple[Methods, ...]:
    """The methods for several leads of one array; the built-in ones compute once what all leads share."""
    return tuple(BuiltIn(values) if method is built_in else method for method in methods)


@cache
def installed() -> tuple[Methods, ...]:
    """The built-in methods, and those of plug-ins; to look for these reads a file of every installed package."""
    return (built_in, *(point.load() for point in entry_points(group=ENTRY_POINTS)))
