"""The state of simulated GPUs as readings of NVML: the values that the driver of an H100 SXM would give.

Every row comes from one state, so that they agree: no pipe is busier than the multiprocessors, these not more than the
engine; PCIe carries the program's copies, and NVLink its collectives.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from kernelcast.exporter.nvml.sampling import reading
from kernelcast.exporter.nvml.sampling.reading import LinkReading
from kernelcast.exporter.simulate import physics
from kernelcast.exporter.simulate.effects import PCIE_LANES
from kernelcast.exporter.simulate.nodes.health import DeviceHealth
from kernelcast.exporter.simulate.physics import NVLINKS, Gpus
from kernelcast.exporter.simulate.program import FloatArray
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.devices import device, profiling

ABSENT: Final[Mapping[Metric, str]] = {
    device.FAN_SPEED: reading.NOT_SUPPORTED,
    device.RETIRED_SBE: reading.NOT_SUPPORTED,
    device.RETIRED_DBE: reading.NOT_SUPPORTED,
    device.RETIRED_PENDING: reading.NOT_SUPPORTED,
    profiling.NVDEC_ACTIVE[7]: reading.NOT_SUPPORTED,
}
"""Rows that an H100 SXM does not report: it has no fan, remaps rows in place of retiring pages, and has 7 decoders."""

PCIE_GENERATION: Final = 5
FASTEST_STATE: Final = 0
_KIBIBYTE: Final = 1024
_PACKET_OVERHEAD: Final = 1.04
"""PCIe headers on packets of 256 bytes and more."""
_DIRECTIONS: Final = ("receive", "transmit")
_ERRORS: Final = ("replay", "recovery", "crc")
"""Kinds of errors that NVML counts for each link up to Hopper. Source: nvml.h, fields 161 to 163."""

Columns = dict[str, list[float]]


def columns(gpus: Gpus, health: DeviceHealth) -> Columns:
    """Values by OTLP name, one for each GPU, in NVML's resolution."""
    made: dict[Metric, FloatArray | float] = _device(gpus, health) | _profiling(gpus, health)
    count = len(gpus.busy_ratio)
    return {
        metric.otlp_name: np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)).tolist()
        for metric, value in made.items()
    }


def _device(gpus: Gpus, health: DeviceHealth) -> dict[Metric, FloatArray | float]:
    uncorrected = np.floor(gpus.remapped_rows) + health.double_bit
    corrected = np.floor(gpus.bit_errors)
    usable = physics.MEMORY_TOTAL_MIB - physics.MEMORY_RESERVED_MIB
    return {
        device.SM_CLOCK: np.rint(gpus.clock_mhz),
        device.MEM_CLOCK: physics.MEMORY_CLOCK_MHZ,
        device.GPU_TEMP: np.rint(gpus.temp_c),
        device.MEMORY_TEMP: np.rint(gpus.memory_temp_c),
        device.POWER_USAGE: np.round(gpus.power_w, 3),
        device.POWER_LIMIT: physics.POWER_LIMIT_W,
        device.TOTAL_ENERGY: np.rint(gpus.energy_mj),
        device.PCIE_REPLAY: np.floor(health.pcie_replays),
        device.GPU_UTIL: np.rint(100 * gpus.busy_ratio),
        device.MEM_COPY_UTIL: np.rint(100 * gpus.copy_ratio),
        device.ENC_UTIL: 0,
        device.DEC_UTIL: 0,
        device.FB_USED: np.rint(gpus.used_mib),
        device.FB_FREE: np.rint(usable - gpus.used_mib),
        device.FB_RESERVED: physics.MEMORY_RESERVED_MIB,
        device.CORRECTABLE_REMAPPED_ROWS: 0,
        device.UNCORRECTABLE_REMAPPED_ROWS: uncorrected,
        device.ROW_REMAP_FAILURE: 0,
        device.ROW_REMAP_PENDING: uncorrected > 0,
        device.CLOCK_EVENT_REASONS: gpus.reasons,
        device.SLOWDOWN_TEMP: physics.SLOWDOWN_TEMP_C,
        device.NVLINK_BANDWIDTH: np.floor(2 * health.link_bytes.sum(axis=1) / _KIBIBYTE),
        device.VGPU_LICENSE_STATUS: 0,
        device.PCIE_LINK_GEN: PCIE_GENERATION,
        device.PCIE_MAX_LINK_GEN: PCIE_GENERATION,
        device.PCIE_LINK_WIDTH: gpus.pcie_lanes,
        device.PCIE_MAX_LINK_WIDTH: PCIE_LANES,
        device.PSTATE: FASTEST_STATE,
        device.RECOVERY_ACTION: health.recovery,
        device.POWER_VIOLATION: np.rint(health.power_lost_ns),
        device.THERMAL_VIOLATION: np.rint(health.thermal_lost_ns),
        device.SYNC_BOOST_VIOLATION: 0,
        device.BOARD_LIMIT_VIOLATION: 0,
        device.LOW_UTIL_VIOLATION: 0,
        device.RELIABILITY_VIOLATION: 0,
        device.ECC_SBE_VOLATILE: corrected,
        device.ECC_SBE_AGGREGATE: corrected,
        device.ECC_DBE_VOLATILE: uncorrected,
        device.ECC_DBE_AGGREGATE: uncorrected,
        device.NVLINK_CRC_FLIT_ERRORS: 0,
        device.NVLINK_CRC_DATA_ERRORS: 0,
        device.NVLINK_REPLAY_ERRORS: 0,
        device.NVLINK_RECOVERY_ERRORS: health.link_recoveries.sum(axis=1),
    }


