"""The exporters: whether they keep their deadlines, read their GPUs, and get rid of what they measure."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import exporter

ATTRIBUTION_KEPT_SECONDS: Final = 120.0
"""As `exporter.attribution` keeps an answer."""


def row() -> Row:
    """Deadlines, spool, GPUs, state, and who uses the GPUs."""
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
    )


def _lateness() -> Placed:
    text = PanelText(
        "Exporters' lateness",
        "How long after its deadline an exporter sampled its last interval, and how long that took. Late samples "
        "blur rates; an interval that takes too long is left out.",
    )
    rows = ((exporter.TICK_LATENESS, "late"), (exporter.TICK_DURATION, "took"))
    queries = [Query(promql.series(row), f"{{{{instance}}}} {legend}") for row, legend in rows]
    return time_series(text, queries, Axis("s", low=0))


def _failed() -> Placed:
    text = PanelText(
        "Intervals missed or failed",
        "Intervals left out because the one before took too long, and intervals in which a source failed.",
        nothing="None",
    )
    rows = ((exporter.TICKS_MISSED, "missed"), (exporter.TICK_ERRORS, "failed"))
    queries = [Query(promql.increase(promql.series(row)), f"{{{{instance}}}} {word}") for row, word in rows]
    return time_series(text, queries, Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _spool() -> Placed:
    text = PanelText(
        "Waiting on disk",
        "What exporters hold for Kafka on their disks: nothing in good times, a ramp while Kafka is away, and back "
        "down when it returns.",
    )
    return time_series(text, [Query(promql.series(exporter.SPOOL_BYTES), "{{instance}}")], Axis("bytes", low=0))


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
    return time_series(text, queries, Axis("cps", low=0))


def _nvml() -> Placed:
    text = PanelText(
        "NVML errors",
        "Calls that failed for another reason than that the GPU does not support them.",
        nothing="No call failed",
    )
    errors = promql.increase(promql.series(exporter.NVML_ERRORS))
    query = Query(f"sum by (instance, call) ({errors})", "{{instance}} {{call}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _nvml_process() -> Placed:
    text = PanelText(
        "NVML's process",
        "NVML is asked by a process of its own: how often one was started, how many crashed, how many hung and were "
        "killed, and the call that hangs now.",
    )
    rows = ((exporter.NVML_STARTS, "started"), (exporter.NVML_CRASHES, "crashed"), (exporter.NVML_HANGS, "hung"))
    queries = [Query(promql.increase(promql.series(row)), f"{{{{instance}}}} {word}") for row, word in rows]
    queries.append(Query(promql.series(exporter.NVML_HUNG), "{{instance}} hangs in {{call}}"))
    return time_series(text, queries, Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _state() -> Placed:
    text = PanelText(
        "State not saved", "Snapshots of the totals that could not be written or read: a crash would cost them."
    )
    errors = promql.increase(promql.series(exporter.STATE_ERRORS))
    query = Query(f"sum by (instance, operation) ({errors})", "{{instance}} {{operation}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _attribution() -> Placed:
    text = PanelText(
        "Age of what names the users",
        "How old the last answer is on which pod, namespace, container and job rest, by who was asked. Past the dashed "
        "line the labels are left off: nothing is better than somebody else's name.",
        nothing="Nobody is asked: no kubelet and no job directory here",
    )
    query = Query(promql.series(exporter.ATTRIBUTION_AGE), "{{instance}} {{source}}")
    left_off = ((None, "transparent"), (ATTRIBUTION_KEPT_SECONDS, "red"))
    return time_series(text, [query], Axis("s", low=0, thresholds=left_off))


def _unnamed() -> Placed:
    text = PanelText(
        "Failed attempts to name the users",
        "By what was asked: the kubelet, the names of its log directories, the job directory, the users' names.",
        nothing="Every attempt succeeded",
    )
    errors = promql.increase(promql.series(exporter.ATTRIBUTION_ERRORS))
    query = Query(f"sum by (instance, source) ({errors})", "{{instance}} {{source}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _tpus() -> Placed:
    text = PanelText(
        "TPU runtimes that answer badly",
        "Readings of a TPU's runtime that came too late or were none; a runtime that is not there is no error.",
        nothing="Every reading succeeded",
    )
    errors = promql.increase(promql.series(exporter.TPU_ERRORS))
    query = Query(f"sum by (instance, reason) ({errors})", "{{instance}} {{reason}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _left_off() -> Placed:
    text = PanelText(
        "Device metrics left off",
        "Exporters that write no DCGM_FI_* series, and why: a dcgm-exporter beside them does, or the setting says so.",
        nothing="Every exporter writes them",
    )
    query = Query(promql.series(exporter.DEVICE_METRICS_OFF), "{{instance}} {{reason}}")
    return time_series(
        text, [query], Axis("short", low=0, high=1, decimals=0), LineStyle(bars=True), width=24, height=5
    )
