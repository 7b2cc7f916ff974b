"""Machine code for the two most expensive steps of a forecast: the weighted median of all methods, and rolling medians.

`combination` and `rolling` compute the same in numpy, to the last bit, and call this for large panels only. numpy
passes over all methods and intervals about twenty times, these functions once. A small panel needs no machine code.
"""

from typing import Final, NamedTuple

import numpy as np

from kernelcast.columnar.compiled import kernel, routine
from kernelcast.predictor.arrays import Bools, Floats, Ints

_LARGEST: Final = float(np.finfo(np.float64).max)
# Rows of `state`, each with a value for every method.
_SUM, _SHARE, _COUNT, _ERROR, _WEIGHT, _NOW, _WITHIN = range(7)
_ROWS: Final = 7


class MethodForecasts(NamedTuple):
    """Forecasts of all methods for one lead, with the values that they are compared with; arrays are C-contiguous.

    Attributes:
        forecasts: Shape (methods, n, t), made at each interval; NaN before a method's first one.
        values: Shape (n, t), without gaps.
        known: Shape (n, t), where there was a value.
        begins: Shape (methods, n), first interval with a forecast.
    """

    forecasts: Floats
    values: Floats
    known: Bools
    begins: Ints


class WeightRule(NamedTuple):
    """Rule by which errors become weights.

    Attributes:
        naive: Place of the method that repeats the last value.
        lead: Intervals from the origin to the forecast.
        memory: Intervals after which an error has lost 63 % of its weight.
        least_errors: Errors that a method needs before it has any weight.
        least_share: Share of the weights from which on a method's first interval counts.
    """

    naive: int
    lead: int
    memory: float
    least_errors: int
    least_share: float


def warm_up() -> None:
    """Compile both functions, or load their machine code from disk."""
    values, known, begins = np.zeros((1, 1)), np.ones((1, 1), np.bool_), np.zeros((1, 1), np.int64)
    combine(MethodForecasts(np.zeros((1, 1, 1)), values, known, begins), WeightRule(0, 1, 1.0, 1, 0.0))
    medians(values, 1)


def combine(made: MethodForecasts, rule: WeightRule) -> tuple[Floats, Ints]:
    """Return the result of `combination.combined`: the weighted median, and since when its methods can be used."""
    shape = made.values.shape
    center, since, state = np.empty(shape), np.empty(shape, dtype=np.int64), np.empty((_ROWS, len(made.forecasts)))
    combine_rows(made, rule, center, since, state)
    return center, since


def medians(values: Floats, length: int, every: int = 1) -> Floats:
    """Return the result of `rolling.rolling_median`."""
    medians = np.empty(values.shape)
    rolling_medians(np.ascontiguousarray(values), length, every, np.empty(length), medians)
    return medians


@kernel
def combine_rows(made: MethodForecasts, rule: WeightRule, center: Floats, since: Ints, state: Floats) -> None:
    """Fill `center` and `since` with the results of `combination.combined`, row by row.

    Args:
        made: The forecasts.
        rule: The rule.
        center: Shape (n, t).
        since: Shape (n, t).
        state: Shape (_ROWS, methods), overwritten.
    """
    forecasts, lead = made.forecasts, rule.lead
    for row in range(made.values.shape[0]):
        for method in range(forecasts.shape[0]):
            state[_SUM, method] = state[_SHARE, method] = state[_COUNT, method] = 0.0
        for at in range(made.values.shape[1]):
            if at >= lead and made.known[row, at]:
                _observe(forecasts, made.values[row, at], row, at - lead, 1.0 / rule.memory, state)
            else:
                _observe(forecasts, np.nan, row, at, 1.0 / rule.memory, state)
            total = _weigh(forecasts, row, at, rule, state)
            center[row, at] = _middle(forecasts, row, at, total, state)
            first = 0
            for method in range(forecasts.shape[0]):
                if state[_WEIGHT, method] >= rule.least_share * total:
                    first = max(first, made.begins[method, row])
            since[row, at] = first + lead + rule.least_errors if first > 0 else 0


