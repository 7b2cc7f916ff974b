"""A row of panels about InfiniBand and RoCE ports, on the page `node`: state, traffic, errors, congestion."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, state_timeline, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue.devices import infiniband

PORT: Final = "{{Hostname}} {{device}} port {{port}}"
_BY: Final = "Hostname, device, port"


def row() -> Row:
    """State, traffic, errors, congestion."""
    return Row("InfiniBand", (_state(), _traffic(), _errors(), _congestion()), collapsed=True)


def _state() -> Placed:
    text = PanelText("Ports", "Logical state of each port. A port without a cable is always down.")
    states = {
        "1": ("down", "red"),
        "2": ("initialising", "orange"),
        "3": ("armed", "orange"),
        "4": ("active", "green"),
    }
    query = Query(f"max by ({_BY}) ({promql.series(infiniband.STATE)})", PORT)
    return state_timeline(text, [query], states)


def _traffic() -> Placed:
    text = PanelText("InfiniBand traffic", "Bytes a second in each direction.")
    traffic = f"max by ({_BY}, direction) ({promql.rate(promql.series(infiniband.IO))})"
    return time_series(text, [Query(traffic, f"{PORT} {{{{direction}}}}")], Axis("Bps", low=0))


def _errors() -> Placed:
    text = PanelText(
        "InfiniBand errors",
        "Errors over time, by the kernel's name. Symbol errors and recoveries point to a cable or a transceiver; "
        "sequence and timeout errors to loss on the way.",
        if_empty=EmptyText("No port had an error, or exporter.infiniband is off", liveness.row(infiniband.STATE)),
    )
    errors = f"max by ({_BY}, error) ({promql.marked(promql.series(infiniband.ERRORS))})"
    return time_series(
        text, [Query(errors, f"{PORT} {{{{error}}}}")], Axis("short", low=0, decimals=0), LineStyle(bars=True)
    )


def _congestion() -> Placed:
    text = PanelText(
        "InfiniBand congestion",
        "Ticks a second in which a port had data and could not send, and RoCE's congestion notifications a second.",
    )
    waits = f"max by ({_BY}) ({promql.rate(promql.series(infiniband.TRANSMIT_WAIT))})"
    events = f"max by ({_BY}, event) ({promql.rate(promql.series(infiniband.CONGESTION))})"
    queries = [Query(waits, f"{PORT} waits"), Query(events, f"{PORT} {{{{event}}}}")]
    return time_series(text, queries, Axis("eps", low=0), width=24)
