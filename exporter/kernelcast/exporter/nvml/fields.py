"""Which NVML call gives which of the catalogue's rows, and in which unit: a table.

Source: NVIDIA/DCGM, dcgmlib/src/DcgmCacheManager.cpp, for what DCGM itself asks NVML; nvml.h for units.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue import device as rows

Number = int | float

BYTES_PER_MEBIBYTE: Final = 2**20
MILLIWATTS_PER_WATT: Final = 1000
MAX_MEMORY_TEMPERATURE_CELSIUS: Final = 200
"""Above it the field holds no temperature; DCGM drops such readings too."""


@dataclass(frozen=True, slots=True)
class Call:
    """One NVML call.

    Attributes:
        name: As NVML names it; the label `call` of its errors.
        rows: What it gives, in the order of `read`'s values.
        read: Given the pynvml module and a device handle, one value a row; None where it knows none.
    """

    name: str
    rows: tuple[Metric, ...]
    read: Callable[[Any, Any], tuple[Number | None, ...]]


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
    return (nvml.nvmlDeviceGetPowerUsage(gpu) / MILLIWATTS_PER_WATT,)


def _power_limit(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / MILLIWATTS_PER_WATT,)


def _energy(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),)


def _pcie_replays(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetPcieReplayCounter(gpu),)


def _utilization(nvml: Any, gpu: Any) -> tuple[Number, Number]:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return rates.gpu, rates.memory


def _encoder(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetEncoderUtilization(gpu)[0],)


def _decoder(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetDecoderUtilization(gpu)[0],)


def _memory(nvml: Any, gpu: Any) -> tuple[Number, ...]:
    """Version 2 of the struct: version 1 counts what the driver reserves as used."""
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
    return tuple(size / BYTES_PER_MEBIBYTE for size in (memory.free, memory.used, memory.reserved))


def _remapped_rows(nvml: Any, gpu: Any) -> tuple[Number, ...]:
    correctable, uncorrectable, _pending, failure = nvml.nvmlDeviceGetRemappedRows(gpu)
    return correctable, uncorrectable, failure


def _clock_events(nvml: Any, gpu: Any) -> tuple[Number]:
    return (nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),)


MEMORY_CALL: Final = Call("nvmlDeviceGetMemoryInfo_v2", (rows.FB_FREE, rows.FB_USED, rows.FB_RESERVED), _memory)
CALLS: Final = (
    Call("nvmlDeviceGetClockInfo(SM)", (rows.SM_CLOCK,), _clock),
    Call("nvmlDeviceGetClockInfo(MEM)", (rows.MEM_CLOCK,), _memory_clock),
    Call("nvmlDeviceGetTemperature", (rows.GPU_TEMP,), _temperature),
    Call("nvmlDeviceGetTemperatureThreshold", (rows.SLOWDOWN_TEMP,), _slowdown_temperature),
    Call("nvmlDeviceGetPowerUsage", (rows.POWER_USAGE,), _power),
    Call("nvmlDeviceGetEnforcedPowerLimit", (rows.POWER_LIMIT,), _power_limit),
    Call("nvmlDeviceGetTotalEnergyConsumption", (rows.TOTAL_ENERGY,), _energy),
    Call("nvmlDeviceGetPcieReplayCounter", (rows.PCIE_REPLAY,), _pcie_replays),
    Call("nvmlDeviceGetUtilizationRates", (rows.GPU_UTIL, rows.MEM_COPY_UTIL), _utilization),
    Call("nvmlDeviceGetEncoderUtilization", (rows.ENC_UTIL,), _encoder),
    Call("nvmlDeviceGetDecoderUtilization", (rows.DEC_UTIL,), _decoder),
    MEMORY_CALL,
    Call(
        "nvmlDeviceGetRemappedRows",
        (rows.CORRECTABLE_REMAPPED_ROWS, rows.UNCORRECTABLE_REMAPPED_ROWS, rows.ROW_REMAP_FAILURE),
        _remapped_rows,
    ),
    Call("nvmlDeviceGetCurrentClocksEventReasons", (rows.CLOCK_EVENT_REASONS,), _clock_events),
)
"""Asked of every GPU at every interval."""

FIELD_VALUES: Final = (
    FieldValue(rows.MEMORY_TEMP, ("NVML_FI_DEV_MEMORY_TEMP",), limit=MAX_MEMORY_TEMPERATURE_CELSIUS),
)
"""Asked of every GPU at every interval, in one call."""

MIG_CALLS: Final = (MEMORY_CALL,)
"""Asked of every MIG instance: what NVML tells of an instance without GPM."""

INIT_CALL: Final = "nvmlInit"
COUNT_CALL: Final = "nvmlDeviceGetCount"
ENUMERATE_CALL: Final = "nvmlDeviceGetHandleByIndex"
FIELDS_CALL: Final = "nvmlDeviceGetFieldValues"
CALL_NAMES: Final = (INIT_CALL, COUNT_CALL, ENUMERATE_CALL, FIELDS_CALL, *(call.name for call in CALLS))
"""Every name under which errors are counted."""

ROWS: Final = MappingProxyType(
    {
        row.otlp_name: row
        for row in (*(row for call in CALLS for row in call.rows), *(field.row for field in FIELD_VALUES))
    }
)
"""By OTLP name, every row that the sampler can give."""
