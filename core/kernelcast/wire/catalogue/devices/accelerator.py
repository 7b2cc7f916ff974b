"""Metrics that GPUs and TPUs share, so that one dashboard shows a mixed fleet; each kind has more rows of its own.

The exporter derives them from its readings of NVML (`nvml/accelerators.py`) and of the TPU runtime (`tpu/source.py`).
For a GPU in MIG mode they are those of its instances, never of both, so that sums over a fleet are right.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind
from kernelcast.wire.catalogue.naming import kafka_metric

ACCELERATOR_LABELS: Final = (
    "accelerator",
    "Hostname",
    "index",
    "modelName",
    "UUID",
    "GPU_I_ID",
    "pod",
    "namespace",
    "container",
    "hpc_job",
    "source",
)

UTILIZATION: Final = kafka_metric(
    "kernelcast.accelerator.utilization",
    Kind.GAUGE,
    'Share of time in which the accelerator was at work; accelerator="gpu" or "tpu".',
    unit="1",
    labels=ACCELERATOR_LABELS,
    source="DCGM_FI_DEV_GPU_UTIL, of a MIG instance DCGM_FI_PROF_GR_ENGINE_ACTIVE; TPU duty cycle",
)
MEMORY_USED: Final = kafka_metric(
    "kernelcast.accelerator.memory.used",
    Kind.GAUGE,
    "Device memory in use.",
    unit="By",
    labels=ACCELERATOR_LABELS,
    source="DCGM_FI_DEV_FB_USED; TPU HBM usage",
)
MEMORY_TOTAL: Final = kafka_metric(
    "kernelcast.accelerator.memory.total",
    Kind.GAUGE,
    "Total device memory, without the part that a GPU's driver reserves.",
    unit="By",
    labels=ACCELERATOR_LABELS,
    source="DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE; TPU HBM total",
)

ROWS: Final = (UTILIZATION, MEMORY_USED, MEMORY_TOTAL)
