"""PromQL for the time until a series crosses its limit, and for the time since it did; several panels show it."""

from collections.abc import Collection
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.panels import Json, States
from kernelcast.wire.catalogue import forecast

CROSSED: Final[States] = {"0": ("crossed", "red")}
"""For a time left: the predictor publishes 0 while the series is beyond its limit."""
TIME_NOT_KNOWN: Final = 1_000_000_000
"""Instead of seconds: later than every time that is known."""
SOONEST: Final[States] = {**CROSSED, str(TIME_NOT_KNOWN): ("time not known", "orange")}
"""For results of `soonest`."""
_PREDICTIONS: Final = "Kernelcast(BreachImminent|DegradationPredicted)"
"""Alerts that a limit will be crossed. They last for a while when a probability falls, so that they do not flap."""
FROM_NOW: Final = "dateTimeFromNow"
"""Grafana's unit for Unix milliseconds: "in 12 minutes", "8 minutes ago"."""
SINCE: Final[Json] = {
    "matcher": {"id": "byRegexp", "options": "/crossed$/"},
    "properties": [
        {"id": "unit", "value": FROM_NOW},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}},
    ],
}
"""An override for results of `since` in a figure, whose names end so."""


def left(
    by: str, *, quantile: str = "0.5", extra: Collection[str] = (), free: Collection[str] = (), among: str = ""
) -> str:
    """Seconds until a share of the simulated paths have crossed the limit; 0 while it is crossed.

    Args:
        by: Labels of the result.
        quantile: The share.
        extra: Further matchers, here and below.
        free: Labels that the variables must not narrow, here and below.
        among: Series of the GPUs that are meant, here and below; empty for all.
    """
    selected = promql.series(forecast.DEGRADATION_TIME, extra=(f'quantile="{quantile}"', *extra), free=free)
    return f"min by ({by}) ({selected}{_among(among)})"


def _among(series: str) -> str:
    return f" and on (Hostname, gpu) group by (Hostname, gpu) ({series})" if series else ""


def soonest(by: str, *, free: Collection[str] = (), among: str = "") -> str:
    """Seconds until a limit is crossed; `TIME_NOT_KNOWN` where an alert predicts it and no share of paths says when."""
    chosen = 'Hostname=~"$hostname|", gpu=~"$gpu|"'
    predicted = f'ALERTS{{alertstate="firing", alertname=~"{_PREDICTIONS}", {chosen}}}'
    alert = f"{TIME_NOT_KNOWN} * group by ({by}) ({predicted}{_among(among)})"
    return f"({left(by, free=free, among=among)} or {alert})"


def since(by: str, *, extra: Collection[str] = (), free: Collection[str] = (), among: str = "") -> str:
    """When the limit was crossed, in Unix milliseconds; only while the predictor's alert lasts."""
    selected = promql.series(forecast.DEGRADATION_CROSSED, extra=extra, free=free)
    return f"1000 * min by ({by}) ({selected}{_among(among)})"


def moment(by: str, *, extra: Collection[str] = (), free: Collection[str] = ()) -> str:
    """When the limit was crossed, or else when half of the simulated paths will have, in Unix milliseconds."""
    future = f"1000 * (time() + {left(by, extra=extra, free=free)})"
    return f"({since(by, extra=extra, free=free)} or {future})"
