"""Profiling metrics under DCGM's names, which the exporter reads from NVML's GPM, on Hopper and later GPUs.

Source of names and help: dcgm-exporter 4.8.2, etc/dcp-metrics-included.csv; dcgm_fields.h for those it leaves out.
"""

from typing import Final

from kernelcast.wire.catalogue.devices.device import dcgm
from kernelcast.wire.catalogue.model import Metric

_MIB: Final = "; MiB/s by nvml.h, times 2^20; DCGM passes the number on as bytes"
_PCIE: Final = f"{_MIB}. On an H100 1.07 and 1.09 of the bytes copied to and from it"


def _gpm(field: str, help: str, metric_id: int, unit: str = "") -> Metric:  # noqa: A002  the field's name
    return dcgm(f"PROF_{field}", help, f"GPM {metric_id}{unit}")


GR_ENGINE_ACTIVE: Final = _gpm("GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", 1)
PIPE_TENSOR_ACTIVE: Final = _gpm("PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active.", 5)
DRAM_ACTIVE: Final = _gpm(
    "DRAM_ACTIVE", "Ratio of cycles the device memory interface is active sending or receiving data.", 10
)
PCIE_TX_BYTES: Final = _gpm(
    "PCIE_TX_BYTES",
    "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads - "
    "in bytes per second.",
    20,
    _PCIE,
)
PCIE_RX_BYTES: Final = _gpm(
    "PCIE_RX_BYTES",
    "The rate of data received over the PCIe bus - including both protocol headers and data payloads - "
    "in bytes per second.",
    21,
    _PCIE,
)
SM_ACTIVE: Final = _gpm("SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned.", 2)
SM_OCCUPANCY: Final = _gpm("SM_OCCUPANCY", "The ratio of number of warps resident on an SM.", 3)
PIPE_INT_ACTIVE: Final = _gpm("PIPE_INT_ACTIVE", "Ratio of cycles the integer pipes are active.", 4)
PIPE_TENSOR_DFMA_ACTIVE: Final = _gpm(
    "PIPE_TENSOR_DFMA_ACTIVE", "Ratio of cycles the tensor pipe does DFMA operations.", 6
)
PIPE_TENSOR_HMMA_ACTIVE: Final = _gpm(
    "PIPE_TENSOR_HMMA_ACTIVE", "Ratio of cycles the tensor pipe does HMMA operations.", 7
)
PIPE_TENSOR_IMMA_ACTIVE: Final = _gpm(
    "PIPE_TENSOR_IMMA_ACTIVE", "Ratio of cycles the tensor pipe does IMMA operations.", 9
)
PIPE_FP64_ACTIVE: Final = _gpm("PIPE_FP64_ACTIVE", "Ratio of cycles the fp64 pipes are active.", 11)
PIPE_FP32_ACTIVE: Final = _gpm("PIPE_FP32_ACTIVE", "Ratio of cycles the fp32 pipes are active.", 12)
PIPE_FP16_ACTIVE: Final = _gpm("PIPE_FP16_ACTIVE", "Ratio of cycles the fp16 pipes are active.", 13)
NVLINK_RX_BYTES: Final = _gpm(
    "NVLINK_RX_BYTES", "The rate of data received over NVLink, in bytes per second.", 60, _MIB
)
NVLINK_TX_BYTES: Final = _gpm(
    "NVLINK_TX_BYTES", "The rate of data transmitted over NVLink, in bytes per second.", 61, _MIB
)
DECODERS: Final = 8
"""GPM has metrics of eight NVDEC engines, numbers 30 to 37."""
NVDEC_ACTIVE: Final = tuple(
    _gpm(f"NVDEC{index}_ACTIVE", f"Ratio of cycles the video decoder {index} is active.", 30 + index)
    for index in range(DECODERS)
)

DEFAULT_ROWS: Final = (GR_ENGINE_ACTIVE, PIPE_TENSOR_ACTIVE, DRAM_ACTIVE, PCIE_TX_BYTES, PCIE_RX_BYTES)
OPT_IN_ROWS: Final = (
    SM_ACTIVE,
    SM_OCCUPANCY,
    PIPE_INT_ACTIVE,
    PIPE_TENSOR_DFMA_ACTIVE,
    PIPE_TENSOR_HMMA_ACTIVE,
    PIPE_TENSOR_IMMA_ACTIVE,
    PIPE_FP64_ACTIVE,
    PIPE_FP32_ACTIVE,
    PIPE_FP16_ACTIVE,
    NVLINK_RX_BYTES,
    NVLINK_TX_BYTES,
    *NVDEC_ACTIVE,
)
ROWS: Final = (*DEFAULT_ROWS, *OPT_IN_ROWS)
