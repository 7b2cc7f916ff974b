"""A row of panels about the exporters, on the page `pipeline`: deadlines, reading of the GPUs, delivery to Kafka."""

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, limits, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import exporter


def row() -> Row:
    """Deadlines, spool, GPUs, state, and the users of the GPUs."""
    return Row(
        "Exporters",
        (
            _lateness(),
            _failed(),
            _spool(),
            _spool_flow(),
            _nvml(),
            _nvml_process(),
            _state(),
            _attribution(),
            _unnamed(),
            _tpus(),
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


def _spool_flow() -> Placed:
    text = PanelText(
        "Into the spool, and out of it",
        "Messages a second written to disk, confirmed by Kafka since, and lost, by reason.",
    )
    lost = promql.rate(promql.series(exporter.SPOOL_DROPPED))
    queries = [
        Query(f"sum({promql.rate(promql.series(exporter.SPOOL_WRITTEN))})", "written"),
        Query(f"sum({promql.rate(promql.series(exporter.SPOOL_REPLAYED))})", "replayed"),
        Query(f"sum by (reason) ({lost})", "lost: {{reason}}"),
    ]
    return time_series(text, queries, Axis("mps", low=0))


def _nvml() -> Placed:
    text = PanelText(
        "NVML errors",
        "Calls that failed for another reason than that the GPU does not support them.",
        if_empty=EmptyText("No call failed", liveness.EXPORTERS),
    )
    errors = promql.marked(promql.series(exporter.NVML_ERRORS))
    query = Query(f"sum by (instance, call) ({errors})", "{{instance}} {{call}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _nvml_process() -> Placed:
    text = PanelText(
        "NVML's process",
        "A separate process calls NVML: numbers of starts, crashes and kills after a hang, and the call that hangs "
        "now.",
        if_empty=EmptyText("Nothing happened", promql.series(exporter.NVML_STARTS)),
    )
    rows = ((exporter.NVML_STARTS, "started"), (exporter.NVML_CRASHES, "crashed"), (exporter.NVML_HANGS, "hung"))
    queries = [Query(promql.marked(promql.series(row)), f"{{{{instance}}}} {word}") for row, word in rows]
    queries.append(Query(f"{promql.series(exporter.NVML_HUNG)} > 0", "{{instance}} hangs in {{call}}"))
    return time_series(text, queries, Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _state() -> Placed:
    text = PanelText(
        "State not saved",
        "Snapshots of the totals that could not be written or read: a crash would cost them.",
        if_empty=EmptyText("Every snapshot was saved", promql.series(exporter.STATE_ERRORS)),
    )
    errors = promql.marked(promql.series(exporter.STATE_ERRORS))
    query = Query(f"sum by (instance, operation) ({errors})", "{{instance}} {{operation}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


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


def _unnamed() -> Placed:
    text = PanelText(
        "Failed attempts to read the users",
        "By source: the kubelet, the names of its log directories, the job directory, the users' names.",
        if_empty=EmptyText("Every attempt succeeded", liveness.EXPORTERS),
    )
    errors = promql.marked(promql.series(exporter.ATTRIBUTION_ERRORS))
    query = Query(f"sum by (instance, source) ({errors})", "{{instance}} {{source}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _tpus() -> Placed:
    text = PanelText(
        "Failed readings of TPU runtimes",
        "Readings of a TPU's runtime with a late or wrong answer; an absent runtime is no error.",
        if_empty=EmptyText("Every reading succeeded", liveness.EXPORTERS),
    )
    errors = promql.marked(promql.series(exporter.TPU_ERRORS))
    query = Query(f"sum by (instance, reason) ({errors})", "{{instance}} {{reason}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _left_off() -> Placed:
    text = PanelText(
        "Device metrics switched off",
        "Exporters that write no DCGM_FI_* series, and the reason: a dcgm-exporter on the node writes them, or the "
        "setting.",
        if_empty=EmptyText("Every exporter writes them", liveness.EXPORTERS),
    )
    query = Query(f"{promql.series(exporter.DEVICE_METRICS_OFF)} > 0", "{{instance}} {{reason}}")
    return time_series(
        text, [query], Axis("short", low=0, high=1, decimals=0), LineStyle(bars=True), width=24, height=5
    )
