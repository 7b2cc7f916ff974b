"""Device metrics under dcgm-exporter's names, units and labels, so that existing dashboards and alerts work unchanged.

The exporter reads them from NVML, in the order of `exporter/nvml/sampling/fields.py`.

Source of names, kinds and help: dcgm-exporter 4.8.2, etc/default-counters.csv and etc/dcp-metrics-included.csv.
"""

from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric

DRIVER_VERSION_LABEL: Final = "DCGM_FI_DRIVER_VERSION"
DEVICE_LABELS: Final = (
    "Hostname",
    "UUID",
    "gpu",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_ID",
    "GPU_I_PROFILE",
    DRIVER_VERSION_LABEL,
    "source",
)
USER_LABELS: Final = ("pod", "namespace", "container", "hpc_job")
"""Labels of the device's user, on every row of the device while the user is known; see `exporter.attribution`."""

NVML_VERSION_LABEL: Final = "DCGM_FI_NVML_VERSION"
BRAND_LABEL: Final = "DCGM_FI_DEV_BRAND"
SERIAL_LABEL: Final = "DCGM_FI_DEV_SERIAL"
OEM_INFOROM_LABEL: Final = "DCGM_FI_DEV_OEM_INFOROM_VER"
ECC_INFOROM_LABEL: Final = "DCGM_FI_DEV_ECC_INFOROM_VER"
POWER_INFOROM_LABEL: Final = "DCGM_FI_DEV_POWER_INFOROM_VER"
INFOROM_IMAGE_LABEL: Final = "DCGM_FI_DEV_INFOROM_IMAGE_VER"
VBIOS_LABEL: Final = "DCGM_FI_DEV_VBIOS_VERSION"
OPT_IN_LABELS: Final = MappingProxyType(
    {
        NVML_VERSION_LABEL: "NVML Version",
        BRAND_LABEL: "Device Brand",
        SERIAL_LABEL: "Device Serial Number",
        OEM_INFOROM_LABEL: "OEM inforom version",
        ECC_INFOROM_LABEL: "ECC inforom version",
        POWER_INFOROM_LABEL: "Power management object inforom version",
        INFOROM_IMAGE_LABEL: "Inforom image version",
        VBIOS_LABEL: "VBIOS version of the device",
    }
)
"""On every series of a GPU where the counters table names them with the type `label`; dcgm-exporter's help of each."""

XID_LABELS: Final = (*DEVICE_LABELS, "err_code", "err_msg")
"""Labels of DCGM_FI_DEV_XID_ERRORS, as dcgm-exporter has them."""


def dcgm(field: str, help: str, nvml: str, kind: Kind = Kind.GAUGE) -> Metric:  # noqa: A002  the field's name
    """A row under DCGM's name for the field, without its prefix."""
    name = f"DCGM_FI_{field}"
    return Metric(
        name, kind, help, name, "", XID_LABELS if field == "DEV_XID_ERRORS" else DEVICE_LABELS, f"NVML {nvml}"
    )


def _counter(field: str, help: str, nvml: str) -> Metric:  # noqa: A002  the field's name
    return dcgm(field, help, nvml, Kind.COUNTER)


