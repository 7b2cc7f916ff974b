"""The first row of every page: age of the data, its producers, its source, and the share of launches measured."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, PanelText, Placed, stat
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import bridge, exporter, kernel
from kernelcast.wire.catalogue.devices import gpu

_LATE_SECONDS, _OLD_SECONDS = 60, 300
"""Ages from which the data is shown in orange, and in red."""
_LOOK_BACK: Final = "[1h:1m]"
"""Subquery window in which the newest sample is looked for."""
_GPU: Final = "Hostname, gpu, UUID"
_ALL: Final = ("program", "rank", "kernel")
"""Labels that are not narrowed: pages about hardware have no such variables."""


def row() -> Row:
    """Age, exporters, source, visibility."""
    return Row("Data", (_age(), _exporters(), _source(), _visibility()))


def _age() -> Placed:
    text = PanelText(
        "Age of the data",
        "Time since the newest sample of a GPU or a program, looked for within the last hour. All other figures on "
        "this page are at least as old. While Kafka does not answer, it is the time since its last answer: the bridge "
        "keeps its series as they were. No data: older than an hour, or nothing was ever measured.",
        runbooks=("KernelcastExporterStale", "KernelcastKafkaUnreachable"),
    )
    newest = [promql.series(row, free=_ALL) for row in (gpu.GPU_UP, kernel.DEVICE_TIME)]
    # A subquery looks at whole minutes, so that data of now would seem up to a minute old.
    now = [f"max(timestamp({each}))" for each in newest]
    ages = " or ".join([*now, *(f"max(max_over_time(timestamp({each}){_LOOK_BACK}))" for each in newest)])
    axis = Axis("s", low=0, decimals=0, thresholds=((None, "green"), (_LATE_SECONDS, "orange"), (_OLD_SECONDS, "red")))
    outage = f"(max({promql.series(bridge.KAFKA_OUTAGE)}) or vector(0))"
    return stat(text, [Query(f"time() - ({ages}) + {outage}")], axis, height=3)


def _exporters() -> Placed:
    text = PanelText(
        "Producers",
        "Exporters and predictors that the bridge reads, and those of them that missed several intervals. Without a "
        "bridge: exporters that Prometheus scrapes.",
    )
    alive = f"max by (job, instance) ({promql.series(bridge.PRODUCER_UP)})"
    queries = [
        Query(f"sum({alive}) or count({promql.series(exporter.TICKS)})", "seen"),
        Query(f"sum(1 - {alive})", "silent"),
    ]
    return stat(text, queries, Axis("short", low=0, decimals=0), named=True, height=3)


def _source() -> Placed:
    text = PanelText(
        "GPUs by source",
        "GPUs with live data, and those whose series come from a recording or from the simulation (label source).",
    )
    measured = f"group by ({_GPU}, source) ({promql.measured_here()} or {promql.series(kernel.DEVICE_TIME, free=_ALL)})"
    expr = f'label_replace(count by (source) ({measured}), "source", "live", "source", "")'
    return stat(text, [Query(expr, "{{source}}")], Axis("short", low=0, decimals=0), named=True, height=3)


def _visibility() -> Placed:
    text = PanelText(
        "Launches seen",
        "Share of launches whose duration is measured, of the program where it is lowest. No data: no program reports.",
    )
    expr = f"min({promql.series(kernel.PROBE_COVERAGE, free=_ALL)})"
    return stat(text, [Query(expr)], Axis("percentunit", low=0, high=1), height=3)
