"""Reads the values of one GPU by the calls of `fields.py`; an absent value has a reason. `Sampler` calls it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from kernelcast.exporter.nvml.sampling import fields, reading
from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.fields import FieldValue, Number, NvmlCall
from kernelcast.exporter.nvml.sampling.inventory import Gpu
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.devices import device

Failed = Callable[[str, str], None]
"""Called with the call and NVML's name for the error."""

MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of the union `nvmlValue_t`, by `nvmlValueType_t`. Source: nvml.h."""
LARGEST: Final = 2**63 - 1
"""The largest integer of a sample."""
NOT_AVAILABLE: Final = (-1, 2**32 - 1, 2**64 - 1)
"""NVML_VALUE_NOT_AVAILABLE, -1, in signed numbers and in unsigned ones of 32 and 64 bits. Source: nvml.h."""


def is_available(value: Number) -> bool:
    """Return whether NVML's own number, before any conversion, is a value that a sample can carry."""
    return value <= LARGEST and value not in NOT_AVAILABLE


class LostGpuError(Exception):
    """The GPU is lost: no further call for it can succeed until it is found again."""


@dataclass(frozen=True, slots=True)
class GpuValues:
    """Values of one GPU, and reasons for absent ones, by OTLP name."""

    values: dict[str, Number] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def put(self, row: Metric, value: Number | None, reason: str = reading.NO_DATA, *, divisor: int = 1) -> None:
        """Add a row's value, NVML's number by a divisor, or the reason why it has none that a sample can carry."""
        if value is None or not is_available(value):
            self.absent[row.otlp_name] = reason
        else:
            self.values[row.otlp_name] = value if divisor == 1 else value / divisor


class ValueReader:
    """Reads rows of a GPU or MIG instance.

    Args:
        nvml: pynvml, or a double of it.
        codes: Its error codes.
        failed: Called with errors, except those for missing values.
    """

    def __init__(self, nvml: Any, codes: Codes, failed: Failed) -> None:
        self._nvml = nvml
        self._codes = codes
        self._failed = failed

    def read(self, gpu: Gpu, wanted: frozenset[str]) -> GpuValues:
        """The wanted rows of a GPU, by OTLP name.

        Raises:
            LostGpuError: The GPU is gone.
        """
        into = GpuValues()
        for call in _calls(wanted, of_instance=bool(gpu.gi_id)):
            self._call(gpu, call, wanted, into)
        if into.absent.get(device.FB_USED.otlp_name) == reading.NOT_SUPPORTED:
            _without_pcie(into)
        if not gpu.gi_id:
            self._fields(gpu, _field_values(wanted), into)
        return into

    def _call(self, gpu: Gpu, call: NvmlCall, wanted: frozenset[str], into: GpuValues) -> None:
        reason = call.unknown
        values: tuple[Number | None, ...] = (None,) * len(call.rows)
        try:
            values = call.read(self._nvml, gpu.handle)
        except self._nvml.NVMLError as error:
            reason = self._reason(gpu, call.name, error)
        except AttributeError:
            reason = reading.OLD_PYNVML
        for row, value in zip(call.rows, values, strict=True):
            if row.otlp_name not in wanted:
                continue
            if value is not None and is_available(value) and value > call.limit:
                self._failed(call.name, reading.IMPLAUSIBLE)
                into.put(row, None, reading.IMPLAUSIBLE)
            else:
                into.put(row, value, reason, divisor=call.divisor)

    def _fields(self, gpu: Gpu, asked: Sequence[FieldValue], into: GpuValues) -> None:
        nvml = self._nvml
        unnamed = [one for one in asked if not all(hasattr(nvml, name) for name in one.fields)]
        for one in unnamed:
            into.put(one.row, None, reading.OLD_PYNVML)
        if unnamed:
            asked = [one for one in asked if one not in unnamed]
        if not asked:
            return
        ids = [(getattr(nvml, name), one.scope) for one in asked for name in one.fields]
        try:
            values = iter(nvml.nvmlDeviceGetFieldValues(gpu.handle, ids))
        except nvml.NVMLError as error:
            reason = self._reason(gpu, fields.FIELDS_CALL, error)
            for one in asked:
                into.put(one.row, None, reason)
            return
        for one in asked:
            into.put(one.row, *self._sum(gpu, one, [next(values) for _ in one.fields]))

    def _sum(self, gpu: Gpu, one: FieldValue, values: Iterable[Any]) -> tuple[Number | None, str]:
        total: Number = 0
        for part in values:
            if part.nvmlReturn == self._nvml.NVML_ERROR_INVALID_ARGUMENT:
                # A field that this driver is too old for: the number is the only argument there is.
                return None, reading.NOT_SUPPORTED
            if part.nvmlReturn != self._nvml.NVML_SUCCESS:
                return None, self._reason(gpu, fields.FIELDS_CALL, self._nvml.NVMLError(part.nvmlReturn))
            value = getattr(part.value, MEMBERS[part.valueType])
            if not is_available(value):
                return None, reading.NO_DATA
            total += value
        return (total if total <= one.limit else None), reading.NO_DATA

    def _reason(self, gpu: Gpu, call: str, error: Any) -> str:
        """Reason why the rows of a failed call are absent.

        Raises:
            LostGpuError: Because the GPU is gone.
        """
        if self._codes.lost(error.value):
            self._failed(call, error_name(error))
            raise LostGpuError
        if not self._codes.expected(error.value):
            self._failed(call, error_name(error))
        reason = self._codes.reason(error.value)
        return reading.MIG if gpu.mig_mode and reason == reading.NOT_SUPPORTED else reason


def _without_pcie(values: GpuValues) -> None:
    """Leave out the PCIe link of a GPU without memory of its own: it is on the host's chip.

    NVML gives such a GPU (GB10) a link of generation 1 with one lane. Source: Syllo/nvtop 499, lablup/all-smi 146.
    """
    for row in fields.LINK_ROWS:
        if values.values.pop(row.otlp_name, None) is not None:
            values.put(row, None, reading.NOT_SUPPORTED)


@lru_cache(maxsize=4)
def _calls(wanted: frozenset[str], *, of_instance: bool) -> tuple[NvmlCall, ...]:
    """The calls that give any of the wanted rows; the same at every interval."""
    calls = fields.MIG_CALLS if of_instance else fields.CALLS
    return tuple(call for call in calls if any(row.otlp_name in wanted for row in call.rows))


@lru_cache(maxsize=2)
def _field_values(wanted: frozenset[str]) -> tuple[FieldValue, ...]:
    return tuple(one for one in fields.FIELD_VALUES if one.row.otlp_name in wanted)
