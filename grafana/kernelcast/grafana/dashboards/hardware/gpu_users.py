"""Rows of panels about the users of GPUs, process by process, and about metrics that a GPU does not report."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.dashboards.hardware import accelerators
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import EmptyText, PanelText, Placed
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import column
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.devices import device, gpu, profiling

_INSTANCE: Final = "Hostname, gpu, GPU_I_ID"
_PROCESS: Final = "Hostname, gpu, pid, process_name, type"


def row() -> Row:
    """Processes, and their shares of time-sliced GPUs."""
    return Row("Pods, jobs and processes", (_pods(), _processes()), collapsed=True)


def gaps() -> Row:
    """Rows that are not measured, with the reason."""
    return Row("Missing measurements", (_absent(), accelerators.absent()), collapsed=True)


def _pods() -> Placed:
    text = PanelText(
        "Pods and jobs",
        "GPUs of each pod or job, with their utilisation, memory and power. Idle GPUs with an owner are at the end.",
        if_empty=EmptyText("No pod and no job is known to have a GPU", liveness.GPUS),
    )
    labels = f"{_INSTANCE}, {', '.join(device.USER_LABELS)}"
    rows = (device.GPU_UTIL, device.FB_USED, device.POWER_USAGE, profiling.PIPE_TENSOR_ACTIVE)
    owned = f"and on ({labels}) ({_owned(labels)})"
    return table(
        text,
        [column(f"max by ({labels}) ({promql.series(row)}) {owned} or {_joined(row, labels)}") for row in rows],
        (
            Column("namespace", "Namespace", width=140),
            Column("pod", "Pod"),
            Column("container", "Container", width=140),
            Column("hpc_job", "Job", width=110),
            Column("Hostname", "Node", width=160),
            Column("gpu", "GPU", width=60),
            Column("GPU_I_ID", "Instance", width=80),
            Column("Value #A", "Utilisation", "percent", width=110),
            Column("Value #D", "Tensor pipe", "percentunit", width=110),
            Column("Value #B", "Memory", "mbytes", width=110),
            Column("Value #C", "Power", "watt", width=100),
        ),
        sort="Utilisation",
    )


def _joined(row: Metric, labels: str) -> str:
    """A row of GPUs whose owners have series of their own."""
    value = f"max by ({_INSTANCE}) ({promql.series(row)})"
    return f"max by ({labels}) ({promql.series(gpu.OWNER)}) * on ({_INSTANCE}) group_left () {value}"


def _owned(labels: str) -> str:
    """GPUs of somebody: an absent label is empty, and one that is there is not."""
    by_pod = promql.series(device.FB_USED, extra=('pod!=""',))
    by_job = promql.series(device.FB_USED, extra=('hpc_job!=""',))
    return f"group by ({labels}) ({by_pod} or {by_job})"


def _processes() -> Placed:
    text = PanelText(
        "Processes",
        "Processes on the GPUs now: memory, and the share of the last sampling period with kernels of the process.",
    )
    memory = f"max by ({_PROCESS}) ({promql.series(gpu.PROCESS_MEMORY)})"
    shares = (gpu.PROCESS_SM, gpu.PROCESS_MEMORY_UTILIZATION, gpu.PROCESS_ENCODER, gpu.PROCESS_DECODER)
    return table(
        text,
        [column(memory), *(column(f"max by ({_PROCESS}) ({promql.series(share)})") for share in shares)],
        (
            Column("Hostname", "Node", width=180),
            Column("gpu", "GPU", width=60),
            Column("pid", "Process", width=90),
            Column("process_name", "Executable"),
            Column("type", "Kind", width=90),
            Column("Value #A", "Memory", "bytes", width=110),
            Column("Value #B", "Multiprocessors", "percentunit", bar=True, width=170),
            Column("Value #C", "Memory interface", "percentunit", bar=True, width=170),
            Column("Value #D", "Encoder", "percentunit", width=90),
            Column("Value #E", "Decoder", "percentunit", width=90),
        ),
        sort="Memory",
    )


def _absent() -> Placed:
    text = PanelText(
        "Rows that a GPU does not report",
        "Rows of the counters table that a GPU does not report, and the reason. Absent is not zero.",
        if_empty=EmptyText("Every row that was asked for is there", liveness.GPUS),
    )
    labels = "modelName, field, reason"
    return table(
        text,
        [column(f"count by ({labels}) (group by (Hostname, gpu, {labels}) ({promql.series(gpu.FIELD_ABSENT)}))")],
        (
            Column("modelName", "Model", width=220),
            Column("field", "Row"),
            Column("reason", "Reason", width=160),
            Column("Value", "GPUs", "short", width=90),
        ),
        sort="GPUs",
        width=12,
        height=8,
    )
