"""Forecasts 1 h and 6 h ahead of recorded metrics, from rolling origins.

The yardstick is the median of the last hour with the empirical quantiles of its own past errors; beside it the seasonal
naive. Figures are geometric means over series of the ratio of mean absolute errors, and of CRPS (the mean quantile loss
at 19 levels). Every series is one file of `timestamp,value` in a folder of the Numenta Anomaly Benchmark whose name
begins with `real`; artificial ones are left out.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.predictor.options import Options

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.grid import GridOptions, SeriesBatch, batches
from kernelcast.predictor.backtest.table import read
from kernelcast.predictor.forecasting.combination import forecast
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.deep.pool import pooled_fits
from kernelcast.predictor.forecasting.deep.recorded import fitted_panel
from kernelcast.predictor.forecasting.deep.schedule import schedule_of
from kernelcast.predictor.forecasting.error_quantiles import PastErrors
from kernelcast.predictor.forecasting.rolling import forward_filled, lagged, rolling_median

LEVELS: Final = tuple(level / 20 for level in range(1, 20))
BOUNDS: Final = (0.025, 0.975)
HOURS: Final = (1, 6)
HOUR_SECONDS: Final = 3600.0
ORIGINS_AN_HOUR: Final = 4
LEARNING_DAYS: Final = 2
WITH_FITS: Final = " with fits"


def run(options: Options) -> dict[str, Any]:
    """Score every recorded series."""
    folder = options.recordings("nab")
    paths = sorted(path for path in folder.rglob("*.csv") if _real(path, folder))
    results: dict[str, dict[str, dict[str, float]]] = {}
    with pooled_fits(1) if options.deep else nullcontext() as fit_all:
        for path in paths:
            (batch,) = batches(read([path]), GridOptions())
            found = {f"{hours}h": _score(batch, hours) for hours in HOURS}
            if fit_all is not None:
                models = fitted_panel(batch.panel.values, schedule_of(batch.seasons), fit_all)
                found |= {f"{hours}h{WITH_FITS}": _score(batch, hours, models) for hours in HOURS}
            results[str(path.relative_to(folder))] = found
    names = list(dict.fromkeys(name for each in results.values() for name in each))
    return {"series": results, "mean": {name: _summary(list(results.values()), name) for name in names}}


def table(result: dict[str, Any]) -> str:
    """The summary as text."""
    lines = [f"{len(result['series'])} recorded series; ratios to the median of the last hour, geometric means"]
    lines += [f"{'':18}{'MAE':>8}{'CRPS':>8}{'seasonal naive MAE':>20}{'95 % bounds cover':>20}"]
    for name, each in result["mean"].items():
        lines.append(
            f"{name:18}{each['mae']:8.3f}{each['crps']:8.3f}{each['seasonal_mae']:20.3f}{each['coverage']:20.3f}"
        )
    return "\n".join(lines)


def _real(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return len(parts) == 1 or parts[-2].startswith("real")


def _score(batch: SeriesBatch, hours: int, models: FittedPanel | None = None) -> dict[str, float]:
    lead = max(1, round(hours * HOUR_SECONDS / batch.interval_seconds))
    hour = max(1, round(HOUR_SECONDS / batch.interval_seconds))
    filled, known = forward_filled(batch.panel.values), batch.panel.known
    ours = forecast(batch.panel, lead, (*LEVELS, *BOUNDS), batch.seasons, models)
    median = rolling_median(filled, hour)
    theirs = PastErrors(median, filled, known, lead, scaled=False).quantiles(LEVELS)
    at = _targets(batch, lead, hour)
    truth = batch.panel.values[0, at]
    lower, upper = (lagged(each, lead)[0, at] for each in ours.quantiles[-2:])
    season = batch.seasons[0] if batch.seasons else lead
    naive = lagged(filled, -(-lead // season) * season)[0, at]
    error = float(np.mean(np.abs(lagged(median, lead)[0, at] - truth)))
    return {
        "mae": float(np.mean(np.abs(lagged(ours.center, lead)[0, at] - truth))) / error,
        "crps": _loss(ours.quantiles[: len(LEVELS)], lead, at, truth) / _loss(theirs, lead, at, truth),
        "seasonal_mae": float(np.nanmean(np.abs(naive - truth))) / error,
        "coverage": float(np.mean((truth >= lower) & (truth <= upper))),
    }


def _targets(batch: SeriesBatch, lead: int, hour: int) -> Any:
    """Rows that are forecast: four an hour, after two days, where there is a value."""
    first = LEARNING_DAYS * 24 * hour + lead
    at = np.arange(first, batch.panel.length, max(1, hour // ORIGINS_AN_HOUR))
    return at[batch.panel.known[0, at]]


def _loss(quantiles: Floats, lead: int, at: Any, truth: Floats) -> float:
    losses = []
    for level, values in zip(LEVELS, quantiles, strict=True):
        gap = truth - lagged(values, lead)[0, at]
        losses.append(np.maximum(level * gap, (level - 1) * gap).mean())
    return float(np.mean(losses))


def _summary(results: Sequence[dict[str, dict[str, float]]], name: str) -> dict[str, float]:
    rows = [each[name] for each in results]
    ratios = {
        key: float(np.exp(np.mean(np.log([row[key] for row in rows])))) for key in ("mae", "crps", "seasonal_mae")
    }
    return ratios | {"coverage": float(np.mean([row["coverage"] for row in rows]))}
