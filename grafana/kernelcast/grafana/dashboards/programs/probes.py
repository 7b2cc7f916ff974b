"""A row of panels about the probes, on the page `pipeline`: method, coverage, overhead and losses."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import exporter, kernel

_RANK: Final = "{{program}} {{rank}}"
BACKS_OFF_RATIO: Final = 0.01
STOPS_RATIO: Final = 0.02
"""Shares of wall time at which the probe measures less, and not at all."""


def row() -> Row:
    """Each program's state, then coverage, cost and losses over time."""
    return Row("Probes", (_states(), _overhead(), _unseen(), _dropped(), _server()), collapsed=True)


def _states() -> Placed:
    text = PanelText(
        "Probes",
        "Each program's probe: state with the reason, the share of launches whose duration was measured, and the "
        "share that it tries to time. Launches that the method cannot see, such as cuBLAS under the CuPy hook, and the "
        "time between two windows count as not measured.",
    )
    by = "Hostname, program, rank"
    state = f"group by ({by}, state, reason) ({promql.series(kernel.PROBE_STATE)})"
    method = f"group by ({by}, method, version) ({promql.series(kernel.PROBE_INFO)})"
    ratios = (f"min by ({by}) ({promql.series(row)})" for row in (kernel.PROBE_COVERAGE, kernel.PROBE_SAMPLE))
    return table(
        text,
        [column(state), column(method), *map(column, ratios)],
        (
            Column("program", "Program"),
            Column("rank", "Rank", width=55),
            Column("state", "State", width=90),
            Column("reason", "Reason"),
            Column("Value #C", "Coverage", "percentunit", bar=True, width=120, decimals=0),
            Column("Value #D", "Sampled", "percentunit", width=80, decimals=0),
            Column("Hostname", "Node", width=130),
            Column("method", "Method", width=90),
            Column("version", "Version", width=110),
        ),
        sort="Program",
        height=8,
    )


def _overhead() -> Placed:
    text = PanelText(
        "Overhead of measuring",
        "Share of wall time that probes took from their programs' threads, by their own clocks. From "
        f"{BACKS_OFF_RATIO * 100:g} % on a probe measures less, from {STOPS_RATIO * 100:g} % on it is off.",
    )
    taken = promql.rate(promql.series(kernel.PROBE_OVERHEAD))
    query = Query(promql.ranked(f"max by (program, rank) ({taken})"), _RANK)
    return time_series(text, [query], Axis("percentunit", low=0, soft_high=STOPS_RATIO))


def _unseen() -> Placed:
    text = PanelText(
        "Launches not measured, by reason",
        "Launches that a method knows of but cannot time or name.",
        if_empty=EmptyText("Every launch that is known of was seen", liveness.PROGRAMS),
    )
    unseen = promql.rate(promql.series(kernel.PROBE_UNSEEN))
    query = Query(f"sum by (program, reason) ({unseen}) > 0", "{{program}} {{reason}}")
    return time_series(text, [query], Axis("eps", low=0), LineStyle(stacked=True))


def _dropped() -> Placed:
    text = PanelText(
        "Dropped by probes",
        "Frames that the socket did not accept (the next frame includes them), activity records and outcomes of hints "
        "that are lost, records without a usable time (launches are counted), and hints that a probe cannot read.",
        if_empty=EmptyText("Nothing was dropped", liveness.PROGRAMS),
    )
    rows = (
        (kernel.PROBE_DROPPED, "frames"),
        (kernel.PROBE_RECORDS, "records"),
        (kernel.PROBE_UNTIMED, "records without a time"),
        (kernel.PROBE_OUTCOMES, "outcomes"),
        (kernel.PROBE_MALFORMED, "unreadable hints"),
    )
    queries = [
        Query(f"sum by (program) ({promql.rate(promql.series(row))}) > 0", f"{{{{program}}}} {word}")
        for row, word in rows
    ]
    return time_series(text, queries, Axis("eps", low=0))


def _server() -> Placed:
    text = PanelText(
        "At the exporters' sockets",
        "Programs connected to the exporters, processes whose totals are not final, connections refused, and reports "
        "that programs left while their exporter was away.",
    )
    queries = [
        Query(f"sum({promql.series(exporter.PROBE_CONNECTIONS)})", "connections"),
        Query(f"sum({promql.series(exporter.PROBE_PROCESSES)})", "processes"),
        Query(f"sum by (reason) ({promql.marked(promql.series(exporter.PROBE_REFUSED))})", "refused: {{reason}}"),
        Query(f"sum by (outcome) ({promql.marked(promql.series(exporter.PROBE_LEFT))})", "left reports: {{outcome}}"),
    ]
    return time_series(text, queries, Axis("short", low=0, decimals=0))
