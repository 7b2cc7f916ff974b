"""Panels that show something although a service that their metrics come from is stopped, on a real Prometheus."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.service.grafana.test_simulated_hour import panels, substituted
from tests.service.servers import PrometheusServer

from kernelcast.grafana.model.unanswered import SHOWN_WITHOUT
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, CATALOGUE, bridge, exporter
from kernelcast.wire.catalogue.model import Metric

DEMO_RANGE: Final = {"[4m]": "[20s]"}
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_SUFFIX: Final = re.compile(r"_(bucket|sum|count)$")


@dataclass(frozen=True, slots=True)
class Panels:
    """The panels' answers at one moment, and the metrics that there were.

    Attributes:
        metrics: Names of the metrics with a present value.
        shown: Titles of the panels with an answer.
    """

    metrics: frozenset[str]
    shown: Mapping[str, frozenset[str]]


def look(prometheus: PrometheusServer) -> Panels:
    """Ask every panel of every page for its present values."""
    answered: dict[str, bool] = {}
    shown: dict[str, set[str]] = {}
    for panel in panels():
        for target in panel["targets"]:
            expr = _narrowed(target["expr"])
            if expr not in answered:
                answered[expr] = any(value == value for _, value in prometheus.query(expr))  # noqa: PLR0124  NaN
            if answered[expr]:
                shown.setdefault(panel["title"], set()).add(expr)
    present = prometheus.query('count by (__name__) ({__name__!=""})')
    return Panels(
        frozenset(labels["__name__"] for labels, _ in present),
        {title: frozenset(all_) for title, all_ in shown.items()},
    )


def lost(before: Panels, now: Panels, service: str) -> frozenset[str]:
    """Metrics without a present value since a service was stopped, and those of the service that never had one."""
    return (before.metrics | {row.prometheus_name for row in _rows(service)}) - now.metrics


def still_shown(before: Panels, now: Panels, service: str) -> dict[str, list[str]]:
    """Panels that name a lost metric, show something, and are not declared to: their titles, with the queries."""
    gone = lost(before, now, service)
    found: dict[str, list[str]] = {}
    for title, queries in now.shown.items():
        of_lost = sorted(query for query in queries if _metrics(query) & gone)
        if of_lost and title not in SHOWN_WITHOUT[service]:
            found[title] = of_lost
    return found


def _rows(service: str) -> Iterable[Metric]:
    """The catalogue's rows whose values end with a service."""
    for row in CATALOGUE:
        through_kafka = bool(row.otlp_name)
        about_hints = row.source == "predictor" and row.prometheus_name.startswith("kernelcast_hint_")
        ends = {
            "predictor": row.source == "predictor",
            "exporter": (through_kafka and not about_hints) or row in exporter.ROWS,
            "kafka": through_kafka,
            "bridge": through_kafka or row in bridge.ROWS,
        }
        if ends[service]:
            yield row


def _metrics(expr: str) -> set[str]:
    """Names in a query, also those of a histogram's row."""
    words = set(_NAME.findall(expr))
    return words | {name for word in words if (name := _SUFFIX.sub("", word)) in BY_PROMETHEUS_NAME}


def _narrowed(expr: str) -> str:
    expr = substituted(expr)
    for old, new in DEMO_RANGE.items():
        expr = expr.replace(old, new)
    return expr
