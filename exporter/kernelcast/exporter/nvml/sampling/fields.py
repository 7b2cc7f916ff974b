"""Table of NVML calls: the catalogue's rows that each gives, and their units.

Source: NVIDIA/DCGM, dcgmlib/src/DcgmCacheManager.cpp, for what DCGM itself asks NVML; nvml.h for units.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kernelcast.exporter.nvml.sampling import reading
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.devices import dcgm_exporter, profiling
from kernelcast.wire.catalogue.devices import device as rows

Number = int | float

BYTES_PER_MEBIBYTE: Final = 2**20
MILLIWATTS_PER_WATT: Final = 1000
FULL_PERCENT: Final = 100
"""Some driver versions give utilizations above it, on idle GPUs too. Seen: NVIDIA/DCGM, issue 199."""
MAX_TEMPERATURE_CELSIUS: Final = 200
"""Above it a reading is no temperature; DCGM drops such readings too."""
MAX_WATTS: Final = 10_000
"""More than any board draws, or may draw."""
MAX_MEGAHERTZ: Final = 50_000
"""More than any clock of a GPU."""
ALL_LANES: Final = 0xFFFFFFFF
"""The scopeId that sums the NVLink counters of all lanes. Source: nvml.h, field 138."""


@dataclass(frozen=True, slots=True)
class NvmlCall:
    """One NVML call.

    Attributes:
        name: As NVML names it; the label `call` of its errors.
        rows: Its rows, in the order of `read`'s values.
        read: Given the pynvml module and a device handle, NVML's own number for each row; None where it knows none.
        divisor: Of NVML's numbers, for the rows' unit.
        unknown: Reason why a row has no value where the call has answered.
        limit: Largest plausible one of NVML's numbers; for single intervals drivers give numbers far beyond it.
    """

    name: str
    rows: tuple[Metric, ...]
    read: Callable[[Any, Any], tuple[Number | None, ...]]
    divisor: int = 1
    unknown: str = reading.NO_DATA
    limit: float = float("inf")


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A row that `nvmlDeviceGetFieldValues` gives; all of a GPU's are asked for in one call.

    Attributes:
        row: The row.
        fields: Names of pynvml's constants; the row is the sum of them.
        scope: NVML's scopeId.
        limit: Above it the field holds no value.
    """

    row: Metric
    fields: tuple[str, ...]
    scope: int = 0
    limit: float = float("inf")


def _clock(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),)


def _memory_clock(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),)


def _temperature(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),)


def _slowdown_temperature(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetTemperatureThreshold(gpu, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),)


def _power(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetPowerUsage(gpu),)


def _power_limit(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetEnforcedPowerLimit(gpu),)


def _energy(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),)


def _pcie_replays(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetPcieReplayCounter(gpu),)


def _link_generation(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),)


def _link_width(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),)


def _max_link_generation(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),)


def _max_link_width(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),)


def _performance_state(nvml: Any, gpu: Any) -> tuple[Number | None]:
    state = nvml.nvmlDeviceGetPerformanceState(gpu)
    return (state if state != nvml.NVML_PSTATE_UNKNOWN else None,)


def _fan_speed(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetFanSpeed(gpu),)


def _percent(value: int) -> int | None:
    return value if value <= FULL_PERCENT else None


def _utilization(nvml: Any, gpu: Any) -> tuple[Number | None, Number | None]:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return _percent(rates.gpu), _percent(rates.memory)


def _encoder(nvml: Any, gpu: Any) -> tuple[Number | None]:
    return (_percent(nvml.nvmlDeviceGetEncoderUtilization(gpu)[0]),)


def _decoder(nvml: Any, gpu: Any) -> tuple[Number | None]:
    return (_percent(nvml.nvmlDeviceGetDecoderUtilization(gpu)[0]),)


def _memory(nvml: Any, gpu: Any) -> tuple[Number | None, ...]:
    """Version 2 of the struct: version 1, all that drivers before 510 have, counts the reserved memory as used.

    A GPU that shares the host's memory, such as GB10, has a total of 0, if the call is supported there at all.
    """
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
        return (memory.free, memory.used, None) if memory.total else (None, None, None)
    return (memory.free, memory.used, memory.reserved) if memory.total else (None, None, None)


def _remapped_rows(nvml: Any, gpu: Any) -> tuple[Number, ...]:
    correctable, uncorrectable, pending, failure = nvml.nvmlDeviceGetRemappedRows(gpu)
    return correctable, uncorrectable, failure, pending