def _profiling(gpus: Gpus, health: DeviceHealth) -> dict[Metric, FloatArray | float]:
    """GPM's values. The shares of pipes are those of mixed-precision training, as in NVIDIA's profiling guides."""
    computing = gpus.busy_ratio - gpus.waiting_ratio
    # A collective holds few multiprocessors.
    multiprocessors = 0.95 * computing + 0.2 * gpus.waiting_ratio
    arithmetic = np.maximum(computing - gpus.copy_ratio, 0.0)
    tensor: FloatArray = np.round(0.7 * arithmetic, 4)
    memory: FloatArray = np.minimum(0.9 * gpus.copy_ratio + 0.15 * arithmetic, gpus.busy_ratio)
    made: dict[Metric, FloatArray | float] = {
        profiling.GR_ENGINE_ACTIVE: np.round(gpus.busy_ratio, 4),
        profiling.SM_ACTIVE: np.round(multiprocessors, 4),
        profiling.SM_OCCUPANCY: np.round(0.45 * multiprocessors, 4),
        profiling.PIPE_INT_ACTIVE: np.round(0.15 * computing, 4),
        profiling.PIPE_TENSOR_ACTIVE: tensor,
        profiling.PIPE_TENSOR_DFMA_ACTIVE: 0,
        profiling.PIPE_TENSOR_HMMA_ACTIVE: tensor,
        profiling.PIPE_TENSOR_IMMA_ACTIVE: 0,
        profiling.DRAM_ACTIVE: np.round(memory, 4),
        profiling.PIPE_FP64_ACTIVE: 0,
        profiling.PIPE_FP32_ACTIVE: np.round(0.2 * computing, 4),
        profiling.PIPE_FP16_ACTIVE: np.round(0.05 * computing, 4),
        profiling.PCIE_RX_BYTES: np.rint(_PACKET_OVERHEAD * health.rates.to_device),
        profiling.PCIE_TX_BYTES: np.rint(_PACKET_OVERHEAD * health.rates.from_device),
        profiling.NVLINK_RX_BYTES: np.rint(health.rates.nvlink),
        profiling.NVLINK_TX_BYTES: np.rint(health.rates.nvlink),
    }
    return made | {row: 0 for row in profiling.NVDEC_ACTIVE if row not in ABSENT}


def links(health: DeviceHealth, gpu: int) -> tuple[LinkReading, ...]:
    """The NVLinks of a GPU."""
    up, carried = health.links_up[gpu].tolist(), health.link_bytes[gpu].tolist()
    recovered = health.link_recoveries[gpu].tolist()
    return tuple(
        LinkReading(
            link=number,
            up=up[number],
            traffic_bytes=dict.fromkeys(_DIRECTIONS, int(carried[number])),
            errors=dict.fromkeys(_ERRORS, 0) | {"recovery": int(recovered[number])},
        )
        for number in range(NVLINKS)
    )
