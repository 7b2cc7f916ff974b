"""Reads the health of GPUs that changes seldom: fabric, pending repairs, SRAM errors. `Sampler` calls it once a minute.

NVML fills structures of ours: pynvml before 13 has an older one for the fabric and none for repairs. Source: nvml.h,
nvmlGpuFabricInfo_v3_t, NVML_GPU_FABRIC_HEALTH_MASK_*, nvmlRepairStatus_v1_t, nvmlEccSramErrorStatus_v1_t.
"""

import ctypes
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kernelcast.exporter.nvml.sampling import reading
from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.gpu_values import Failed
from kernelcast.exporter.nvml.sampling.inventory import Gpu
from kernelcast.exporter.nvml.sampling.reading import HealthValue
from kernelcast.wire.catalogue.devices import health

if TYPE_CHECKING:
    from kernelcast.wire.catalogue import Metric

FABRIC_CALL: Final = "nvmlDeviceGetGpuFabricInfoV"
SRAM_CALL: Final = "nvmlDeviceGetSramEccErrorStatus"
REPAIR_CALL: Final = "nvmlDeviceGetRepairStatus"
UNREPAIRABLE_CALL: Final = "nvmlDeviceGetUnrepairableMemoryFlag_v1"
CALL_NAMES: Final = (FABRIC_CALL, SRAM_CALL, REPAIR_CALL, UNREPAIRABLE_CALL)
"""Every name under which errors are counted."""

_UUID_BYTES: Final = 16
_HEAD: Final = (
    ("version", ctypes.c_uint),
    ("clusterUuid", ctypes.c_ubyte * _UUID_BYTES),
    ("status", ctypes.c_uint),
    ("cliqueId", ctypes.c_uint),
    ("state", ctypes.c_ubyte),
    ("healthMask", ctypes.c_uint),
)


