"""Forecasts for many leads from the end of a panel: `forecast_leads` for live cycles, `forecast_path` for backtests."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.combination import (
    alike_since,
    at_least,
    combined,
    forecasts_of,
    lowest,
    method_weights,
    models_of,
    row_groups,
    weighted_median,
)
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.error_quantiles import MIDDLE, MIN_ERRORS, PastErrors, unbiased
from kernelcast.predictor.forecasting.methods import NAIVE, for_leads, installed
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.rolling import begun, forward_filled
from kernelcast.predictor.forecasting.selection import selected

EACH_LEAD: Final = 48
"""Up to this lead each has its own weights; beyond it only leads that grow by `GROWTH`, others use the last one's."""
GROWTH: Final = 1.15
"""Ratio of neighbouring leads with own weights beyond `EACH_LEAD`."""


def forecast_path(
    panel: Panel, leads: int, levels: Sequence[float], seasons: Sequence[int], fitted: FittedPanel | None = None
) -> tuple[Floats, Floats]:
    """Forecast the intervals after the last one.

    Args:
        panel: The series.
        leads: How many intervals.
        levels: Quantile levels within 0..1.
        seasons: Candidate lengths of seasons, intervals.
        fitted: Fitted models of the same series; None for none.

    Returns:
        Medians, shape (n, leads), and quantiles, shape (levels, n, leads), NaN where a series is too short for them.
    """
    parts = [
        _path(panel.values[rows], leads, levels, seasons, partial(models_of, fitted, rows=rows))
        for rows in row_groups(panel, seasons)
    ]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts], axis=1)


def forecast_leads(
    panel: Panel,
    leads: Sequence[int],
    levels: Sequence[float],
    seasons: Sequence[int],
    fitted: FittedPanel | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Forecast some intervals after the last one; the work grows with their number, not with their distance.

    Args:
        panel: The series.
        leads: Intervals from the end of the panel to each forecast, ascending, at least 1.
        levels: Quantile levels within 0..1.
        seasons: Candidate lengths of seasons, intervals.
        fitted: Fitted models of the same series; None for none.

    Returns:
        Medians, shape (n, leads); quantiles, shape (levels, n, leads), NaN where a series is too short for them; and
        quantiles of the last interval that were made a lead before it, of the same shape.
    """
    medians = np.full((panel.rows, len(leads)), np.nan)
    quantiles, due = (np.full((len(levels), panel.rows, len(leads)), np.nan) for _ in range(2))
    for rows in row_groups(panel, seasons):
        values = panel.values[rows]
        filled, known, had = forward_filled(values), ~np.isnan(values), begun(values)
        methods, floor = for_leads(installed(), filled), lowest(filled)
        for place, lead in enumerate(leads):
            center, since = combined(forecasts_of(methods, filled, had, lead, seasons), filled, known, lead)
            if fitted is not None and (models := fitted.forecasts(lead, rows)):
                center, shares = selected(center, at_least(models, floor), filled, known, lead)
                fitted.used[rows] |= shares[:, 0] < 1.0
            errors = PastErrors(center, filled, known, lead)
            last = unbiased(center[:, -1], errors.quantiles_at(panel.length - 1, MIDDLE, since))
            medians[rows, place] = np.maximum(last, floor[:, -1])
            for target, end in ((quantiles, panel.length - 1), (due, panel.length - 1 - lead)):
                target[:, rows, place] = np.maximum(errors.quantiles_at(end, levels, since), floor[:, max(end, 0)])
    return medians, quantiles, due


def own_leads(leads: int) -> list[int]:
    """Leads whose weights and errors are computed."""
    own = list(range(1, min(leads, EACH_LEAD) + 1))
    while own[-1] < leads:
        own.append(min(leads, int(own[-1] * GROWTH) + 1))
    return own


def _path(
    values: Floats,
    leads: int,
    levels: Sequence[float],
    seasons: Sequence[int],
    fitted: Callable[[int], dict[str, Floats]],
) -> tuple[Floats, Floats]:
    filled, known, had = forward_filled(values), ~np.isnan(values), begun(values)
    methods, floor = for_leads(installed(), filled), lowest(filled)
    center = np.empty((len(values), leads))
    own = [lead for lead in own_leads(leads) if lead == 1 or values.shape[1] > lead + MIN_ERRORS]
    offsets = np.full((len(levels) + len(MIDDLE), len(values), len(own)), np.nan)
    weights: dict[str, Floats] = {}
    shares: Floats = np.ones((len(values), 1))
    for lead in range(1, leads + 1):
        forecasts = forecasts_of(methods, filled, had, lead, seasons)
        if lead in own:
            stacked = np.stack(list(forecasts.values()))
            weight = method_weights(stacked, list(forecasts).index(NAIVE), filled, known, lead)
            weights = dict(zip(forecasts, weight[:, :, -1], strict=True))
            whole = weighted_median(stacked, weight)
            if models := fitted(lead):
                whole, shares = selected(whole, at_least(models, floor), filled, known, lead)
            since = alike_since(stacked, weight, lead)
            errors = PastErrors(whole, filled, known, lead)
            quantiles = errors.quantiles_at(values.shape[1] - 1, (*levels, *MIDDLE), since)
            offsets[:, :, own.index(lead)] = quantiles - whole[:, -1]
        last = np.stack([forecasts[name][:, -1:] for name in weights if name in forecasts])
        present = np.stack([weights[name][:, None] for name in weights if name in forecasts])
        fast = weighted_median(last, np.where(np.isnan(last), 0.0, present))
        center[:, lead - 1] = _shared([fast, *(each[:, -1:] for each in fitted(lead).values())], shares)
    floor = floor[:, -1:]
    drawn = center + _between(offsets, own, leads)
    return np.maximum(unbiased(center, drawn[len(levels) :]), floor), np.maximum(drawn[: len(levels)], floor)


def _shared(forecasts: Sequence[Floats], shares: Floats) -> Floats:
    """Sum of forecasts of shape (n, 1), by their shares of shape (n, forecasts); one without a share may be NaN."""
    values = np.concatenate(forecasts, axis=1)
    shared: Floats = (np.where(shares > 0, values, 0.0) * shares).sum(axis=1)
    return shared


def _between(offsets: Floats, own: Sequence[int], leads: int) -> Floats:
    """Offsets of all leads from those of some, linear between them; the last one's are held."""
    places = np.interp(np.arange(1, leads + 1), own, np.arange(len(own)))
    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, len(own) - 1)
    between: Floats = offsets[:, :, low] + (offsets[:, :, high] - offsets[:, :, low]) * (places - low)
    return between
