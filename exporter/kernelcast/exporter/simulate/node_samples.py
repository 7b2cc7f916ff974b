"""The state of simulated GPUs as device samples."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from kernelcast.columnar import Sample
from kernelcast.exporter.simulate import physics
from kernelcast.exporter.simulate.influence import PCIE_LANES
from kernelcast.exporter.simulate.physics import Gpus
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.catalogue.devices import device, gpu
from kernelcast.wire.identity import Labels

_WHOLE: Final = 1.0
_MILLI: Final = 0.001


def device_samples(gpus: Gpus, attributes: Sequence[Labels], *, time_ns: int, start_ns: int) -> Iterator[Sample]:
    """NVML's values of each simulated GPU, in NVML's resolution.

    Args:
        gpus: Their state.
        attributes: Labels of each.
        time_ns: When, Unix nanoseconds.
        start_ns: When counters began.
    """
    count = len(attributes)
    used, free = gpus.used_mib, physics.MEMORY_TOTAL_MIB - physics.MEMORY_RESERVED_MIB - gpus.used_mib
    rows: list[tuple[Metric, list[float], float]] = [
        (gpu.GPU_UP, [1.0] * count, _WHOLE),
        (device.GPU_UTIL, (100 * gpus.busy_ratio).tolist(), _WHOLE),
        (device.MEM_COPY_UTIL, (100 * gpus.copy_ratio).tolist(), _WHOLE),
        (device.GPU_TEMP, gpus.temp_c.tolist(), _WHOLE),
        (device.MEMORY_TEMP, gpus.memory_temp_c.tolist(), _WHOLE),
        (device.POWER_USAGE, gpus.power_w.tolist(), _MILLI),
        (device.TOTAL_ENERGY, gpus.energy_mj.tolist(), _WHOLE),
        (device.SM_CLOCK, gpus.clock_mhz.tolist(), _WHOLE),
        (device.MEM_CLOCK, [physics.MEMORY_CLOCK_MHZ] * count, _WHOLE),
        (device.FB_USED, used.tolist(), _WHOLE),
        (device.FB_FREE, free.tolist(), _WHOLE),
        (device.FB_RESERVED, [physics.MEMORY_RESERVED_MIB] * count, _WHOLE),
        (device.CLOCK_EVENT_REASONS, [float(reason) for reason in gpus.reasons.tolist()], _WHOLE),
        (device.SLOWDOWN_TEMP, [physics.SLOWDOWN_TEMP_C] * count, _WHOLE),
        (device.POWER_LIMIT, [physics.POWER_LIMIT_W] * count, _MILLI),
        (device.PCIE_LINK_WIDTH, gpus.pcie_lanes.tolist(), _WHOLE),
        (device.PCIE_MAX_LINK_WIDTH, [PCIE_LANES] * count, _WHOLE),
        (device.ECC_SBE_VOLATILE, np.floor(gpus.bit_errors).tolist(), _WHOLE),
        (device.ECC_DBE_VOLATILE, np.floor(gpus.remapped_rows).tolist(), _WHOLE),
        (device.UNCORRECTABLE_REMAPPED_ROWS, np.floor(gpus.remapped_rows).tolist(), _WHOLE),
    ]
    for metric, values, resolution in rows:
        since_ns = start_ns if metric.kind is Kind.COUNTER else 0
        for labels, value, silent in zip(attributes, values, gpus.silent.tolist(), strict=True):
            if silent:
                continue
            shown = round(value) if resolution == _WHOLE else round(value, 3)
            yield Sample(metric, labels, time_ns, shown, since_ns)
