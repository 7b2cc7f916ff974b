"""Panels of GPUs and TPUs side by side, by the metrics that both have; then those of a TPU's runtime."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, PanelText, Placed, stat, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.grafana.rules.recording import ACCELERATOR_BUSY, ACCELERATOR_MEMORY
from kernelcast.wire.catalogue.devices import accelerator, tpu
from kernelcast.wire.catalogue.model import Metric

_ONE: Final = "accelerator, Hostname, index, modelName, GPU_I_ID"
_LEGEND: Final = "{{Hostname}} {{accelerator}} {{index}} {{GPU_I_ID}}"
_LINES: Final = 8
"""Series of a graph: as many as its legend shows without scrolling."""
_TPU: Final = "{{Hostname}} TPU {{tpu}}"


def row() -> Row:
    """How many of which model, how busy, how full."""
    return Row("GPUs and TPUs by model", (_count(), _busy(), _full()), collapsed=True)


def tpus() -> Row:
    """Panels of metrics that only TPUs have."""
    return Row("TPUs", (_duty(), _memory(), _queue(), _execution(), _transfers()), collapsed=True)


def _recorded(name: str, otherwise: str) -> str:
    """A recording, which also has the GPUs of dcgm-exporter, or the measurement where the rules are not loaded."""
    chosen = 'job=~"$job", Hostname=~"$hostname", hpc_job=~"$hpc_job"'
    return f"(max by ({_ONE}) ({name}{{{chosen}}}) or {otherwise})"


def busy() -> str:
    """Share of time in which each accelerator was at work."""
    return _recorded(ACCELERATOR_BUSY, _each(accelerator.UTILIZATION))


def full() -> str:
    """Share of each accelerator's memory that is in use."""
    used, total = _each(accelerator.MEMORY_USED), _each(accelerator.MEMORY_TOTAL)
    return _recorded(ACCELERATOR_MEMORY, f"{used} / ({total} > 0)")


def _each(metric: Metric) -> str:
    return f"max by ({_ONE}) ({promql.series(metric)})"


def _of_tpus(text: PanelText, queries: list[Query], axis: Axis, *, width: int = 8) -> Placed:
    exprs = (query.expr for query in queries)
    none = liveness.nothing("no TPU reports", exprs, promql.series(accelerator.MEMORY_USED))
    return time_series(text, [*queries, none], axis, width=width, height=7)


def _count() -> Placed:
    text = PanelText("Accelerators by model", "How many GPUs (or MIG instances) and TPUs there are, by model.")
    expr = f"count by (accelerator, modelName) ({_each(accelerator.MEMORY_TOTAL)})"
    query = Query(expr, "{{modelName}}")
    return stat(text, [query], Axis("short", low=0, decimals=0), named=True, width=6, height=7)


def _busy() -> Placed:
    text = PanelText(
        "Accelerators at work",
        f"Share of time in which GPUs, MIG instances and TPUs were at work: the {_LINES} that work least.",
    )
    query = Query(f"bottomk({_LINES}, {busy()})", _LEGEND)
    return time_series(text, [query], Axis("percentunit", low=0, high=1), width=9, height=7)


def _full() -> Placed:
    text = PanelText(
        "Accelerator memory used", f"Share of each accelerator's memory in use: the {_LINES} that have least left."
    )
    query = Query(f"topk({_LINES}, {full()})", _LEGEND)
    return time_series(text, [query], Axis("percentunit", low=0, high=1), width=9, height=7)


def _duty() -> Placed:
    text = PanelText("TensorCore duty cycle", "Share of time in which a TPU's TensorCore was at work.")
    query = Query(f"max by (Hostname, tpu) ({promql.series(tpu.DUTY_CYCLE)})", _TPU)
    return _of_tpus(text, [query], Axis("percentunit", low=0, high=1))


def _memory() -> Placed:
    text = PanelText("HBM used", "Memory of each TPU in use.")
    query = Query(f"max by (Hostname, tpu) ({promql.series(tpu.HBM_USED)})", _TPU)
    return _of_tpus(text, [query], Axis("bytes", low=0))


def _queue() -> Placed:
    text = PanelText(
        "Programs that wait",
        "Programs (HLO) queued on each TPU. An empty queue means that the host is too slow.",
    )
    query = Query(f"max by (Hostname, tpu, core_type) ({promql.series(tpu.HLO_QUEUE)})", f"{_TPU} {{{{core_type}}}}")
    return _of_tpus(text, [query], Axis("short", low=0))


def _mean(metric: Metric, by: str) -> str:
    total, count = (f"sum by ({by}) ({promql.rate(promql.series(metric, end))})" for end in ("_sum", "_count"))
    return f"{total} / ({count} > 0)"


def _execution() -> Placed:
    text = PanelText("Mean execution of a program", "Mean execution time of a program (HLO) on a TPU.")
    query = Query(_mean(tpu.HLO_EXECUTION, "Hostname, tpu, core_type"), f"{_TPU} {{{{core_type}}}}")
    return _of_tpus(text, [query], Axis("s", low=0), width=12)


def _transfers() -> Placed:
    text = PanelText(
        "Mean transfers and collectives",
        "Between host and TPU, and between slices over the data centre network.",
    )
    kinds = (
        (tpu.HOST_TO_DEVICE, "host to TPU"),
        (tpu.DEVICE_TO_HOST, "TPU to host"),
        (tpu.DCN_OUT, "to another slice"),
        (tpu.DCN_IN, "from another slice"),
        (tpu.COLLECTIVE, "collective"),
        (tpu.HOST_COMPUTE, "host's work for it"),
    )
    queries = [Query(_mean(row, "Hostname"), f"{{{{Hostname}}}} {word}") for row, word in kinds]
    return _of_tpus(text, queries, Axis("s", low=0), width=12)


def absent() -> Placed:
    """Rows of a TPU's runtime that are not there, with the reason."""
    text = PanelText(
        "Rows that a TPU's runtime does not report",
        "Absent rows and the reason. A runtime answers only while a program uses the TPU.",
        if_empty=EmptyText("no TPU reports", promql.series(accelerator.MEMORY_USED)),
    )
    labels = "Hostname, port, metric, reason"
    return table(
        text,
        [column(f"group by ({labels}) ({promql.series(tpu.ABSENT)})")],
        (
            Column("Hostname", "Node", width=180),
            Column("port", "Port", width=80),
            Column("metric", "Row"),
            Column("reason", "Reason", width=140),
        ),
        sort="Row",
        width=12,
        height=8,
    )
