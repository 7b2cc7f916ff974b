"""Estimates of kernels' energy: the measured energy of a GPU, divided by GPU time.

The exporter computes them (`exporter/totals/energy.py`).
"""

from typing import Final

from kernelcast.wire.catalogue.kernel import KERNEL_LABELS
from kernelcast.wire.catalogue.model import Kind
from kernelcast.wire.catalogue.naming import kafka_metric

_SOURCE: Final = "exporter, from DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION (else power x time) and kernels' GPU time"

ENERGY: Final = kafka_metric(
    "cuda.energy_estimate",
    Kind.COUNTER,
    "Energy of a GPU, divided by the share of time in which programs that report ran kernels (active) or none did "
    "(idle), both in the time in which kernels were measured, or were not (unmeasured); an estimate: the sum is "
    "measured, the division is not.",
    unit="J",
    labels=("Hostname", "UUID", "gpu", "source", "state"),
    source=_SOURCE,
)
KERNEL_ENERGY: Final = kafka_metric(
    "cuda.kernel.energy_estimate",
    Kind.COUNTER,
    "The active part of a GPU's energy, divided by GPU time over kernels; an estimate: a kernel that draws more power "
    "than others of its interval is charged too little.",
    unit="J",
    labels=KERNEL_LABELS,
    source=_SOURCE,
)

ROWS: Final = (ENERGY, KERNEL_ENERGY)
