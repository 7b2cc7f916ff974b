"""Combines the forecasts of all methods into one, weighted by each method's past errors on the same series.

At every interval the weight of a method is a power of its recent absolute error, relative to the best one's; methods
that lose to the last value are left out. The combined forecast is the weighted median, which a burst in one method does
not move. Quantiles are those of the combination's own past errors at the same lead (split conformal).
"""

# `backtest.run` calls `forecast` for every interval of a recording; `path` forecasts from the end of a panel.

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.methods import NAIVE, Methods, installed
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.rolling import begun, forward_filled, lagged, recent_mean
from kernelcast.predictor.forecasting.selection import selected

DOUBLINGS: Final = 3
"""A weight is the ratio of errors, squared three times: a method with twice the best one's error weighs 1/256."""
MIN_ERRORS: Final = 12
"""Errors that a method must have made before it has any weight."""
MEMORY_INTERVALS: Final = 336.0
"""Intervals after which an error has lost 63 % of its weight."""
WINDOW_INTERVALS: Final = 4096
"""Quantiles are made of the errors of at most this many intervals."""
SKIPPED_SHARE: Final = 0.3
"""The first errors of a series were made with less history than the present forecast has: this share is left out."""
LEAST_SHARE: Final = 0.05
"""Errors that were made before a method with this share of the weights could be used say little about its forecasts."""
LEAST_ALIKE: Final = 300
"""Newest errors that count in any case: fewer say too little about a bound of 95 %, as neighbours are alike."""
UPDATES: Final = 128
"""An update comes when the intervals have grown by a 128th; more of them cost time and change little."""
MIN_BLOCK: Final = 8
"""After t intervals the quantiles are computed again each `max(MIN_BLOCK, t / UPDATES)`, whatever comes later."""
BYTES_AT_ONCE: Final = 16 * 2**20
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
    found = forecasts_of(methods, filled, had, lead, seasons)
    floor = lowest(filled)
    center, since = combined(found, filled, known, lead)
    if models:
        center = selected(center, at_least(models, floor), filled, known, lead)[0]
    quantiles = error_quantiles(center, filled, known, lead, levels, since)
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
    found: dict[str, Floats] = {}
    for each in methods:
        found |= each(filled, lead, seasons)
    return found if had.all() else {name: np.where(had, values, np.nan) for name, values in found.items()}


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


