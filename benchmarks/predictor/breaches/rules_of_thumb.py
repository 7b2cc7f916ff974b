"""Alert rules that people write today, on simulated series: the peers of the predictor's own rule.

A rule knows a series' limit; a person would write down 1.2 times the median of the first day for a kernel.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from benchmarks.predictor.simulation.scenario import Scenarios

from kernelcast.predictor.arrays import Bools, Floats

HEADROOM_SHARE: Final = 0.75
AHEAD_SECONDS: Final = 4 * 3600.0
_WARNING_RATIO: Final = 0.95
_KERNEL_RATIO: Final = 1.2
_KERNEL_WARNING_RATIO: Final = 1.1


def first_day_limit(scenarios: Scenarios) -> Floats:
    """The limit that a person would write into a rule, shape (n,)."""
    usual = np.median(scenarios.values[:, : scenarios.history], axis=1)
    return np.where(scenarios.limit_is_known, scenarios.limit[:, 0], _KERNEL_RATIO * usual)


def predict_linear(values: Floats, interval_seconds: float, window_seconds: float, ahead_seconds: float) -> Floats:
    """Prometheus' `predict_linear(metric[window], ahead)` at each interval.

    Args:
        values: Shape (n, t).
        interval_seconds: Length of an interval.
        window_seconds: Length of the range.
        ahead_seconds: How far ahead.

    Returns:
        Shape (n, t): least squares over the window's samples, extrapolated from the evaluation time; NaN before the
        window is full.

    Source: prometheus/promql/functions.go, linearRegression.
    """
    width = round(window_seconds / interval_seconds)
    time = np.arange(values.shape[1]) * interval_seconds
    centre = values.mean(axis=1, keepdims=True)
    first = np.cumsum(np.pad(values - centre, ((0, 0), (1, 0))), axis=1)
    moment = np.cumsum(np.pad((values - centre) * time, ((0, 0), (1, 0))), axis=1)
    total, weighted = first[:, width:] - first[:, :-width], moment[:, width:] - moment[:, :-width]
    middle = time[width - 1 :] - (width - 1) / 2 * interval_seconds
    spread = interval_seconds**2 * width * (width**2 - 1) / 12
    slope = (weighted - middle * total) / spread
    result = np.full(values.shape, np.nan)
    now = time[width - 1 :]
    result[:, width - 1 :] = centre + total / width + slope * (now + ahead_seconds - middle)
    return result


def lasting(condition: Bools, intervals: int) -> Bools:
    """Prometheus' `for`: whether a condition has held for a number of intervals before this one, and still does."""
    places = np.arange(condition.shape[1])
    last_false = np.maximum.accumulate(np.where(condition, -1, places), axis=1)
    return condition & (places - last_false > intervals)


def _linear_hour(scenarios: Scenarios) -> Bools:
    ahead = predict_linear(scenarios.values, scenarios.interval_seconds, 3600.0, AHEAD_SECONDS)
    return ahead >= first_day_limit(scenarios)[:, None]


def _linear_six_hours(scenarios: Scenarios) -> Bools:
    ahead = predict_linear(scenarios.values, scenarios.interval_seconds, 6 * 3600.0, AHEAD_SECONDS)
    return lasting(ahead >= first_day_limit(scenarios)[:, None], round(1800.0 / scenarios.interval_seconds))


def _fixed(scenarios: Scenarios) -> Bools:
    ratio = np.where(scenarios.limit_is_known, _WARNING_RATIO, _KERNEL_WARNING_RATIO / _KERNEL_RATIO)
    return scenarios.values >= (ratio * first_day_limit(scenarios))[:, None]


def _headroom(scenarios: Scenarios) -> Bools:
    usual = np.median(scenarios.values[:, : scenarios.history], axis=1)
    bar = usual + HEADROOM_SHARE * (first_day_limit(scenarios) - usual)
    return scenarios.values >= bar[:, None]


RULES: Final[Mapping[str, Callable[[Scenarios], Bools]]] = {
    "predict_linear[1h], 4 h": _linear_hour,
    "predict_linear[6h], 4 h, for 30m": _linear_six_hours,
    "fixed thresholds, 95 % of the limit": _fixed,
    "75 % of own headroom": _headroom,
}
