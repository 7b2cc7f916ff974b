"""Metrics that accelerators share, so that one dashboard shows a mixed fleet; each kind has more rows of its own.

The exporter derives them from its readings of NVML (`nvml/accelerators.py`) and of the TPU runtime (`tpu/source.py`).
For a GPU in MIG mode they are those of its instances, never of both, so that sums over a fleet are right.
Those of other vendors come from their exporters' pages (`exporter/scrape`, by the table in `vendors`). They alone have
the rows from POWER on, for which NVIDIA's GPUs have DCGM's.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric
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
    'Share of time in which the accelerator was at work; accelerator="gpu", "tpu", "neuron" (a core) or "npu".',
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
_PAGES: Final = "the page of another vendor's exporter (exporter.scrape)"


def _of_pages(name: str, kind: Kind, help: str, unit: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    own = (*ACCELERATOR_LABELS, *labels)
    return kafka_metric(f"kernelcast.accelerator.{name}", kind, help, unit=unit, labels=own, source=_PAGES)


POWER: Final = _of_pages("power", Kind.GAUGE, "Power draw of another vendor's accelerator.", "W")
ENERGY: Final = _of_pages("energy", Kind.COUNTER, "Energy that another vendor's accelerator has used.", "J")
TEMPERATURE: Final = _of_pages(
    "temperature",
    Kind.GAUGE,
    "Temperature of another vendor's accelerator: of the chip, its hottest spot, or the memory.",
    "Cel",
    "sensor",
)
CLOCK: Final = _of_pages(
    "clock", Kind.GAUGE, "Clock of another vendor's accelerator: of compute or memory; the highest.", "Hz", "domain"
)
THROTTLING: Final = _of_pages(
    "throttling",
    Kind.GAUGE,
    "Share of time in which another vendor's accelerator was slowed down, by reason; 0 or 1 where it tells only now.",
    "1",
    "reason",
)
ERRORS: Final = _of_pages(
    "errors",
    Kind.COUNTER,
    "Errors that another vendor's accelerator has counted: corrected or uncorrected.",
    "{error}",
    "severity",
)
PAGE_ROWS: Final = (POWER, ENERGY, TEMPERATURE, CLOCK, THROTTLING, ERRORS)

ROWS: Final = (UTILIZATION, MEMORY_USED, MEMORY_TOTAL, *PAGE_ROWS)
