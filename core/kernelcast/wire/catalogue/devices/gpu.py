"""GPU metrics beyond DCGM's: XIDs as events, processes, active reasons to lower clocks, rows that a GPU lacks.

The exporter's NVML source writes them; those of the kernel's log come from `exporter/kernel_log`.
"""

from typing import Final

from kernelcast.wire.catalogue.devices.device import DEVICE_LABELS, USER_LABELS
from kernelcast.wire.catalogue.model import Kind
from kernelcast.wire.catalogue.naming import kafka_metric

XID_LABELS: Final = (*DEVICE_LABELS, "xid", "err_msg")
PROCESS_LABELS: Final = (*DEVICE_LABELS, "pid", "process_name", "type")
UP_LABELS: Final = ("Hostname", "UUID", "gpu", "pci_bus_id", "device", "modelName", "source")
_EVENTS: Final = "NVML event XidCriticalError"
_PROCESSES: Final = "NVML nvmlDeviceGetComputeRunningProcesses, Graphics and MPS likewise"
_UTILIZATION: Final = "NVML nvmlDeviceGetProcessUtilization, % / 100"

GPU_UP: Final = kafka_metric(
    "kernelcast.gpu.up",
    Kind.GAUGE,
    "Whether a GPU that this exporter has seen answered at the last interval: 1, or 0 where it is gone, or NVML hangs.",
    unit="",
    labels=UP_LABELS,
    source="exporter",
)
RELEASED: Final = "released"
REMOVED: Final = "removed"
GPU_DETACHED: Final = kafka_metric(
    "kernelcast.gpu.detached",
    Kind.GAUGE,
    "Always 1; in place of kernelcast_gpu_up while a GPU that this exporter has seen is away on purpose: released (by "
    "`kernelcast exporter release`), or removed (the driver no longer lists it, and it did not fall off the bus).",
    unit="",
    labels=(*UP_LABELS, "reason"),
    source="exporter",
)
OWNER: Final = kafka_metric(
    "kernelcast.gpu.owner.info",
    Kind.INFO,
    "Pod or job that has a GPU or MIG instance, where exporter.attribution is info; to join with the series of the GPU "
    "by Hostname, UUID and GPU_I_ID. One for each owner.",
    unit="",
    labels=("Hostname", "UUID", "gpu", "GPU_I_ID", "source", *USER_LABELS),
    source="exporter, as the labels of a GPU's series",
)
XID_ERRORS: Final = kafka_metric(
    "kernelcast.gpu.xid_errors",
    Kind.COUNTER,
    "XID errors since the exporter began, by number; starts at 0 one interval before the first is counted.",
    unit="{error}",
    labels=XID_LABELS,
    source=_EVENTS,
)
XID_LAST: Final = kafka_metric(
    "kernelcast.gpu.xid_last_occurrence_timestamp",
    Kind.GAUGE,
    "When an XID occurred last, Unix time.",
    unit="s",
    labels=XID_LABELS,
    source=_EVENTS,
)
_KERNEL_LOG: Final = "/dev/kmsg, `NVRM: Xid`"
KERNEL_LOG_XIDS: Final = kafka_metric(
    "kernelcast.gpu.kernel_log.xid_errors",
    Kind.COUNTER,
    "XID errors that the driver has logged since an exporter last read the kernel's log, those of the time without one "
    "included; starts at 0 one interval before the first is counted.",
    unit="{error}",
    labels=(*UP_LABELS, "xid", "err_msg"),
    source=_KERNEL_LOG,
)
KERNEL_LOG_XID_LAST: Final = kafka_metric(
    "kernelcast.gpu.kernel_log.xid_last_occurrence_timestamp",
    Kind.GAUGE,
    "When the driver logged an XID last, Unix time.",
    unit="s",
    labels=(*UP_LABELS, "xid", "err_msg"),
    source=_KERNEL_LOG,
)
CLOCK_EVENT: Final = kafka_metric(
    "kernelcast.gpu.clock_event_active",
    Kind.GAUGE,
    "Whether a reason to lower the clocks is active now: 1 or 0.",
    unit="",
    labels=(*DEVICE_LABELS, "reason"),
    source="NVML nvmlDeviceGetCurrentClocksEventReasons, one bit",
)
FIELD_ABSENT: Final = kafka_metric(
    "kernelcast.gpu.field_absent",
    Kind.GAUGE,
    "A row of the counters table that this GPU does not report, always 1. Reasons: not_supported, no_permission, "
    "no_data, needs_hopper, mig (not reported for a divided GPU), implausible (contradicts another row or the "
    "last reading, or no GPU has it), lost, old_pynvml (the installed nvidia-ml-py does not have it), error.",
    unit="",
    labels=(*DEVICE_LABELS, "field", "reason"),
    source="exporter",
)
PROCESS_MEMORY: Final = kafka_metric(
    "kernelcast.gpu.process.memory",
    Kind.GAUGE,
    'Device memory of one process; beyond 64 on a GPU the rest is pid="other".',
    unit="By",
    labels=PROCESS_LABELS,
    source=_PROCESSES,
)
PROCESS_SM: Final = kafka_metric(
    "kernelcast.gpu.process.sm_utilization",
    Kind.GAUGE,
    "Share of the last sampling period in which one process had kernels on the GPU.",
    unit="1",
    labels=PROCESS_LABELS,
    source=_UTILIZATION,
)
PROCESS_MEMORY_UTILIZATION: Final = kafka_metric(
    "kernelcast.gpu.process.memory_utilization",
    Kind.GAUGE,
    "Share of the last sampling period in which one process read or wrote device memory.",
    unit="1",
    labels=PROCESS_LABELS,
    source=_UTILIZATION,
)
PROCESS_ENCODER: Final = kafka_metric(
    "kernelcast.gpu.process.encoder_utilization",
    Kind.GAUGE,
    "One process's share of the video encoder.",
    unit="1",
    labels=PROCESS_LABELS,
    source=_UTILIZATION,
)
PROCESS_DECODER: Final = kafka_metric(
    "kernelcast.gpu.process.decoder_utilization",
    Kind.GAUGE,
    "One process's share of the video decoder.",
    unit="1",
    labels=PROCESS_LABELS,
    source=_UTILIZATION,
)

ROWS: Final = (
    OWNER,
    XID_ERRORS,
    XID_LAST,
    KERNEL_LOG_XIDS,
    KERNEL_LOG_XID_LAST,
    CLOCK_EVENT,
    FIELD_ABSENT,
    PROCESS_MEMORY,
    PROCESS_SM,
    PROCESS_MEMORY_UTILIZATION,
    PROCESS_ENCODER,
    PROCESS_DECODER,
)
