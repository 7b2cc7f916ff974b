"""Panels that show something although a service that their metrics come from is stopped, on a real Prometheus."""

import re
from collections.abc import Iterable
from typing import Final

from tests.service.grafana.test_simulated_hour import panels, substituted
from tests.service.servers import PrometheusServer

from kernelcast.grafana.model.unanswered import SHOWN_WITHOUT
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, CATALOGUE, bridge, exporter
from kernelcast.wire.catalogue.model import Metric

DEMO_RANGE: Final = {"[4m]": "[20s]", "offset 4m": "offset 20s"}
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_SUFFIX: Final = re.compile(r"_(bucket|sum|count)$")


def present_metrics(prometheus: PrometheusServer) -> frozenset[str]:
    """Names of the metrics with a present value."""
    present = prometheus.query('count by (__name__) ({__name__!=""})')
    return frozenset(labels["__name__"] for labels, _ in present)


def still_shown(prometheus: PrometheusServer, before: frozenset[str], service: str) -> dict[str, list[str]]:
    """Panels that name a lost metric, show something, and are not declared to: their titles, with the queries.

    Args:
        prometheus: Answers the panels of every page, with present values.
        before: The metrics before the service was stopped.
        service: The service.
    """
    gone = (before | {row.prometheus_name for row in _rows(service)}) - present_metrics(prometheus)
    answered: dict[str, bool] = {}
    found: dict[str, set[str]] = {}
    for panel in panels():
        queries = (_narrowed(target["expr"]) for target in panel["targets"])
        for expr in queries if panel["title"] not in SHOWN_WITHOUT[service] else ():
            if expr not in answered and _metrics(expr) & gone:
                answered[expr] = any(value == value for _, value in prometheus.query(expr))  # noqa: PLR0124  NaN
            if answered.get(expr):
                found.setdefault(panel["title"], set()).add(expr)
    return {title: sorted(queries) for title, queries in found.items()}


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