def _clock_events(nvml: Any, gpu: Any) -> tuple[Number]:
    """Drivers before 535 have the call by its older name."""
    try:
        return (nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return (nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),)


def _license(nvml: Any, gpu: Any) -> tuple[Number]:
    """Return 1 if any feature is licensed; 0 on a GPU that needs no licence, as with DCGM."""
    licences = nvml.nvmlDeviceGetGridLicensableFeatures(gpu)
    features = (
        licences.gridLicensableFeatures[: licences.licensableFeaturesCount] if licences.isGridLicenseSupported else ()
    )
    return (int(any(feature.featureState for feature in features)),)


CLOCK_EVENTS: Final = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
"""By bit, in nvidia-smi's words. Source: nvml.h, nvmlClocksEventReasons."""

MEMORY_CALL: Final = NvmlCall(
    "nvmlDeviceGetMemoryInfo_v2",
    (rows.FB_FREE, rows.FB_USED, rows.FB_RESERVED),
    _memory,
    BYTES_PER_MEBIBYTE,
    unknown=reading.NOT_SUPPORTED,
)
LINK_ROWS: Final = (rows.PCIE_LINK_GEN, rows.PCIE_LINK_WIDTH, rows.PCIE_MAX_LINK_GEN, rows.PCIE_MAX_LINK_WIDTH)
ENERGY_CALL: Final = NvmlCall("nvmlDeviceGetTotalEnergyConsumption", (rows.TOTAL_ENERGY,), _energy)
CALLS: Final = (
    NvmlCall("nvmlDeviceGetClockInfo(SM)", (rows.SM_CLOCK,), _clock, limit=MAX_MEGAHERTZ),
    NvmlCall("nvmlDeviceGetClockInfo(MEM)", (rows.MEM_CLOCK,), _memory_clock, limit=MAX_MEGAHERTZ),
    NvmlCall("nvmlDeviceGetTemperature", (rows.GPU_TEMP,), _temperature, limit=MAX_TEMPERATURE_CELSIUS),
    NvmlCall(
        "nvmlDeviceGetTemperatureThreshold",
        (rows.SLOWDOWN_TEMP,),
        _slowdown_temperature,
        limit=MAX_TEMPERATURE_CELSIUS,
    ),
    NvmlCall(
        "nvmlDeviceGetPowerUsage",
        (rows.POWER_USAGE,),
        _power,
        MILLIWATTS_PER_WATT,
        limit=MAX_WATTS * MILLIWATTS_PER_WATT,
    ),
    NvmlCall(
        "nvmlDeviceGetEnforcedPowerLimit",
        (rows.POWER_LIMIT,),
        _power_limit,
        MILLIWATTS_PER_WATT,
        limit=MAX_WATTS * MILLIWATTS_PER_WATT,
    ),
    ENERGY_CALL,
    NvmlCall("nvmlDeviceGetPcieReplayCounter", (rows.PCIE_REPLAY,), _pcie_replays),
    NvmlCall("nvmlDeviceGetUtilizationRates", (rows.GPU_UTIL, rows.MEM_COPY_UTIL), _utilization),
    NvmlCall("nvmlDeviceGetEncoderUtilization", (rows.ENC_UTIL,), _encoder),
    NvmlCall("nvmlDeviceGetDecoderUtilization", (rows.DEC_UTIL,), _decoder),
    MEMORY_CALL,
    NvmlCall(
        "nvmlDeviceGetRemappedRows",
        (
            rows.CORRECTABLE_REMAPPED_ROWS,
            rows.UNCORRECTABLE_REMAPPED_ROWS,
            rows.ROW_REMAP_FAILURE,
            rows.ROW_REMAP_PENDING,
        ),
        _remapped_rows,
    ),
    NvmlCall("nvmlDeviceGetCurrentClocksEventReasons", (rows.CLOCK_EVENT_REASONS,), _clock_events),
    NvmlCall("nvmlDeviceGetGridLicensableFeatures", (rows.VGPU_LICENSE_STATUS,), _license),
    NvmlCall("nvmlDeviceGetCurrPcieLinkGeneration", (rows.PCIE_LINK_GEN,), _link_generation),
    NvmlCall("nvmlDeviceGetCurrPcieLinkWidth", (rows.PCIE_LINK_WIDTH,), _link_width),
    NvmlCall("nvmlDeviceGetMaxPcieLinkGeneration", (rows.PCIE_MAX_LINK_GEN,), _max_link_generation),
    NvmlCall("nvmlDeviceGetMaxPcieLinkWidth", (rows.PCIE_MAX_LINK_WIDTH,), _max_link_width),
    NvmlCall("nvmlDeviceGetPerformanceState", (rows.PSTATE,), _performance_state),
    NvmlCall("nvmlDeviceGetFanSpeed", (rows.FAN_SPEED,), _fan_speed),
)
"""Asked of every GPU at every interval."""


