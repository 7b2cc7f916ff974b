"""A row of panels on the page `gpu` about the nodes themselves: CPU, memory, ports; from node_exporter."""

from kernelcast.grafana import node_exporter, promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.dashboards.hardware import accelerators, infiniband
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import kernel

_NODE_EXPORTER = "Needs node_exporter for the lines of the node itself."


def row() -> Row:
    """CPU, memory, then each port."""
    return Row("Node: CPU, memory, InfiniBand", (_cpu(), _memory(), *infiniband.panels()), collapsed=True)


def _cpu() -> Placed:
    text = PanelText(
        "CPU",
        "Share of the node's CPU time in use, and threads of programs that wait for a GPU; a busy CPU beside idle GPUs "
        f"means that the host is too slow. {_NODE_EXPORTER}",
    )
    waits = promql.seen_rate(kernel.SYNC_WAIT, free=("gpu", "program", "rank"))
    idle = promql.rate(f'{node_exporter.NODE_CPU}{{mode="idle"}}')
    queries = [
        Query(f"sum by (Hostname) ({waits})", "{{Hostname}} threads waiting for a GPU"),
        Query(node_exporter.of_node(f"1 - avg by (instance) ({idle})"), "{{nodename}} CPU in use"),
    ]
    unit = {
        "matcher": {"id": "byRegexp", "options": "/CPU in use$/"},
        "properties": [{"id": "unit", "value": "percentunit"}],
    }
    queries.append(liveness.nothing("no program and no node_exporter reports", (one.expr for one in queries)))
    return time_series(text, queries, Axis("short", low=0), LineStyle(overrides=(unit,)), height=6)


def _memory() -> Placed:
    text = PanelText("Memory", f"Share of each accelerator's memory in use, and of the node's own. {_NODE_EXPORTER}")
    host = f"1 - {node_exporter.NODE_MEMORY_FREE} / {node_exporter.NODE_MEMORY}"
    queries = [
        Query(accelerators.full(), "{{Hostname}} {{accelerator}} {{index}} {{GPU_I_ID}}"),
        Query(node_exporter.of_node(f"max by (instance) ({host})"), "{{nodename}}"),
    ]
    return time_series(text, queries, Axis("percentunit", low=0, high=1), height=6)
