"""GPUs and TPUs side by side, in the rows that both have; then the metrics of a TPU's runtime."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Column, PanelText, Placed, stat, table, time_series
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue.devices import accelerator, tpu
from kernelcast.wire.catalogue.model import Metric

_ONE: Final = "accelerator, Hostname, index, modelName, GPU_I_ID"
_LEGEND: Final = "{{Hostname}} {{accelerator}} {{index}} {{GPU_I_ID}}"
_TPU: Final = "{{Hostname}} TPU {{tpu}}"


def row() -> Row:
    """How many of which sort, how busy, how full."""
    return Row("Accelerators", (_count(), _idle(), _busy(), _full()))


def tpus() -> Row:
    """Panels of metrics that only TPUs have."""
    return Row("TPUs", (_duty(), _memory(), _queue(), _execution(), _transfers(), _absent()), collapsed=True)


def _each(metric: Metric) -> str:
    return f"max by ({_ONE}) ({promql.series(metric)})"


def _count() -> Placed:
    text = PanelText("Accelerators by model", "How many GPUs (or MIG instances) and TPUs there are, by model.")
    expr = f"count by (accelerator, modelName) ({_each(accelerator.MEMORY_TOTAL)})"
    query = Query(expr, "{{modelName}}")
    return stat(text, [query], Axis("short", low=0, decimals=0), named=True, width=12, height=5)


def _idle() -> Placed:
    text = PanelText(
        "Idle, by sort",
        "Share of accelerators that were busy for less than 1 % of the time: capacity that is paid for and not used.",
    )
    busy = _each(accelerator.UTILIZATION)
    query = Query(f"avg by (accelerator) ({busy} < bool 0.01)", "{{accelerator}}")
    return stat(text, [query], Axis("percentunit", low=0, high=1), named=True, width=12, height=5)


def _busy() -> Placed:
    text = PanelText("Accelerators at work", "Share of time in which each GPU, MIG instance or TPU was at work.")
    return time_series(text, [Query(_each(accelerator.UTILIZATION), _LEGEND)], Axis("percentunit", low=0, high=1))


def _full() -> Placed:
    text = PanelText("Accelerator memory used", "Share of each accelerator's memory in use.")
    used, total = _each(accelerator.MEMORY_USED), _each(accelerator.MEMORY_TOTAL)
    return time_series(text, [Query(f"{used} / ({total} > 0)", _LEGEND)], Axis("percentunit", low=0, high=1))


def _duty() -> Placed:
    text = PanelText("TensorCore duty cycle", "Share of time in which a TPU's TensorCore was at work.")
    query = Query(f"max by (Hostname, tpu) ({promql.series(tpu.DUTY_CYCLE)})", _TPU)
    return time_series(text, [query], Axis("percentunit", low=0, high=1))


def _memory() -> Placed:
    text = PanelText("HBM used", "Memory of each TPU in use.")
    query = Query(f"max by (Hostname, tpu) ({promql.series(tpu.HBM_USED)})", _TPU)
    return time_series(text, [query], Axis("bytes", low=0))


def _queue() -> Placed:
    text = PanelText(
        "Programs that wait",
        "Programs (HLO) queued on each TPU. An empty queue means that the host is too slow.",
    )
    query = Query(f"max by (Hostname, tpu, core_type) ({promql.series(tpu.HLO_QUEUE)})", f"{_TPU} {{{{core_type}}}}")
    return time_series(text, [query], Axis("short", low=0))


def _mean(metric: Metric, by: str) -> str:
    total, count = (f"sum by ({by}) ({promql.rate(promql.series(metric, end))})" for end in ("_sum", "_count"))
    return f"{total} / ({count} > 0)"


def _execution() -> Placed:
    text = PanelText("Mean execution of a program", "Mean execution time of a program (HLO) on a TPU.")
    query = Query(_mean(tpu.HLO_EXECUTION, "Hostname, tpu, core_type"), f"{_TPU} {{{{core_type}}}}")
    return time_series(text, [query], Axis("s", low=0))


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
    return time_series(text, queries, Axis("s", low=0))


def _absent() -> Placed:
    text = PanelText(
        "Rows that a TPU's runtime does not report",
        "Absent rows and the reason. A runtime answers only while a program uses the TPU.",
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
