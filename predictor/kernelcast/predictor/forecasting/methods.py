"""The forecasting methods: each gives, at every interval, a forecast for `lead` intervals later.

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
MEDIANS: Final = (3, 12, 36)
WEIGHTS: Final = (0.5, 0.2, 0.05, 0.01)
TRENDS: Final = ((0.3, 0.1, 0.9), (0.3, 0.05, 0.98), (0.1, 0.02, 0.99))
"""Weights of level and slope, and damping."""
REVERSIONS: Final = ((0.6, 0.9), (0.6, 0.97), (0.6, 1.0), (0.1, 0.99), (0.1, 1.0))
"""Weight of a new deviation from the seasonal profile, and the share of it that is left an interval later."""


def built_in(values: Floats, lead: int, seasons: Sequence[int]) -> dict[str, Floats]:
    """Last value, medians, exponential smoothing without and with damped trend, and seasonal methods.

    Args:
        values: float64, shape (n, t), without gaps.
        lead: Intervals from the origin to the forecast.
        seasons: Lengths of seasons, intervals. Forecasts by the shortest begin with the first value of the same phase,
            those by others after two cycles.
    """
    found = {NAIVE: values}
    found |= {f"median of {length}": rolling_median(values, length) for length in MEDIANS}
    found |= {f"smoothing {alpha}": exponential_mean(values, alpha) for alpha in WEIGHTS}
    for alpha, beta, phi in TRENDS:
        level, slope = damped_trend(values, alpha, beta, phi)
        found[f"trend {alpha} {beta} {phi}"] = level + slope * phi * (1 - phi**lead) / (1 - phi)
    for season in seasons:
        first = 2 * season + lead - 1 if season > min(seasons) else -lead % season
        if season > 1 and values.shape[1] > first:
            seasonal = _seasonal(values, lead, season)
            for each in seasonal.values():
                each[:, :first] = np.nan
            found |= seasonal
    return found


def _seasonal(values: Floats, lead: int, season: int) -> dict[str, Floats]:
    """Means of earlier seasons, alone and with a share of the present deviation from them."""
    profiles = {cycles: seasonal_mean(values, season, lead, cycles) for cycles in (1, 3, 4, 6)}
    found = {f"season {season} mean of {cycles}": profiles[cycles] for cycles in (1, 3, 6)}
    for cycles in (1, 4):
        expected = lagged(seasonal_mean(values, season, season, cycles), season)
        deviation = np.nan_to_num(values - expected, nan=0.0)
        for alpha, share in REVERSIONS:
            recent = exponential_mean(deviation, alpha)
            found[f"season {season} mean of {cycles} deviation {alpha} {share}"] = (
                profiles[cycles] + recent * share**lead
            )
    return found


@cache
def installed() -> tuple[Methods, ...]:
    """The built-in methods, and those of plug-ins; to look for these reads a file of every installed package."""
    return (built_in, *(point.load() for point in entry_points(group=ENTRY_POINTS)))
