"""Device metrics under dcgm-exporter's names, units and labels, so that existing dashboards and alerts work unchanged.

Source: dcgm-exporter 4.8.2, etc/default-counters.csv; the rows that plain NVML gives.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric

DEVICE_LABELS: Final = (
    "Hostname",
    "UUID",
    "gpu",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_ID",
    "GPU_I_PROFILE",
    "source",
)


def _dcgm(field: str, help: str, nvml: str, kind: Kind = Kind.GAUGE) -> Metric:  # noqa: A002  the field's name
    name = f"DCGM_FI_{field}"
    return Metric(name, kind, help, name, "", DEVICE_LABELS, f"NVML {nvml}")


SM_CLOCK: Final = _dcgm("DEV_SM_CLOCK", "SM clock frequency (in MHz).", "nvmlDeviceGetClockInfo(SM)")
MEM_CLOCK: Final = _dcgm("DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "nvmlDeviceGetClockInfo(MEM)")
MEMORY_TEMP: Final = _dcgm("DEV_MEMORY_TEMP", "Memory temperature (in C).", "field 82; readings above 200 are dropped")
GPU_TEMP: Final = _dcgm("DEV_GPU_TEMP", "GPU temperature (in C).", "nvmlDeviceGetTemperature(GPU)")
POWER_USAGE: Final = _dcgm("DEV_POWER_USAGE", "Power draw (in W).", "nvmlDeviceGetPowerUsage, mW / 1000")
TOTAL_ENERGY: Final = _dcgm(
    "DEV_TOTAL_ENERGY_CONSUMPTION",
    "Total energy consumption since boot (in mJ).",
    "nvmlDeviceGetTotalEnergyConsumption",
    Kind.COUNTER,
)
PCIE_REPLAY: Final = _dcgm(
    "DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "nvmlDeviceGetPcieReplayCounter", Kind.COUNTER
)
GPU_UTIL: Final = _dcgm("DEV_GPU_UTIL", "GPU utilization (in %).", "nvmlDeviceGetUtilizationRates .gpu")
MEM_COPY_UTIL: Final = _dcgm("DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "nvmlDeviceGetUtilizationRates .memory")
ENC_UTIL: Final = _dcgm("DEV_ENC_UTIL", "Encoder utilization (in %).", "nvmlDeviceGetEncoderUtilization")
DEC_UTIL: Final = _dcgm("DEV_DEC_UTIL", "Decoder utilization (in %).", "nvmlDeviceGetDecoderUtilization")
FB_FREE: Final = _dcgm("DEV_FB_FREE", "Frame buffer memory free (in MiB).", "nvmlDeviceGetMemoryInfo_v2, bytes / 2^20")
FB_USED: Final = _dcgm("DEV_FB_USED", "Frame buffer memory used (in MiB).", "nvmlDeviceGetMemoryInfo_v2, bytes / 2^20")
FB_RESERVED: Final = _dcgm(
    "DEV_FB_RESERVED", "Frame buffer memory reserved (in MiB).", "nvmlDeviceGetMemoryInfo_v2, bytes / 2^20"
)
UNCORRECTABLE_REMAPPED_ROWS: Final = _dcgm(
    "DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "Number of remapped rows for uncorrectable errors",
    "nvmlDeviceGetRemappedRows",
    Kind.COUNTER,
)
CORRECTABLE_REMAPPED_ROWS: Final = _dcgm(
    "DEV_CORRECTABLE_REMAPPED_ROWS",
    "Number of remapped rows for correctable errors",
    "nvmlDeviceGetRemappedRows",
    Kind.COUNTER,
)
ROW_REMAP_FAILURE: Final = _dcgm(
    "DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", "nvmlDeviceGetRemappedRows"
)
CLOCK_EVENT_REASONS: Final = _dcgm(
    "DEV_CLOCKS_EVENT_REASONS",
    "Current clock event reasons (bitmask).",
    "nvmlDeviceGetCurrentClocksEventReasons",
)
SLOWDOWN_TEMP: Final = _dcgm(
    "DEV_SLOWDOWN_TEMP", "Slowdown temperature for the device (in C).", "nvmlDeviceGetTemperatureThreshold(SLOWDOWN)"
)
POWER_LIMIT: Final = _dcgm(
    "DEV_POWER_MGMT_LIMIT", "Current power limit for the device (in W).", "nvmlDeviceGetEnforcedPowerLimit, mW / 1000"
)

ROWS: Final = (
    SM_CLOCK,
    MEM_CLOCK,
    MEMORY_TEMP,
    GPU_TEMP,
    POWER_USAGE,
    TOTAL_ENERGY,
    PCIE_REPLAY,
    GPU_UTIL,
    MEM_COPY_UTIL,
    ENC_UTIL,
    DEC_UTIL,
    FB_FREE,
    FB_USED,
    FB_RESERVED,
    UNCORRECTABLE_REMAPPED_ROWS,
    CORRECTABLE_REMAPPED_ROWS,
    ROW_REMAP_FAILURE,
    CLOCK_EVENT_REASONS,
    SLOWDOWN_TEMP,
    POWER_LIMIT,
)
