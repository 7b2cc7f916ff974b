"""Combines the forecasts of all methods into one, weighted by each method's past errors on the same series.

At every interval the weight of a method is a power of its recent absolute error, relative to the best one's; methods
that lose to the last value are left out. The combined forecast is the weighted median, which a burst in one method does
not move. Its quantiles rest on its own past errors at the same lead (`error_quantiles`).

`backtest.run` calls `forecast` for every interval of a recording; `path` forecasts from the end of a panel.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.error_quantiles import MIDDLE, MIN_ERRORS, PastErrors, unbiased
from kernelcast.predictor.forecasting.methods import NAIVE, Methods, installed
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.rolling import begun, forward_filled, lagged, recent_mean
from kernelcast.predictor.forecasting.selection import selected

SQUARINGS: Final = 3
"""A weight is the ratio of errors, squared three times: a method with twice the best one's error weighs 1/256."""
MEMORY_INTERVALS: Final = 144.0
"""Intervals after which an error has lost 63 % of its weight: 12 hours of blocks, so that a drift is soon followed."""
LEAST_SHARE: Final = 0.05
"""Errors that were made before a method with this share of the weights could be used say little about its forecasts."""
BYTES_AT_ONCE: Final = 8 * 2**20
"""Forecasts of a group of rows by all methods have about this size; larger ones exceed the processor's cache."""
LEAST_VALUES: Final = 200_000
"""Forecasts of all methods and intervals from which on they are combined in machine code."""


@dataclass(frozen=True, slots=True)
class LeadForecast:
    """Forecasts for one lead, made at every interval.

    Attributes:
        center: float64, shape (n, t): the median for `lead` intervals after each interval.
        quantiles: float64, shape (levels, n, t); NaN where too few errors are known.
        naive: float64, shape (n, t): the last value, for comparison.
    """

    center: Floats
    quantiles: Floats
    naive: Floats


def forecast(
    panel: Panel, lead: int, levels: Sequence[float], seasons: Sequence[int], fitted: FittedPanel | None = None
) -> LeadForecast:
    """Forecast every series from every interval.

    Args:
        panel: The series.
        lead: Intervals from the origin to the forecast, at least 1.
        levels: Quantile levels within 0..1.
        seasons: Candidate lengths of seasons, intervals.
        fitted: Fitted models of the same series; None for none.
    """
    methods = installed()
    parts = [
        _forecast(panel.values[rows], lead, levels, seasons, methods, models_of(fitted, lead, rows))
        for rows in row_groups(panel, seasons)
    ]
    return LeadForecast(
        np.concatenate([part.center for part in parts]),
        np.concatenate([part.quantiles for part in parts], axis=1),
        np.concatenate([part.naive for part in parts]),
    )


def _forecast(
    values: Floats,
    lead: int,
    levels: Sequence[float],
    seasons: Sequence[int],
    methods: Sequence[Methods],
    models: Mapping[str, Floats],
) -> LeadForecast:
    filled, known = forward_filled(values), ~np.isnan(values)
    had = begun(values)
    forecasts = forecasts_of(methods, filled, had, lead, seasons)
    floor = lowest(filled)
    center, since = combined(forecasts, filled, known, lead)
    if models:
        center = selected(center, at_least(models, floor), filled, known, lead)[0]
    quantiles = PastErrors(center, filled, known, lead).quantiles((*levels, *MIDDLE), since)
    center, quantiles = unbiased(center, quantiles[len(levels) :]), quantiles[: len(levels)]
    return LeadForecast(np.maximum(center, floor), np.maximum(quantiles, floor), np.where(had, filled, np.nan))


def forecasts_of(
    methods: Sequence[Methods], filled: Floats, had: Bools, lead: int, seasons: Sequence[int]
) -> dict[str, Floats]:
    """Forecasts by method, each of shape (n, t); NaN before the first value of a series.

    Args:
        methods: All methods.
        filled: Shape (n, t), without gaps.
        had: Shape (n, t), where a series has had a value.
        lead: Intervals from the origin to the forecast.
        seasons: Candidate lengths of seasons, intervals.
    """
    forecasts: dict[str, Floats] = {}
    for each in methods:
        forecasts |= each(filled, lead, seasons)
    return forecasts if had.all() else {name: np.where(had, values, np.nan) for name, values in forecasts.items()}


