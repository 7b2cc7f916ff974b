"""A row of panels about the exporters, on the page `pipeline`: deadlines, reading of the GPUs, delivery to Kafka."""

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, limits, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import exporter


def row() -> Row:
    """Deadlines, spool, readings that failed, and the users of the GPUs."""
    return Row(
        "Exporters",
        (
            _lateness(),
            _failed(),
            _spool(),
            _readings(),
            _attribution(),
            _left_off(),
        ),
        collapsed=True,
    )


def _lateness() -> Placed:
    text = PanelText(
        "Exporters' lateness",
        "Time between the deadline and the sampling of the last interval, and the duration of that interval. Late "
        "samples make rates inexact; if an interval takes too long, the next one is skipped.",
    )
    rows = ((exporter.TICK_LATENESS, "late"), (exporter.TICK_DURATION, "took"))
    queries = [
        Query(f"quantile({share}, {promql.series(row)})", f"{legend}, {words}")
        for row, legend in rows
        for share, words in ((0.5, "median"), (1, "slowest exporter"))
    ]
    return time_series(text, queries, Axis("s", low=0))


def _failed() -> Placed:
    text = PanelText(
        "Intervals missed or failed",
        "Intervals that were skipped because the previous one took too long, and intervals in which a source failed.",
        if_empty=EmptyText("None", liveness.EXPORTERS),
    )
    rows = ((exporter.TICKS_MISSED, "missed"), (exporter.TICK_ERRORS, "failed"))
    queries = [Query(promql.marked(promql.series(row)), f"{{{{instance}}}} {word}") for row, word in rows]
    return time_series(text, queries, Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _spool() -> Placed:
    text = PanelText(
        "Waiting on disk",
        "Messages for Kafka on the exporters' disks: none in normal operation, a rising line while Kafka is down, and "
        "a falling one after its return. The ten largest.",
        if_empty=EmptyText("Nothing waits", liveness.EXPORTERS),
        runbooks=("KernelcastSpoolFilling", "KernelcastSpoolDropping"),
    )
    query = Query(f"topk(10, {promql.series(exporter.SPOOL_BYTES)} > 0)", "{{instance}}")
    return time_series(text, [query], Axis("bytes", low=0))


def _readings() -> Placed:
    text = PanelText(
        "Failed readings",
        "What exporters could not read or write, one mark for each: calls of NVML, the process that calls it (crashed, "
        "or killed after a hang), the users of GPUs, a TPU's runtime, snapshots of the totals. "
        "And a call of NVML that hangs now.",
        if_empty=EmptyText("none", liveness.EXPORTERS),
        runbooks=("KernelcastNvmlHung", "KernelcastNvmlUnusable"),
    )
    rows = (
        (exporter.NVML_ERRORS, "NVML: {{call}}"),
        (exporter.NVML_CRASHES, "NVML's process crashed"),
        (exporter.NVML_HANGS, "NVML's process hung"),
        (exporter.ATTRIBUTION_ERRORS, "users: {{source}}"),
        (exporter.TPU_ERRORS, "TPU: {{reason}}"),
        (exporter.STATE_ERRORS, "snapshot: {{operation}}"),
    )
    queries = [
        Query(f"topk(8, {promql.marked(promql.series(row))})", f"{{{{instance}}}} {legend}") for row, legend in rows
    ]
    queries.append(Query(f"{promql.series(exporter.NVML_HUNG)} > 0", "{{instance}} NVML hangs in {{call}}"))
    return time_series(text, queries, Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _attribution() -> Placed:
    text = PanelText(
        "Age of the users' labels",
        "Age of the oldest answer that gives pod, namespace, container and job, by source. Above the dashed line the "
        "labels are left out, because an outdated name could be wrong.",
    )
    queries = [
        Query(f"max by (source) ({promql.series(exporter.ATTRIBUTION_AGE)})", "{{source}}"),
        Query(f"max by (source) ({promql.series(exporter.ATTRIBUTION_KEPT)})", "{{source}} limit"),
    ]
    return time_series(text, queries, Axis("s", low=0), LineStyle(overrides=(limits("limit"),)))


def _left_off() -> Placed:
    text = PanelText(
        "Device metrics switched off",
        "Exporters that write no DCGM_FI_* series, and the reason: a dcgm-exporter on the node writes them, or the "
        "setting.",
        if_empty=EmptyText("Every exporter writes them", liveness.EXPORTERS),
    )
    query = Query(f"{promql.series(exporter.DEVICE_METRICS_OFF)} > 0", "{{instance}} {{reason}}")
    return time_series(text, [query], Axis("short", low=0, high=1, decimals=0), LineStyle(bars=True))