class FabricInfo2(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_ = _HEAD


class FabricInfo3(ctypes.Structure):
    """nvmlGpuFabricInfo_v3_t."""

    _fields_ = (*_HEAD, ("healthSummary", ctypes.c_ubyte))


class SramErrors(ctypes.Structure):
    """nvmlEccSramErrorStatus_v1_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("aggregateUncParity", ctypes.c_ulonglong),
        ("aggregateUncSecDed", ctypes.c_ulonglong),
        ("aggregateCor", ctypes.c_ulonglong),
        ("volatileUncParity", ctypes.c_ulonglong),
        ("volatileUncSecDed", ctypes.c_ulonglong),
        ("volatileCor", ctypes.c_ulonglong),
        ("aggregateUncBucketL2", ctypes.c_ulonglong),
        ("aggregateUncBucketSm", ctypes.c_ulonglong),
        ("aggregateUncBucketPcie", ctypes.c_ulonglong),
        ("aggregateUncBucketMcu", ctypes.c_ulonglong),
        ("aggregateUncBucketOther", ctypes.c_ulonglong),
        ("bThresholdExceeded", ctypes.c_uint),
    )


class RepairStatus(ctypes.Structure):
    """nvmlRepairStatus_v1_t."""

    _fields_ = tuple((name, ctypes.c_uint) for name in ("version", "bChannelRepairPending", "bTpcRepairPending"))


class Unrepairable(ctypes.Structure):
    """nvmlUnrepairableMemoryStatus_v1_t: the flag alone by nvml.h, after a version by pynvml 13.615."""

    _fields_ = tuple((name, ctypes.c_uint) for name in ("version", "unrepairableMemory"))


STATES: Final = MappingProxyType({1: health.NOT_STARTED, 2: health.IN_PROGRESS, 3: health.COMPLETED})
"""By NVML_GPU_FABRIC_STATE_*; 0 is not supported."""
_TRUE: Final = 1
_MASK: Final = (
    ("degraded_bandwidth", 0, 0x3),
    ("route_recovery", 2, 0x3),
    ("route_unhealthy", 4, 0x3),
    ("access_timeout_recovery", 6, 0x3),
)
"""Fault, shift and width of the mask's parts, each 0 (not supported), 1 (true) or 2 (false)."""
_CONFIGURATION_SHIFT, _CONFIGURATION_WIDTH, _CONFIGURED = 8, 0xF, 1
_SUMMARIES: Final = MappingProxyType({2: "unhealthy", 3: "limited_capacity"})
"""Fault by NVML_GPU_FABRIC_HEALTH_SUMMARY_*; 0 is not supported, 1 healthy."""
UNITS: Final = MappingProxyType({"l2": "L2", "sm": "Sm", "pcie": "Pcie", "microcontroller": "Mcu", "other": "Other"})
"""Units with SRAM by their label: the end of the structure's member."""

_CAPITAL: Final = re.compile(r"(?<!^)([A-Z])")

Values = Iterable[HealthValue]


def versioned(structure: type[ctypes.Structure], version: int) -> Any:
    """An empty structure with its version, which NVML makes of number and size (NVML_STRUCT_VERSION)."""
    return structure(version=ctypes.sizeof(structure) | version << 24)


def faults_of(mask: int, summary: int) -> Mapping[str, int]:
    """The faults that the driver reports, each as 1 or 0."""
    found = {fault: mask >> shift & width for fault, shift, width in _MASK}
    configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_WIDTH
    faults = {fault: int(value == _TRUE) for fault, value in found.items() if value}
    if configuration:
        faults["incorrect_configuration"] = int(configuration != _CONFIGURED)
    if summary:
        faults |= {fault: int(summary == value) for value, fault in _SUMMARIES.items()}
    return faults


def fill(nvml: Any, call: str, gpu: Any, structure: ctypes.Structure) -> None:
    """Let NVML fill a structure.

    Raises:
        NVMLError: It does not; the driver may be too old for the call.
    """
    own = getattr(nvml, "fill_structure", None)  # of a double
    if own is not None:
        own(call, gpu, structure)
    else:
        nvml._nvmlCheckReturn(nvml._nvmlGetFunctionPointer(call)(gpu, ctypes.byref(structure)))  # noqa: SLF001


class GpuHealth:
    """Reads each GPU's health, and keeps it until the next `read`.

    Args:
        nvml: pynvml, or a double of it.
        codes: Its error codes.
        failed: Called with the call and NVML's name for the error, for errors other than not supported.
    """

    def __init__(self, nvml: Any, codes: Codes, failed: Failed) -> None:
        self._nvml = nvml
        self._codes = codes
        self._failed = failed
        self._values: dict[str, tuple[HealthValue, ...]] = {}
        self._absent: dict[str, dict[str, str]] = {}

    def read(self, gpus: Iterable[Gpu]) -> None:
        """Read every whole GPU; a MIG instance has no health of its own."""
        self._values, self._absent = {}, {}
        for gpu in gpus:
            if not gpu.gi_id:
                absent = self._absent[gpu.uuid] = {}
                self._values[gpu.uuid] = tuple(self._of(gpu, absent))

    def of(self, gpu_uuid: str) -> tuple[HealthValue, ...]:
        """The values of a GPU."""
        return self._values.get(gpu_uuid, ())

    def absent(self, gpu_uuid: str) -> Mapping[str, str]:
        """Reasons why a GPU has no values, by OTLP name of the first row that each call lacks."""
        return self._absent.get(gpu_uuid, {})

    def _of(self, gpu: Gpu, absent: dict[str, str]) -> Iterator[HealthValue]:
        asked: tuple[tuple[str, tuple[Metric, ...], Callable[[Any], Values]], ...] = (
            (FABRIC_CALL, (health.FABRIC, health.FABRIC_FAULT), self._fabric),
            (REPAIR_CALL, (health.REPAIR_PENDING,), self._repairs),
            (UNREPAIRABLE_CALL, (health.UNREPAIRABLE,), self._unrepairable),
            (SRAM_CALL, (health.SRAM_THRESHOLD,), self._sram),
        )
        for call, rows, read in asked:
            try:
                found = tuple(read(gpu.handle))
            except self._nvml.NVMLError as error:
                if not self._codes.expected(error.value):
                    self._failed(call, error_name(error))
                absent[rows[0].otlp_name] = self._codes.reason(error.value)
                continue
            given = {one.row for one in found}
            lacking = [row.otlp_name for row in rows if row.otlp_name not in given]
            absent.update(dict.fromkeys(lacking[:1], reading.NOT_SUPPORTED))
            yield from found

    def _fabric(self, gpu: Any) -> Values:
        info = versioned(FabricInfo3, 3)
        try:
            fill(self._nvml, FABRIC_CALL, gpu, info)
        except self._nvml.NVMLError as error:
            if error.value not in (
                self._nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
                self._nvml.NVML_ERROR_INVALID_ARGUMENT,
            ):
                raise
            info = versioned(FabricInfo2, 2)
            fill(self._nvml, FABRIC_CALL, gpu, info)
        if info.state not in STATES:
            return
        cluster = bytes(info.clusterUuid)
        place = {
            "state": STATES[info.state],
            "status": self._status(info.status),
            "clique": str(info.cliqueId),
            "cluster_uuid": str(uuid.UUID(bytes=cluster)) if any(cluster) else "",
        }
        yield HealthValue(health.FABRIC.otlp_name, 1, place)
        for fault, is_active in faults_of(info.healthMask, getattr(info, "healthSummary", 0)).items():
            yield HealthValue(health.FABRIC_FAULT.otlp_name, is_active, {"fault": fault})

    def _status(self, code: int) -> str:
        """A code of NVML as its constant's name, such as `insufficient_resources`."""
        if code == self._nvml.NVML_SUCCESS:
            return health.SUCCESS
        return _CAPITAL.sub(r"_\1", error_name(self._nvml.NVMLError(code))).lower()

    def _repairs(self, gpu: Any) -> Values:
        status = versioned(RepairStatus, 1)
        fill(self._nvml, REPAIR_CALL, gpu, status)
        for part, pending in (("channel", status.bChannelRepairPending), ("tpc", status.bTpcRepairPending)):
            yield HealthValue(health.REPAIR_PENDING.otlp_name, int(bool(pending)), {"part": part})

    def _unrepairable(self, gpu: Any) -> Values:
        status = versioned(Unrepairable, 1)
        fill(self._nvml, UNREPAIRABLE_CALL, gpu, status)
        # Without a version in NVML's structure the flag has replaced ours.
        flag = status.version if status.version in (0, 1) else status.unrepairableMemory
        yield HealthValue(health.UNREPAIRABLE.otlp_name, int(bool(flag)))

    def _sram(self, gpu: Any) -> Values:
        status = versioned(SramErrors, 1)
        fill(self._nvml, SRAM_CALL, gpu, status)
        yield HealthValue(health.SRAM_THRESHOLD.otlp_name, int(bool(status.bThresholdExceeded)))
        for unit, member in UNITS.items():
            if count := getattr(status, f"aggregateUncBucket{member}"):
                yield HealthValue(health.SRAM_ERRORS.otlp_name, count, {"unit": unit})
