"""Panels about InfiniBand and RoCE ports, in a row of the page `gpu`: state, traffic, errors, congestion.

The values come from node_exporter.
"""

from collections.abc import Sequence
from typing import Final

from kernelcast.grafana import node_exporter, promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, state_timeline, time_series
from kernelcast.grafana.model.targets import Query

PORT: Final = "{{nodename}} {{device}} port {{port}}"
_BY: Final = "instance, device, port"
_NEEDED: Final = "Needs node_exporter."


def panels() -> tuple[Placed, ...]:
    """State, traffic, errors, congestion."""
    return (_state(), _traffic(), _errors(), _congestion())


def _of_port(expr: str) -> str:
    return node_exporter.of_node(f"max by ({_BY}) ({expr})")


def _no_port(queries: Sequence[Query]) -> Query:
    return liveness.nothing("node_exporter reports no port", (query.expr for query in queries))


def _state() -> Placed:
    text = PanelText("Ports", f"Logical state of each port. A port without a cable is always down. {_NEEDED}")
    states = {
        "0": ("none", "text"),
        "1": ("down", "red"),
        "2": ("initialising", "orange"),
        "3": ("armed", "orange"),
        "4": ("active", "green"),
    }
    queries = [Query(_of_port(node_exporter.PORT_STATE), PORT)]
    return state_timeline(text, [*queries, _no_port(queries)], states, height=5)


def _traffic() -> Placed:
    text = PanelText("InfiniBand traffic", f"Bytes a second in each direction. {_NEEDED}")
    queries = [
        Query(_of_port(promql.rate(node_exporter.PORT_RECEIVED)), f"{PORT} receive"),
        Query(_of_port(promql.rate(node_exporter.PORT_TRANSMITTED)), f"{PORT} transmit"),
    ]
    return time_series(text, [*queries, _no_port(queries)], Axis("Bps", low=0))


def _errors() -> Placed:
    text = PanelText(
        "InfiniBand errors",
        "Errors over time. Symbol errors and recoveries point to a cable or a transceiver; sequence errors and "
        f"timeouts to loss on the way. {_NEEDED}",
    )
    kinds = {**node_exporter.PORT_PHYSICAL_ERRORS, **node_exporter.PORT_LOSSES}
    queries = [Query(_of_port(promql.marked(counter)), f"{PORT} {error}") for counter, error in kinds.items()]
    ports = _no_port([Query(_of_port(node_exporter.PORT_STATE))])
    return time_series(text, [*queries, ports], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _congestion() -> Placed:
    text = PanelText(
        "InfiniBand congestion",
        "Ticks a second in which a port had data and could not send, and RoCE's congestion notifications a second. "
        f"{_NEEDED}",
    )
    kinds = {node_exporter.PORT_WAITS: "waits", **node_exporter.PORT_CONGESTION}
    queries = [Query(_of_port(promql.rate(counter)), f"{PORT} {event}") for counter, event in kinds.items()]
    return time_series(text, [*queries, _no_port(queries)], Axis("eps", low=0), width=24, height=6)