def row_groups(panel: Panel, seasons: Sequence[int]) -> Iterator[slice]:
    """Yield the rows of a panel in groups of about `BYTES_AT_ONCE`: 30 methods, and as many for each season."""
    group = max(1, BYTES_AT_ONCE // (8 * 30 * (1 + len(seasons)) * max(1, panel.length)))
    for begin in range(0, panel.rows, group):
        yield slice(begin, min(begin + group, panel.rows))


def models_of(fitted: FittedPanel | None, lead: int, rows: slice) -> dict[str, Floats]:
    """Forecasts of fitted models, by name; none without any."""
    return fitted.forecasts(lead, rows) if fitted is not None else {}


def at_least(models: Mapping[str, Floats], floor: Floats) -> dict[str, Floats]:
    """Forecasts that are not below the least value of each series."""
    return {name: np.maximum(values, floor) for name, values in models.items()}


def lowest(values: Floats) -> Floats:
    """The least value of a forecast, at every interval: 0 for a series that was never negative, else -infinity."""
    return np.where(np.minimum.accumulate(values, axis=1) >= 0, 0.0, -np.inf)


def combined(named: Mapping[str, Floats], values: Floats, known: Bools, lead: int) -> tuple[Floats, Ints]:
    """The weighted median of the methods, at every interval, and since when its methods can be used.

    Args:
        named: Forecasts by method, each of shape (n, t); `NAIVE` among them.
        values: Shape (n, t), without gaps.
        known: Shape (n, t), where there was a value; only there an error counts.
        lead: Intervals from the origin to the forecast.
    """
    forecasts, naive = np.stack(list(named.values())), list(named).index(NAIVE)
    if forecasts.size >= LEAST_VALUES:
        from kernelcast.predictor.forecasting import machine_code  # noqa: PLC0415  small panels need no compiler

        arrays = np.ascontiguousarray(values), np.ascontiguousarray(known), np.argmax(~np.isnan(forecasts), axis=2)
        made = machine_code.MethodForecasts(forecasts, *arrays)
        rule = machine_code.WeightRule(naive, lead, _memory(lead), MIN_ERRORS, LEAST_SHARE)
        return machine_code.combine(made, rule)
    weights = method_weights(forecasts, naive, values, known, lead)
    return weighted_median(forecasts, weights), alike_since(forecasts, weights, lead)


def _memory(lead: int) -> float:
    return max(MEMORY_INTERVALS, 4.0 * lead)


def alike_since(forecasts: Floats, weights: Floats, lead: int) -> Ints:
    """First origin at which the methods that have weight now could have had some, at every interval, shape (n, t).

    Args:
        forecasts: Shape (methods, n, t), NaN before a method's first one.
        weights: Shape (methods, n, t).
        lead: Intervals from the origin to the forecast.
    """
    begins = np.argmax(~np.isnan(forecasts), axis=2)
    used = weights >= LEAST_SHARE * weights.sum(axis=0)
    newest: Ints = np.where(used, begins[:, :, None], 0).max(axis=0)
    return np.where(newest > 0, newest + lead + MIN_ERRORS, 0)


def method_weights(forecasts: Floats, naive: int, values: Floats, known: Bools, lead: int) -> Floats:
    """Weights from errors so far: 0 for a method without history or with larger errors than the last value has.

    Args:
        forecasts: Shape (methods, n, t), made at each interval.
        naive: Which of them is the last value.
        values: Shape (n, t), without gaps.
        known: Where there was a value.
        lead: Intervals from the origin to the forecast.

    Returns:
        Shape (methods, n, t).
    """
    due = lagged(forecasts, lead)
    errors = np.abs(np.subtract(due, values, out=due), out=due)
    valid = known & ~np.isnan(errors)
    if (valid == valid[:1]).all():  # without seasons: then one sum of weights serves all methods
        valid = valid[:1]
    errors = recent_mean(errors, valid, _memory(lead))
    errors[(np.cumsum(valid, axis=2) < MIN_ERRORS) | np.isnan(forecasts)] = np.inf
    bound = np.minimum(errors[naive], np.finfo(float).max)
    best = np.minimum(errors.min(axis=0), bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(errors <= best, 1.0, best / errors)
    for _ in range(SQUARINGS):
        np.square(weights, out=weights)
    weights[(errors > bound) | np.isinf(errors)] = 0.0
    weights[naive, weights.sum(axis=0) == 0] = 1.0
    return weights


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """The lower weighted median along the first axis; values without weight may be NaN.

    It compares each value with all others, which costs less than to sort few of them at many places.
    """
    shown = np.where(weights > 0, values, np.inf)
    half = weights.sum(axis=0) / 2
    medians = np.full(half.shape, np.inf)
    for value in shown:
        within = np.einsum("m...,m...->...", weights, shown <= value)
        np.minimum(medians, value, out=medians, where=within >= half)
    return np.where(np.isinf(medians), values[0], medians)