SM_CLOCK: Final = dcgm("DEV_SM_CLOCK", "SM clock frequency (in MHz).", "nvmlDeviceGetClockInfo(SM)")
MEM_CLOCK: Final = dcgm("DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "nvmlDeviceGetClockInfo(MEM)")
MEMORY_TEMP: Final = dcgm("DEV_MEMORY_TEMP", "Memory temperature (in C).", "field 82; readings above 200 are dropped")
GPU_TEMP: Final = dcgm("DEV_GPU_TEMP", "GPU temperature (in C).", "nvmlDeviceGetTemperature(GPU)")
POWER_USAGE: Final = dcgm("DEV_POWER_USAGE", "Power draw (in W).", "nvmlDeviceGetPowerUsage, mW / 1000")
TOTAL_ENERGY: Final = dcgm(
    "DEV_TOTAL_ENERGY_CONSUMPTION",
    "Total energy consumption since boot (in mJ).",
    "nvmlDeviceGetTotalEnergyConsumption",
    Kind.COUNTER,
)
PCIE_REPLAY: Final = dcgm(
    "DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "nvmlDeviceGetPcieReplayCounter", Kind.COUNTER
)
GPU_UTIL: Final = dcgm("DEV_GPU_UTIL", "GPU utilization (in %).", "nvmlDeviceGetUtilizationRates .gpu")
MEM_COPY_UTIL: Final = dcgm("DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "nvmlDeviceGetUtilizationRates .memory")
ENC_UTIL: Final = dcgm("DEV_ENC_UTIL", "Encoder utilization (in %).", "nvmlDeviceGetEncoderUtilization")
DEC_UTIL: Final = dcgm("DEV_DEC_UTIL", "Decoder utilization (in %).", "nvmlDeviceGetDecoderUtilization")
FB_FREE: Final = dcgm("DEV_FB_FREE", "Framebuffer memory free (in MiB).", "nvmlDeviceGetMemoryInfo_v2, bytes / 2^20")
FB_USED: Final = dcgm("DEV_FB_USED", "Framebuffer memory used (in MiB).", "nvmlDeviceGetMemoryInfo_v2, bytes / 2^20")
FB_RESERVED: Final = dcgm(
    "DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "nvmlDeviceGetMemoryInfo_v2, bytes / 2^20"
)
UNCORRECTABLE_REMAPPED_ROWS: Final = dcgm(
    "DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "Number of remapped rows for uncorrectable errors",
    "nvmlDeviceGetRemappedRows",
    Kind.COUNTER,
)
CORRECTABLE_REMAPPED_ROWS: Final = dcgm(
    "DEV_CORRECTABLE_REMAPPED_ROWS",
    "Number of remapped rows for correctable errors",
    "nvmlDeviceGetRemappedRows",
    Kind.COUNTER,
)
ROW_REMAP_FAILURE: Final = dcgm(
    "DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", "nvmlDeviceGetRemappedRows"
)
ROW_REMAP_PENDING: Final = dcgm(
    "DEV_ROW_REMAP_PENDING", "Whether a remapping of rows waits for a reset", "nvmlDeviceGetRemappedRows"
)
CLOCK_EVENT_REASONS: Final = dcgm(
    "DEV_CLOCKS_EVENT_REASONS",
    "Current clock event reasons (bitmask).",
    "nvmlDeviceGetCurrentClocksEventReasons",
)
SLOWDOWN_TEMP: Final = dcgm(
    "DEV_SLOWDOWN_TEMP", "Slowdown temperature for the device (in C).", "nvmlDeviceGetTemperatureThreshold(SLOWDOWN)"
)
POWER_LIMIT: Final = dcgm(
    "DEV_POWER_MGMT_LIMIT", "Current power limit for the device (in W).", "nvmlDeviceGetEnforcedPowerLimit, mW / 1000"
)

XID_ERRORS: Final = dcgm(
    "DEV_XID_ERRORS", "Value of the last XID error encountered.", "event XidCriticalError; 0 until one occurs"
)
NVLINK_BANDWIDTH: Final = _counter(
    "DEV_NVLINK_BANDWIDTH_TOTAL",
    "Total number of NVLink bandwidth counters for all lanes",
    "fields 138 + 139, all lanes, KiB",
)
VGPU_LICENSE_STATUS: Final = dcgm(
    "DEV_VGPU_LICENSE_STATUS", "vGPU License status", "nvmlDeviceGetGridLicensableFeatures; 1: a feature is licensed"
)
_VIOLATION: Final = "Throttling duration due to {} (in ns)."
POWER_VIOLATION: Final = _counter("DEV_POWER_VIOLATION", _VIOLATION.format("power constraints"), "field 74")
THERMAL_VIOLATION: Final = _counter("DEV_THERMAL_VIOLATION", _VIOLATION.format("thermal constraints"), "field 75")
SYNC_BOOST_VIOLATION: Final = _counter(
    "DEV_SYNC_BOOST_VIOLATION", _VIOLATION.format("sync-boost constraints"), "field 76"
)
BOARD_LIMIT_VIOLATION: Final = _counter(
    "DEV_BOARD_LIMIT_VIOLATION", _VIOLATION.format("board limit constraints"), "field 77"
)
LOW_UTIL_VIOLATION: Final = _counter("DEV_LOW_UTIL_VIOLATION", _VIOLATION.format("low utilization"), "field 78")
RELIABILITY_VIOLATION: Final = _counter(
    "DEV_RELIABILITY_VIOLATION", _VIOLATION.format("reliability constraints"), "field 79"
)
ECC_SBE_VOLATILE: Final = _counter(
    "DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.", "field 3"
)
ECC_DBE_VOLATILE: Final = _counter(
    "DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.", "field 4"
)
ECC_SBE_AGGREGATE: Final = _counter(
    "DEV_ECC_SBE_AGG_TOTAL", "Total number of single-bit persistent ECC errors.", "field 5"
)
ECC_DBE_AGGREGATE: Final = _counter(
    "DEV_ECC_DBE_AGG_TOTAL", "Total number of double-bit persistent ECC errors.", "field 6"
)
RETIRED_SBE: Final = _counter("DEV_RETIRED_SBE", "Total number of retired pages due to single-bit errors.", "field 29")
RETIRED_DBE: Final = _counter("DEV_RETIRED_DBE", "Total number of retired pages due to double-bit errors.", "field 30")
RETIRED_PENDING: Final = _counter("DEV_RETIRED_PENDING", "Total number of pages pending retirement.", "field 31")
NVLINK_CRC_FLIT_ERRORS: Final = _counter(
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "Total number of NVLink flow-control CRC errors.", "field 38"
)
NVLINK_CRC_DATA_ERRORS: Final = _counter(
    "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "Total number of NVLink data CRC errors.", "field 45"
)
NVLINK_REPLAY_ERRORS: Final = _counter(
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "Total number of NVLink retries.", "field 52"
)
NVLINK_RECOVERY_ERRORS: Final = _counter(
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "Total number of NVLink recovery errors.", "field 59"
)

PCIE_LINK_GEN: Final = dcgm(
    "DEV_PCIE_LINK_GEN", "PCIe current link generation; lower while idle.", "nvmlDeviceGetCurrPcieLinkGeneration"
)
PCIE_LINK_WIDTH: Final = dcgm("DEV_PCIE_LINK_WIDTH", "PCIe current link width.", "nvmlDeviceGetCurrPcieLinkWidth")
PCIE_MAX_LINK_GEN: Final = dcgm(
    "DEV_PCIE_MAX_LINK_GEN",
    "PCIe max link generation of GPU and slot together.",
    "nvmlDeviceGetMaxPcieLinkGeneration",
)
PCIE_MAX_LINK_WIDTH: Final = dcgm(
    "DEV_PCIE_MAX_LINK_WIDTH", "PCIe max link width of GPU and slot together.", "nvmlDeviceGetMaxPcieLinkWidth"
)
PSTATE: Final = dcgm(
    "DEV_PSTATE", "Performance state: 0 is the fastest, 15 the slowest.", "nvmlDeviceGetPerformanceState"
)
FAN_SPEED: Final = dcgm("DEV_FAN_SPEED", "Intended fan speed (in %).", "nvmlDeviceGetFanSpeed")
RECOVERY_ACTION: Final = dcgm(
    "DEV_GET_GPU_RECOVERY_ACTION",
    "Action that the driver recommends: 0 none, 1 reset the GPU, 2 reboot the node, 3 drain P2P, 4 drain P2P and "
    "reset.",
    "field 230",
)

DEFAULT_ROWS: Final = (
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
    ROW_REMAP_PENDING,
    CLOCK_EVENT_REASONS,
    SLOWDOWN_TEMP,
    POWER_LIMIT,
    XID_ERRORS,
    NVLINK_BANDWIDTH,
    VGPU_LICENSE_STATUS,
    PCIE_LINK_GEN,
    PCIE_LINK_WIDTH,
    PCIE_MAX_LINK_GEN,
    PCIE_MAX_LINK_WIDTH,
    PSTATE,
    RECOVERY_ACTION,
)
"""Rows written unless the counters table says otherwise; the profiling rows are in a separate module."""
OPT_IN_ROWS: Final = (
    POWER_VIOLATION,
    THERMAL_VIOLATION,
    SYNC_BOOST_VIOLATION,
    BOARD_LIMIT_VIOLATION,
    LOW_UTIL_VIOLATION,
    RELIABILITY_VIOLATION,
    ECC_SBE_VOLATILE,
    ECC_DBE_VOLATILE,
    ECC_SBE_AGGREGATE,
    ECC_DBE_AGGREGATE,
    RETIRED_SBE,
    RETIRED_DBE,
    RETIRED_PENDING,
    NVLINK_CRC_FLIT_ERRORS,
    NVLINK_CRC_DATA_ERRORS,
    NVLINK_REPLAY_ERRORS,
    NVLINK_RECOVERY_ERRORS,
    FAN_SPEED,
)
"""Written where the counters table names them."""
ROWS: Final = (*DEFAULT_ROWS, *OPT_IN_ROWS)
