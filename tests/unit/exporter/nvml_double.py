"""A pynvml-shaped double: GPUs whose values a test sets, and which fail when told to."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """As pynvml has it: `value` is the code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@dataclass
class FakeGpu:
    """One GPU: values by NVML call; a call that has none is not supported."""

    uuid: str
    values: dict[str, Any] = field(default_factory=dict)
    name: str = "NVIDIA H200"
    lost: bool = False
    instances: list["FakeGpu"] = field(default_factory=list)
    gi_id: int = 0
    device_file: bool = True


class FakeNvml:
    """The module."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_UNINITIALIZED = 1
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25
    NVML_ERROR_GPU_NOT_FOUND = 28
    NVML_ERROR_NO_DATA = 21
    NVML_ERROR_UNKNOWN = 999
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    NVML_FI_DEV_MEMORY_TEMP = 82
    nvmlMemory_v2 = 0x02000028  # noqa: N815  pynvml's name

    def __init__(self, *gpus: FakeGpu, driver: bool = True) -> None:
        self.gpus = list(gpus)
        self.driver = driver
        self.opened = 0

    def nvmlInit(self) -> None:  # noqa: N802  pynvml's name
        if not self.driver:
            raise NVMLError(self.NVML_ERROR_DRIVER_NOT_LOADED)
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802  pynvml's name
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802  pynvml's name
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802  pynvml's name
        return self._alive(self.gpus[index])

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # noqa: N802  pynvml's name
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:  # noqa: N802  pynvml's name
        return gpu.name

    def nvmlDeviceGetMinorNumber(self, gpu: FakeGpu) -> int:  # noqa: N802  pynvml's name
        if not gpu.device_file:
            raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return self.gpus.index(gpu)

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802  pynvml's name
        return SimpleNamespace(busId=f"00000000:{self.gpus.index(gpu):02X}:00.0".encode())

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:  # noqa: N802  pynvml's name
        return [int(bool(gpu.instances)), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, _gpu: FakeGpu) -> int:  # noqa: N802  pynvml's name
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:  # noqa: N802  pynvml's name
        if index >= len(gpu.instances):
            raise NVMLError(self.NVML_ERROR_NOT_FOUND)
        return gpu.instances[index]

    def nvmlDeviceGetGpuInstanceId(self, gpu: FakeGpu) -> int:  # noqa: N802  pynvml's name
        return gpu.gi_id

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, clock: int) -> Any:  # noqa: N802  pynvml's name
        return self._value(gpu, f"clock{clock}")

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, _sensor: int) -> Any:  # noqa: N802  pynvml's name
        return self._value(gpu, "temperature")

    def nvmlDeviceGetTemperatureThreshold(self, gpu: FakeGpu, _threshold: int) -> Any:  # noqa: N802  pynvml's name
        return self._value(gpu, "slowdown")

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:  # noqa: N802
        assert fields == [(self.NVML_FI_DEV_MEMORY_TEMP, 0)]
        celsius = self._value(gpu, "memory_temperature")
        code = self.NVML_ERROR_NOT_SUPPORTED if celsius is None else self.NVML_SUCCESS
        return [SimpleNamespace(nvmlReturn=code, valueType=1, value=SimpleNamespace(uiVal=celsius or 0))]

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802  pynvml's name
        return "590.48.01"

    def nvmlSystemGetNVMLVersion(self) -> str:  # noqa: N802  pynvml's name
        return "13.590.48.01"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802  pynvml's name
        return 13010

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int) -> Any:  # noqa: N802  pynvml's name
        assert version == self.nvmlMemory_v2
        return self._value(gpu, "memory")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        return lambda gpu: self._value(gpu, name)

    def _alive(self, gpu: FakeGpu) -> FakeGpu:
        if gpu.lost:
            raise NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        return gpu

    def _value(self, gpu: FakeGpu, name: str) -> Any:
        values = self._alive(gpu).values
        if name not in values:
            raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        value = values[name]
        if isinstance(value, Exception):
            raise value
        return value
