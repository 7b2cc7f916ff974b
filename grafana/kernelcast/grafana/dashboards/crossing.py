"""PromQL for the time until a series crosses its limit, and for the time since it did; several panels show it."""

from collections.abc import Collection
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.panels import Json, States
from kernelcast.wire.catalogue import forecast

CROSSED: Final[States] = {"0": ("crossed", "red")}
"""For a time left: the predictor publishes 0 while the series is beyond its limit."""
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


def left(by: str, *, quantile: str = "0.5", extra: Collection[str] = (), free: Collection[str] = ()) -> str:
    """Seconds until a share of the simulated paths have crossed the limit; 0 while it is crossed.

    Args:
        by: Labels of the result.
        quantile: The share.
        extra: Further matchers, here and below.
        free: Labels that the variables must not narrow, here and below.
    """
    selected = promql.series(forecast.DEGRADATION_TIME, extra=(f'quantile="{quantile}"', *extra), free=free)
    return f"min by ({by}) ({selected})"


def since(by: str, *, extra: Collection[str] = (), free: Collection[str] = ()) -> str:
    """When the limit was crossed, in Unix milliseconds; only while the predictor's alert lasts."""
    return f"1000 * min by ({by}) ({promql.series(forecast.DEGRADATION_CROSSED, extra=extra, free=free)})"


def moment(by: str, *, extra: Collection[str] = (), free: Collection[str] = ()) -> str:
    """When the limit was crossed, or else when half of the simulated paths will have, in Unix milliseconds."""
    future = f"1000 * (time() + {left(by, extra=extra, free=free)})"
    return f"({since(by, extra=extra, free=free)} or {future})"
