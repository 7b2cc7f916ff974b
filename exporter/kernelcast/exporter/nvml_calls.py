"""Which NVML call gives which of the catalogue's rows, and in which unit: a table.

Source: NVIDIA/DCGM, dcgmlib/src/DcgmCacheManager.cpp, for what DCGM itself asks NVML; nvml.h for units.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue import device as rows

Reading = tuple[tuple[Metric, int | float], ...]

BYTES_PER_MEBIBYTE: Final = 2**20
MILLIWATTS_PER_WATT: Final = 1000
MAX_MEMORY_TEMPERATURE_CELSIUS: Final = 200
"""Above it the field holds no temperature; DCGM drops such readings too."""


@dataclass(frozen=True, slots=True)
class Call:
    """One NVML call.

    Attributes:
        name: As NVML names it; the label `call` of its errors.
        read: Given the pynvml module and a device handle, the rows it gives; none where it knows no value.
    """

    name: str
    read: Callable[[Any, Any], Reading]


def _clocks(nvml: Any, gpu: Any) -> Reading:
    return ((rows.SM_CLOCK, nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),)


def _memory_clock(nvml: Any, gpu: Any) -> Reading:
    return ((rows.MEM_CLOCK, nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),)


def _memory_temperature(nvml: Any, gpu: Any) -> Reading:
    (field,) = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_MEMORY_TEMP])
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        return ()
    celsius = int(field.value.uiVal)
    return ((rows.MEMORY_TEMP, celsius),) if celsius <= MAX_MEMORY_TEMPERATURE_CELSIUS else ()


def _temperature(nvml: Any, gpu: Any) -> Reading:
    return ((rows.GPU_TEMP, nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),)


def _slowdown_temperature(nvml: Any, gpu: Any) -> Reading:
    threshold = nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    return ((rows.SLOWDOWN_TEMP, nvml.nvmlDeviceGetTemperatureThreshold(gpu, threshold)),)


def _power(nvml: Any, gpu: Any) -> Reading:
    return ((rows.POWER_USAGE, nvml.nvmlDeviceGetPowerUsage(gpu) / MILLIWATTS_PER_WATT),)


def _power_limit(nvml: Any, gpu: Any) -> Reading:
    return ((rows.POWER_LIMIT, nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / MILLIWATTS_PER_WATT),)


def _energy(nvml: Any, gpu: Any) -> Reading:
    return ((rows.TOTAL_ENERGY, nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)),)


def _pcie_replays(nvml: Any, gpu: Any) -> Reading:
    return ((rows.PCIE_REPLAY, nvml.nvmlDeviceGetPcieReplayCounter(gpu)),)


def _utilization(nvml: Any, gpu: Any) -> Reading:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return ((rows.GPU_UTIL, rates.gpu), (rows.MEM_COPY_UTIL, rates.memory))


def _encoder(nvml: Any, gpu: Any) -> Reading:
    return ((rows.ENC_UTIL, nvml.nvmlDeviceGetEncoderUtilization(gpu)[0]),)


def _decoder(nvml: Any, gpu: Any) -> Reading:
    return ((rows.DEC_UTIL, nvml.nvmlDeviceGetDecoderUtilization(gpu)[0]),)


def _memory(nvml: Any, gpu: Any) -> Reading:
    """Version 2 of the struct: version 1 counts what the driver reserves as used."""
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
    return (
        (rows.FB_FREE, memory.free / BYTES_PER_MEBIBYTE),
        (rows.FB_USED, memory.used / BYTES_PER_MEBIBYTE),
        (rows.FB_RESERVED, memory.reserved / BYTES_PER_MEBIBYTE),
    )


def _remapped_rows(nvml: Any, gpu: Any) -> Reading:
    correctable, uncorrectable, _pending, failure = nvml.nvmlDeviceGetRemappedRows(gpu)
    return (
        (rows.CORRECTABLE_REMAPPED_ROWS, correctable),
        (rows.UNCORRECTABLE_REMAPPED_ROWS, uncorrectable),
        (rows.ROW_REMAP_FAILURE, failure),
    )


def _clock_events(nvml: Any, gpu: Any) -> Reading:
    return ((rows.CLOCK_EVENT_REASONS, nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),)


MEMORY_CALL: Final = Call("nvmlDeviceGetMemoryInfo_v2", _memory)
CALLS: Final = (
    Call("nvmlDeviceGetClockInfo(SM)", _clocks),
    Call("nvmlDeviceGetClockInfo(MEM)", _memory_clock),
    Call("nvmlDeviceGetFieldValues(MEMORY_TEMP)", _memory_temperature),
    Call("nvmlDeviceGetTemperature", _temperature),
    Call("nvmlDeviceGetTemperatureThreshold", _slowdown_temperature),
    Call("nvmlDeviceGetPowerUsage", _power),
    Call("nvmlDeviceGetEnforcedPowerLimit", _power_limit),
    Call("nvmlDeviceGetTotalEnergyConsumption", _energy),
    Call("nvmlDeviceGetPcieReplayCounter", _pcie_replays),
    Call("nvmlDeviceGetUtilizationRates", _utilization),
    Call("nvmlDeviceGetEncoderUtilization", _encoder),
    Call("nvmlDeviceGetDecoderUtilization", _decoder),
    MEMORY_CALL,
    Call("nvmlDeviceGetRemappedRows", _remapped_rows),
    Call("nvmlDeviceGetCurrentClocksEventReasons", _clock_events),
)
"""Asked of every GPU at every interval."""

MIG_CALLS: Final = (MEMORY_CALL,)
"""Asked of every MIG instance: what NVML tells of an instance without GPM."""

INIT_CALL: Final = "nvmlInit"
COUNT_CALL: Final = "nvmlDeviceGetCount"
ENUMERATE_CALL: Final = "nvmlDeviceGetHandleByIndex"
CALL_NAMES: Final = (INIT_CALL, COUNT_CALL, ENUMERATE_CALL, *(call.name for call in CALLS))
"""Every name under which errors are counted."""