@routine
def _observe(forecasts: Floats, value: float, row: int, origin: int, new: float, state: Floats) -> None:
    """Age the errors by an interval, and add those of the forecasts made at `origin`; a value of NaN adds none."""
    keep = -(new - 1.0)
    for method in range(forecasts.shape[0]):
        state[_SUM, method] *= keep
        state[_SHARE, method] *= keep
        error = abs(forecasts[method, row, origin] - value)
        if error == error:  # noqa: PLR0124  not NaN
            state[_SUM, method] += new * error
            state[_SHARE, method] += new
            state[_COUNT, method] += 1.0


@routine
def _weigh(forecasts: Floats, row: int, at: int, rule: WeightRule, state: Floats) -> float:
    """Set the recent error and the weight of each method, as `combination.method_weights`; returns their sum."""
    best = _LARGEST
    for method in range(forecasts.shape[0]):
        now = forecasts[method, row, at]
        usable = state[_COUNT, method] >= rule.least_errors and now == now  # noqa: PLR0124  not NaN
        state[_ERROR, method] = state[_SUM, method] / state[_SHARE, method] if usable else np.inf
        best = min(best, state[_ERROR, method])
    bound = min(state[_ERROR, rule.naive], _LARGEST)
    total = 0.0
    for method in range(forecasts.shape[0]):
        error = state[_ERROR, method]
        if error > bound:
            state[_WEIGHT, method] = 0.0
        elif error <= best:
            state[_WEIGHT, method] = 1.0
        else:
            ratio = best / error
            ratio *= ratio
            ratio *= ratio
            state[_WEIGHT, method] = ratio * ratio
        total += state[_WEIGHT, method]
    if total == 0.0:
        state[_WEIGHT, rule.naive] = 1.0
        return 1.0
    return total


@routine
def _middle(forecasts: Floats, row: int, at: int, total: float, state: Floats) -> float:
    """The least forecast that, with those up to it, has half of the weights; compares each with all, as numpy does."""
    methods = forecasts.shape[0]
    for method in range(methods):
        state[_NOW, method] = forecasts[method, row, at] if state[_WEIGHT, method] > 0.0 else np.inf
        state[_WITHIN, method] = 0.0
    for method in range(methods):
        weight = state[_WEIGHT, method]
        now = state[_NOW, method]
        for other in range(methods):
            state[_WITHIN, other] += weight if now <= state[_NOW, other] else 0.0
    lowest = np.inf
    for method in range(methods):
        if state[_WITHIN, method] >= total / 2.0:
            lowest = min(lowest, state[_NOW, method])
    return forecasts[0, row, at] if lowest == np.inf else lowest


@kernel
def rolling_medians(values: Floats, length: int, every: int, window: Floats, medians: Floats) -> None:
    """Fill `medians` with the result of `rolling.rolling_median`.

    Args:
        values: Shape (n, t), without gaps.
        length: Values in a window.
        every: Intervals from one median to the next.
        window: Shape (length,), overwritten: the newest values, in order.
        medians: Shape (n, t).
    """
    for row in range(values.shape[0]):
        for place in range(length):
            window[place] = values[row, 0]
        median = values[row, 0]
        for at in range(values.shape[1]):
            _replace(window, length, values[row, max(at - length, 0)], values[row, at])
            if at % every == 0:
                median = (window[(length - 1) // 2] + window[length // 2]) / 2.0
            medians[row, at] = median


@routine
def _replace(window: Floats, length: int, old: float, new: float) -> None:
    """Replace one value of an ordered window by another."""
    place = 0
    end = length - 1
    while place < end:
        middle = (place + end) // 2
        if window[middle] < old:
            place = middle + 1
        else:
            end = middle
    while place < length - 1 and window[place + 1] < new:
        window[place] = window[place + 1]
        place += 1
    while place > 0 and window[place - 1] > new:
        window[place] = window[place - 1]
        place -= 1
    window[place] = new
