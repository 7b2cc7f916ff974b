"""Health of a GPU that changes seldom: its place in an NVLink fabric, repairs that wait for a reset, SRAM errors.

The exporter's NVML source asks for it once a minute (`exporter/nvml/sampling/health.py`).
"""

from typing import Final

from kernelcast.wire.catalogue.devices.device import DEVICE_LABELS
from kernelcast.wire.catalogue.model import Kind
from kernelcast.wire.catalogue.naming import kafka_metric

_FABRIC: Final = "NVML nvmlDeviceGetGpuFabricInfoV"
NOT_STARTED, IN_PROGRESS, COMPLETED = "not_started", "in_progress", "completed"
SUCCESS: Final = "success"

FABRIC: Final = kafka_metric(
    "kernelcast.gpu.fabric.info",
    Kind.INFO,
    "Place of a GPU in its NVLink fabric, where it is behind switches: state of its registration (not_started, "
    "in_progress, completed), NVML's status, clique and UUID of the cluster.",
    unit="",
    labels=(*DEVICE_LABELS, "state", "status", "clique", "cluster_uuid"),
    source=_FABRIC,
)
FABRIC_FAULT: Final = kafka_metric(
    "kernelcast.gpu.fabric.fault_active",
    Kind.GAUGE,
    "Whether the fabric reports a fault for a GPU now: 1 or 0. Faults: unhealthy, limited_capacity, "
    "degraded_bandwidth, route_recovery, route_unhealthy, access_timeout_recovery, incorrect_configuration; only those "
    "that the driver reports.",
    unit="",
    labels=(*DEVICE_LABELS, "fault"),
    source=_FABRIC,
)
REPAIR_PENDING: Final = kafka_metric(
    "kernelcast.gpu.repair_pending",
    Kind.GAUGE,
    'Whether a repair waits for the next reset: 1 or 0; part="channel" (of the memory) or "tpc" (of the processors).',
    unit="",
    labels=(*DEVICE_LABELS, "part"),
    source="NVML nvmlDeviceGetRepairStatus",
)
UNREPAIRABLE: Final = kafka_metric(
    "kernelcast.gpu.memory_unrepairable",
    Kind.GAUGE,
    "Whether the GPU has memory that cannot be repaired: 1 or 0.",
    unit="",
    labels=DEVICE_LABELS,
    source="NVML nvmlDeviceGetUnrepairableMemoryFlag_v1",
)
SRAM_THRESHOLD: Final = kafka_metric(
    "kernelcast.gpu.sram_threshold_exceeded",
    Kind.GAUGE,
    "Whether uncorrectable SRAM errors have exceeded the threshold of NVIDIA's field diagnostics: 1 or 0.",
    unit="",
    labels=DEVICE_LABELS,
    source="NVML nvmlDeviceGetSramEccErrorStatus, bThresholdExceeded",
)
SRAM_ERRORS: Final = kafka_metric(
    "kernelcast.gpu.sram_uncorrectable_errors",
    Kind.GAUGE,
    "Uncorrectable SRAM errors in the GPU's life, by the unit that had them: l2, sm, microcontroller, pcie, other. "
    "A unit without errors has no series.",
    unit="{error}",
    labels=(*DEVICE_LABELS, "unit"),
    source="NVML nvmlDeviceGetSramEccErrorStatus, aggregateUncBucket…",
)

ROWS: Final = (FABRIC, FABRIC_FAULT, REPAIR_PENDING, UNREPAIRABLE, SRAM_THRESHOLD, SRAM_ERRORS)
