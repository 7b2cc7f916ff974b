"""The engine over recorded series: forecasts of each row, made `--ahead` earlier, and of the time after the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.durations import Duration
from kernelcast.predictor.backtest.grid import Batch, GriddedSeries
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.path import forecast_path
from kernelcast.predictor.forecasting.rolling import lagged

LOWER, UPPER = 0.025, 0.975
"""Levels of the central 95 % interval."""
SCORED_LEVELS: Final = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of the command that change results.

    Attributes:
        ahead: How long before its row a forecast was made.
        horizon: How far to forecast after the last row; None for not at all.
        levels: Further quantile levels.
    """

    ahead: Duration = field(default_factory=lambda: Duration(1, counted=True))
    horizon: Duration | None = None
    levels: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Future:
    """Forecasts after the last row of one series.

    Attributes:
        series: The series.
        columns: float64, shape (leads,), by name of a column.
    """

    series: GriddedSeries
    columns: dict[str, Floats]


def quantile_columns(levels: Sequence[float]) -> list[str]:
    """Names of the columns of further quantiles."""
    return [f"q{level:g}" for level in levels]


def forecasts(batch: Batch, options: RunOptions) -> dict[str, Floats]:
    """Columns `mean`, `lower`, `upper` and further quantiles, each of shape (n, t): for a row, made earlier."""
    lead = options.ahead.intervals(batch.interval_seconds)
    found = forecast(batch.panel, lead, (LOWER, UPPER, *options.levels), batch.seasons)
    columns = {"mean": lagged(found.center, lead)}
    names = ("lower", "upper", *quantile_columns(options.levels))
    return columns | {name: lagged(values, lead) for name, values in zip(names, found.quantiles, strict=True)}


def futures(batch: Batch, options: RunOptions) -> list[Future]:
    """Forecasts for `--horizon` after the last row of each series; none without that option."""
    if options.horizon is None:
        return []
    leads = options.horizon.intervals(batch.interval_seconds)
    center, quantiles = forecast_path(batch.panel, leads, (LOWER, UPPER, *options.levels), batch.seasons)
    names = ("lower", "upper", *quantile_columns(options.levels))
    return [
        Future(one, {"mean": center[row]} | {name: values[row] for name, values in zip(names, quantiles, strict=True)})
        for row, one in enumerate(batch.series)
    ]


def naive_forecasts(batch: Batch, options: RunOptions) -> dict[str, Floats]:
    """Columns `naive` and `seasonal naive`, shape (n, t): the last value, and that of the same phase of a season."""
    lead = options.ahead.intervals(batch.interval_seconds)
    filled = batch.panel.values
    season = batch.seasons[0] if batch.seasons else lead
    back = -(-lead // season) * season
    return {"naive": lagged(filled, lead), "seasonal naive": lagged(filled, back)}
