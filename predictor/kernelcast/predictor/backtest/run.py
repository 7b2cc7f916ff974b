"""Forecasts of recorded series: of each row, made `--ahead` earlier, and for `--horizon` after the end.

`Backtest` calls it per batch; the forecasts are those of the live predictor (`forecasting`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.durations import Duration
from kernelcast.predictor.backtest.grid import GriddedSeries, SeriesBatch
from kernelcast.predictor.backtest.table import LAST_SECONDS
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.deep.recorded import FitAll, fitted_panel
from kernelcast.predictor.forecasting.deep.schedule import schedule_of
from kernelcast.predictor.forecasting.path import forecast_path
from kernelcast.predictor.forecasting.rolling import lagged
from kernelcast.wire.errors import ConfigurationError

MAX_LEADS: Final = 100_000
"""Intervals that `--horizon` and `--ahead` may reach."""
LOWER, UPPER = 0.025, 0.975
"""Levels of the central 95 % interval."""
SCORED_LEVELS: Final = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Quantile levels that `--report` scores: bounds of the 50, 80 and 95 % intervals, and the median."""


@dataclass(frozen=True, slots=True)
class BacktestOptions:
    """Options of the command that change results.

    Attributes:
        ahead: How long before its row a forecast was made.
        horizon: How far to forecast after the last row; None for not at all.
        levels: Further quantile levels.
        fit_all: Fits statsmodels' models, which then compete with the fast methods; None for these alone.
    """

    ahead: Duration = field(default_factory=lambda: Duration(1, counted=True))
    horizon: Duration | None = None
    levels: tuple[float, ...] = ()
    fit_all: FitAll | None = None


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
    return [f"q{level!r}" for level in levels]


@dataclass(frozen=True, slots=True)
class RowForecasts:
    """Forecasts of each row, made `--ahead` earlier.

    Attributes:
        center: float64, shape (n, t).
        quantiles: float64, shape (n, t), by level.
    """

    center: Floats
    quantiles: Mapping[float, Floats]

    def columns(self, options: BacktestOptions) -> dict[str, Floats]:
        """Columns `mean`, `lower`, `upper` and further quantiles, each of shape (n, t)."""
        names = ("lower", "upper", *quantile_columns(options.levels))
        levels = (LOWER, UPPER, *options.levels)
        return {"mean": self.center} | {name: self.quantiles[level] for name, level in zip(names, levels, strict=True)}

    @property
    def scored_quantiles(self) -> Floats:
        """Shape (levels, n, t), at `SCORED_LEVELS`."""
        return np.stack([self.quantiles[level] for level in SCORED_LEVELS])


def fitted(batch: SeriesBatch, options: BacktestOptions) -> FittedPanel | None:
    """Fitted models of a batch; None without any."""
    if options.fit_all is None:
        return None
    return fitted_panel(batch.panel.values, schedule_of(batch.seasons), options.fit_all)


def forecasts(
    batch: SeriesBatch, options: BacktestOptions, models: FittedPanel | None = None, *, scored: bool = False
) -> RowForecasts:
    """Forecast each row once, at all levels that are written or scored.

    Args:
        batch: The series.
        options: Lead, and the levels that are written.
        models: Fitted models of the batch.
        scored: Whether `SCORED_LEVELS` are wanted as well.
    """
    lead = options.ahead.intervals(batch.interval_seconds)
    levels = sorted({LOWER, UPPER, *options.levels, *(SCORED_LEVELS if scored else ())})
    panel_forecast = forecast(batch.panel, lead, levels, batch.seasons, models)
    quantiles = {level: lagged(values, lead) for level, values in zip(levels, panel_forecast.quantiles, strict=True)}
    return RowForecasts(lagged(panel_forecast.center, lead), quantiles)


def futures(batch: SeriesBatch, options: BacktestOptions, models: FittedPanel | None = None) -> list[Future]:
    """Forecasts for `--horizon` after the last row of each series; none without that option."""
    if options.horizon is None:
        return []
    leads = options.horizon.intervals(batch.interval_seconds)
    center, quantiles = forecast_path(batch.panel, leads, (LOWER, UPPER, *options.levels), batch.seasons, models)
    names = ("lower", "upper", *quantile_columns(options.levels))
    return [
        Future(one, {"mean": center[row]} | {name: values[row] for name, values in zip(names, quantiles, strict=True)})
        for row, one in enumerate(batch.series)
    ]


def check_leads(batch: SeriesBatch, options: BacktestOptions) -> None:
    """Refuse times ahead that are too long.

    Raises:
        ConfigurationError: One has more than `MAX_LEADS` intervals, or ends after the year 9999.
    """
    for name, duration in (("--ahead", options.ahead), ("--horizon", options.horizon)):
        count = 0 if duration is None else duration.intervals(batch.interval_seconds)
        if count > MAX_LEADS:
            raise ConfigurationError(
                f"{name} is {count} intervals of {batch.interval_seconds:g} s; the limit is {MAX_LEADS}; shorten it"
            )
        end_seconds = (
            max(one.start_seconds for one in batch.series) + (batch.panel.length + count) * batch.interval_seconds
        )
        if end_seconds >= LAST_SECONDS:
            raise ConfigurationError(f"{name} ends after the year 9999; shorten it")


def naive_forecasts(batch: SeriesBatch, options: BacktestOptions) -> dict[str, Floats]:
    """Columns `naive` and `seasonal naive`, shape (n, t): the last value, and that of the same phase of a season.

    Within the first season both are the last value.
    """
    lead = options.ahead.intervals(batch.interval_seconds)
    filled = batch.panel.values
    season = batch.seasons[0] if batch.seasons else lead
    back = -(-lead // season) * season
    naive = lagged(filled, lead)
    first = np.arange(batch.panel.length) < back
    return {"naive": naive, "seasonal naive": np.where(first, naive, lagged(filled, back))}