def _one(row: Metric, name: str) -> FieldValue:
    return FieldValue(row, (f"NVML_FI_DEV_{name}",))


FIELD_VALUES: Final = (
    FieldValue(rows.MEMORY_TEMP, ("NVML_FI_DEV_MEMORY_TEMP",), limit=MAX_TEMPERATURE_CELSIUS),
    FieldValue(
        rows.NVLINK_BANDWIDTH,
        ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"),
        scope=ALL_LANES,
    ),
    _one(rows.POWER_VIOLATION, "PERF_POLICY_POWER"),
    _one(rows.THERMAL_VIOLATION, "PERF_POLICY_THERMAL"),
    _one(rows.SYNC_BOOST_VIOLATION, "PERF_POLICY_SYNC_BOOST"),
    _one(rows.BOARD_LIMIT_VIOLATION, "PERF_POLICY_BOARD_LIMIT"),
    _one(rows.LOW_UTIL_VIOLATION, "PERF_POLICY_LOW_UTILIZATION"),
    _one(rows.RELIABILITY_VIOLATION, "PERF_POLICY_RELIABILITY"),
    _one(rows.ECC_SBE_VOLATILE, "ECC_SBE_VOL_TOTAL"),
    _one(rows.ECC_DBE_VOLATILE, "ECC_DBE_VOL_TOTAL"),
    _one(rows.ECC_SBE_AGGREGATE, "ECC_SBE_AGG_TOTAL"),
    _one(rows.ECC_DBE_AGGREGATE, "ECC_DBE_AGG_TOTAL"),
    _one(rows.RETIRED_SBE, "RETIRED_SBE"),
    _one(rows.RETIRED_DBE, "RETIRED_DBE"),
    _one(rows.RETIRED_PENDING, "RETIRED_PENDING"),
    _one(rows.NVLINK_CRC_FLIT_ERRORS, "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
    _one(rows.NVLINK_CRC_DATA_ERRORS, "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
    _one(rows.NVLINK_REPLAY_ERRORS, "NVLINK_REPLAY_ERROR_COUNT_TOTAL"),
    _one(rows.NVLINK_RECOVERY_ERRORS, "NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
    _one(rows.RECOVERY_ACTION, "GET_GPU_RECOVERY_ACTION"),
)
"""Asked of every GPU at every interval, in one call."""

MIG_CALLS: Final = (MEMORY_CALL,)
"""Calls for every MIG instance: NVML's values of an instance without GPM."""


@dataclass(frozen=True, slots=True)
class GpmMetric:
    """A row that GPM gives.

    Attributes:
        row: The row.
        metric_id: Which GPM metric.
        factor: From GPM's unit to the row's.
    """

    row: Metric
    metric_id: int
    factor: float

    @property
    def limit(self) -> float:
        """Largest plausible number of GPM's; a share can be a little above 100 % between two samples."""
        return MAX_PERCENT if self.factor == RATIO_PER_PERCENT else float("inf")


MAX_PERCENT: Final = 110
"""Above it a share is wrong. Seen on MIG instances: NVIDIA/DCGM 152."""
RATIO_PER_PERCENT: Final = 0.01
GPM_BYTES_PER_UNIT: Final = 2**20
"""GPM's rates are MiB/s by nvml.h, although DCGM passes the number on into a row of bytes. On an H100 the PCIe rates
were 1.07 and 1.09 of the bytes of known copies, protocol included, with this factor (docs/gpu/2026-11-27-h100.jsonl).
"""

GRAPHICS: Final = GpmMetric(profiling.GR_ENGINE_ACTIVE, 1, RATIO_PER_PERCENT)
GPM_METRICS: Final = (
    GRAPHICS,
    GpmMetric(profiling.SM_ACTIVE, 2, RATIO_PER_PERCENT),
    GpmMetric(profiling.SM_OCCUPANCY, 3, RATIO_PER_PERCENT),
    GpmMetric(profiling.PIPE_INT_ACTIVE, 4, RATIO_PER_PERCENT),
    GpmMetric(profiling.PIPE_TENSOR_ACTIVE, 5, RATIO_PER_PERCENT),
    GpmMetric(profiling.PIPE_TENSOR_DFMA_ACTIVE, 6, RATIO_PER_PERCENT),
    GpmMetric(profiling.PIPE_TENSOR_HMMA_ACTIVE, 7, RATIO_PER_PERCENT),
    GpmMetric(profiling.PIPE_TENSOR_IMMA_ACTIVE, 9, RATIO_PER_PERCENT),
    GpmMetric(profiling.DRAM_ACTIVE, 10, RATIO_PER_PERCENT),
    GpmMetric(profiling.PIPE_FP64_ACTIVE, 11, RATIO_PER_PERCENT),
    GpmMetric(profiling.PIPE_FP32_ACTIVE, 12, RATIO_PER_PERCENT),
    GpmMetric(profiling.PIPE_FP16_ACTIVE, 13, RATIO_PER_PERCENT),
    GpmMetric(profiling.PCIE_TX_BYTES, 20, GPM_BYTES_PER_UNIT),
    GpmMetric(profiling.PCIE_RX_BYTES, 21, GPM_BYTES_PER_UNIT),
    *(GpmMetric(row, 30 + index, RATIO_PER_PERCENT) for index, row in enumerate(profiling.NVDEC_ACTIVE)),
    GpmMetric(profiling.NVLINK_RX_BYTES, 60, GPM_BYTES_PER_UNIT),
    GpmMetric(profiling.NVLINK_TX_BYTES, 61, GPM_BYTES_PER_UNIT),
)

INIT_CALL: Final = "nvmlInit"
COUNT_CALL: Final = "nvmlDeviceGetCount"
ENUMERATE_CALL: Final = "nvmlDeviceGetHandleByIndex"
FIELDS_CALL: Final = "nvmlDeviceGetFieldValues"
GPM_SUPPORT_CALL: Final = "nvmlGpmQueryDeviceSupport"
GPM_SAMPLE_CALL: Final = "nvmlGpmSampleGet"
GPM_METRICS_CALL: Final = "nvmlGpmMetricsGet"
EVENT_SET_CALL: Final = "nvmlEventSetCreate"
REGISTER_CALL: Final = "nvmlDeviceRegisterEvents"
EVENT_WAIT_CALL: Final = "nvmlEventSetWait_v2"
PROCESS_UTILIZATION_CALL: Final = "nvmlDeviceGetProcessUtilization"
PROCESS_CALLS: Final = (
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
)
CALL_NAMES: Final = (
    INIT_CALL,
    COUNT_CALL,
    ENUMERATE_CALL,
    FIELDS_CALL,
    GPM_SUPPORT_CALL,
    GPM_SAMPLE_CALL,
    GPM_METRICS_CALL,
    EVENT_SET_CALL,
    REGISTER_CALL,
    EVENT_WAIT_CALL,
    PROCESS_UTILIZATION_CALL,
    *PROCESS_CALLS,
    *(call.name for call in CALLS),
)
"""Every name under which errors are counted."""

ROWS: Final = MappingProxyType(
    {
        row.otlp_name: row
        for row in (
            *(row for call in CALLS for row in call.rows),
            *(field.row for field in FIELD_VALUES),
            *(metric.row for metric in GPM_METRICS),
            rows.XID_ERRORS,
            *dcgm_exporter.ROWS,
        )
    }
)
"""By OTLP name, every row that the sampler can give."""

SOURCE_ROWS: Final = MappingProxyType(
    {
        dcgm_exporter.CLOCK_EVENTS_COUNT.otlp_name: rows.CLOCK_EVENT_REASONS.otlp_name,
        dcgm_exporter.XID_ERRORS_COUNT.otlp_name: rows.XID_ERRORS.otlp_name,
    }
)
"""By OTLP name of a row that is counted in this program, the row that it is counted from."""

DEFAULT_ROWS: Final = tuple(row.otlp_name for row in (*rows.DEFAULT_ROWS, *profiling.DEFAULT_ROWS))
"""OTLP names of the default rows, for a node without a counters table."""
INSTANCE_ROWS: Final = frozenset(
    row.otlp_name
    for row in (*(row for call in MIG_CALLS for row in call.rows), *(metric.row for metric in GPM_METRICS))
)
"""OTLP names of the rows that a MIG instance can have."""