def combined(found: Mapping[str, Floats], values: Floats, known: Bools, lead: int) -> tuple[Floats, Ints]:
    """The weighted median of the methods, at every interval, and since when its methods can be used.

    Args:
        found: Forecasts by method, each of shape (n, t); `NAIVE` among them.
        values: Shape (n, t), without gaps.
        known: Shape (n, t), where there was a value; only there an error counts.
        lead: Intervals from the origin to the forecast.
    """
    forecasts, naive = np.stack(list(found.values())), list(found).index(NAIVE)
    if forecasts.size >= LEAST_VALUES:
        from kernelcast.predictor.forecasting import compiled  # noqa: PLC0415  small panels need no compiler

        return compiled.combine(
            forecasts,
            values,
            known,
            np.argmax(~np.isnan(forecasts), axis=2),
            naive=naive,
            lead=lead,
            memory=_memory(lead),
            least_errors=MIN_ERRORS,
            least_share=LEAST_SHARE,
        )
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
    due = np.full_like(forecasts, np.nan)
    due[:, :, lead:] = forecasts[:, :, : forecasts.shape[2] - lead]
    errors = np.abs(due - values)
    valid = known & ~np.isnan(errors)
    errors = recent_mean(errors, valid, _memory(lead))
    errors[(np.cumsum(valid, axis=2) < MIN_ERRORS) | np.isnan(forecasts)] = np.inf
    bound = np.minimum(errors[naive], np.finfo(float).max)
    best = np.minimum(errors.min(axis=0), bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(errors <= best, 1.0, best / errors)
    for _ in range(DOUBLINGS):
        weights *= weights
    weights[(errors > bound) | np.isinf(errors)] = 0.0
    weights[naive, weights.sum(axis=0) == 0] = 1.0
    return weights


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """The lower weighted median along the first axis; values without weight may be NaN."""
    order = np.argsort(np.where(weights > 0, values, np.inf), axis=0, kind="stable")
    cumulative = np.cumsum(np.take_along_axis(weights, order, axis=0), axis=0)
    middle = np.argmax(cumulative >= cumulative[-1] / 2, axis=0)
    chosen = np.take_along_axis(order, middle[None], axis=0)
    found: Floats = np.take_along_axis(values, chosen, axis=0)[0]
    return found


def error_quantiles(
    center: Floats,
    values: Floats,
    known: Bools,
    lead: int,
    levels: Sequence[float],
    since: Ints | None = None,
) -> Floats:
    """Quantiles of the future values, from the errors so far: shape (levels, n, t), NaN before `MIN_ERRORS` errors.

    Args:
        center: Shape (n, t), the forecast made at each interval.
        values: Shape (n, t), without gaps.
        known: Where there was a value.
        lead: Intervals from the origin to the forecast.
        levels: Within 0..1.
        since: Shape (n, t), first origin whose error counts at each interval; None for all.
    """
    errors = np.where(known, values - lagged(center, lead), np.nan)
    found = np.full((len(levels), *values.shape), np.nan)
    for begin, end in _updates(values.shape[1]):
        offsets = _offsets(errors, begin, lead, levels, since)
        found[:, :, begin:end] = center[:, begin:end] + offsets[:, :, None]
    return found


def quantiles_at(  # noqa: PLR0913, PLR0917  one array each
    place: int, center: Floats, values: Floats, known: Bools, lead: int, levels: Sequence[float], since: Ints
) -> Floats:
    """One column of `error_quantiles`, shape (levels, n); NaN for a place before the first."""
    if place < 0:
        return np.full((len(levels), len(values)), np.nan)
    errors = np.where(known, values - lagged(center, lead), np.nan)
    begin = next(begin for begin, end in _updates(values.shape[1]) if place < end)
    return center[:, place] + _offsets(errors, begin, lead, levels, since)


def _updates(length: int) -> Iterator[tuple[int, int]]:
    """Yield the intervals at which quantiles are computed again, and the next such interval."""
    end = 0
    while end < length:
        begin, end = end, end + max(MIN_BLOCK, end // UPDATES)
        yield begin, end


def _offsets(errors: Floats, begin: int, lead: int, levels: Sequence[float], since: Ints | None) -> Floats:
    """Quantiles, shape (levels, n), of the errors that are known at an interval and count there."""
    oldest = max(int(begin * SKIPPED_SHARE), begin + 1 - WINDOW_INTERVALS)
    part = errors[:, oldest : begin + 1]
    if since is not None:
        first = np.minimum(since[:, begin] + lead, begin + 1 - LEAST_ALIKE - lead)
        part = np.where(np.arange(oldest, begin + 1) >= first[:, None], part, np.nan)
    return _row_quantiles(part, levels)


def _row_quantiles(errors: Floats, levels: Sequence[float]) -> Floats:
    """Conformal quantiles of each row, shape (levels, n): of k errors, rank level*(k+1), within the k."""
    ordered = np.sort(errors, axis=1)  # NaN last
    counts = np.sum(~np.isnan(errors), axis=1)
    ranks = np.asarray(levels)[:, None] * (counts + 1) - 1
    ranks = np.clip(ranks, 0, np.maximum(counts - 1, 0))
    low = np.floor(ranks).astype(int)
    high = np.minimum(low + 1, np.maximum(counts - 1, 0))
    rows = np.arange(len(errors))[None]
    below, above = ordered[rows, low], ordered[rows, high]
    offsets: Floats = np.where(counts < MIN_ERRORS, np.nan, below + (above - below) * (ranks - low))
    return offsets
