"""Device metrics through NVML, under DCGM's names: no DCGM, no daemon of NVIDIA's."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml_calls import CALLS, COUNT_CALL, ENUMERATE_CALL, INIT_CALL, MIG_CALLS, Call, Reading
from kernelcast.exporter.report import Batch
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.errors import DeviceError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND
from kernelcast.wire.identity import Device, Labels

FIRST_RETRY_NS: Final = 5 * NANOSECONDS_PER_SECOND
LONGEST_RETRY_NS: Final = 300 * NANOSECONDS_PER_SECOND

ErrorListener = Callable[[str, str], None]
Counters = dict[Metric, tuple[float, int]]
"""Metric to its last value and the start of its series, Unix nanoseconds."""

_log = get_logger(__name__)


def ignore_error(_call: str, _error: str) -> None:
    """The listener of those who count no errors."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG instance.

    Attributes:
        handle: NVML's.
        device: Its labels.
        calls: What it is asked.
    """

    handle: Any
    device: Device
    calls: tuple[Call, ...]


class NvmlSource:
    """Polls every GPU of the node.

    A row that a GPU does not support is absent. A GPU that vanishes has no samples until it is found again; it is
    looked for after 5 seconds, then at doubling intervals up to 5 minutes.

    Args:
        nvml: The pynvml module, or a double of it; initialised by `start`.
        hostname: The node's name.
        boot_ns: Since when the driver's counters run, Unix nanoseconds.
        on_error: Told the call and NVML's name for the error, once for each.
    """

    def __init__(self, nvml: Any, *, hostname: str, boot_ns: int, on_error: ErrorListener = ignore_error) -> None:
        self._nvml = nvml
        self._hostname = hostname
        self._boot_ns = boot_ns
        self._on_error = on_error
        self._gpus: list[Gpu] = []
        # By UUID and GPU instance, kept while a GPU is gone: what it counted is often less when it comes back.
        self._counters: dict[tuple[str, str], Counters] = {}
        self._open = False
        self._expected = 0
        self._retry_ns = 0
        self._wait_ns = FIRST_RETRY_NS
        self._absent_codes = {
            getattr(nvml, f"NVML_ERROR_{name}")
            for name in ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NOT_FOUND", "NO_DATA", "ARGUMENT_VERSION_MISMATCH")
        }
        self._lost_codes = {
            getattr(nvml, f"NVML_ERROR_{name}")
            for name in ("GPU_IS_LOST", "GPU_NOT_FOUND", "UNINITIALIZED", "DRIVER_NOT_LOADED", "RESET_REQUIRED")
        }

    def start(self) -> "NvmlSource":
        """Load NVML and find the GPUs.

        Raises:
            DeviceError: There is no driver, or it does not answer.
        """
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise DeviceError(
                f"NVML cannot be used: {error}; install the NVIDIA driver, give the container the GPU "
                "(--gpus all), or set exporter.nvml to off"
            ) from None
        self._open = True
        if not self._enumerate():
            self._retry_ns = 1
        return self

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs found, MIG instances included."""
        return tuple(gpu.device for gpu in self._gpus)

    def poll(self, now_ns: int) -> Batch:
        """One sample for each row of each GPU, as of `now_ns`."""
        if self._retry_ns and now_ns >= self._retry_ns:
            self._look_again(now_ns)
        samples: list[Sample] = []
        for gpu in list(self._gpus):
            taken = self._read(gpu, now_ns)
            if taken is None:
                self._gpus.remove(gpu)
                self._retry_ns = self._retry_ns or now_ns + FIRST_RETRY_NS
                _log.warning("GPU is gone", uuid=gpu.device.uuid, gpu=gpu.device.gpu)
                continue
            samples.extend(taken)
        return Batch(samples=tuple(samples))

    def close(self) -> None:
        """Release NVML; safe to call twice."""
        if self._open:
            self._open = False
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _look_again(self, now_ns: int) -> None:
        try:
            # A handle from before a reset may stay dead for ever: begin anew.
            self._nvml.nvmlShutdown()
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self._on_error(INIT_CALL, _name(error))
        complete = self._enumerate()
        self._retry_ns = 0 if complete else now_ns + self._wait_ns
        self._wait_ns = FIRST_RETRY_NS if complete else min(self._wait_ns * 2, LONGEST_RETRY_NS)

    def _enumerate(self) -> bool:
        """Find the GPUs; False where one did not answer, or fewer are there than once were."""
        nvml = self._nvml
        gpus: list[Gpu] = []
        found = 0
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                self._expected = max(self._expected, index + 1)
                added = self._found(index)
                found += bool(added)
                gpus += added
        except nvml.NVMLError as error:
            self._on_error(COUNT_CALL, _name(error))
        # Other threads read `devices`: the list is exchanged as a whole.
        self._gpus = gpus
        return found >= max(self._expected, 1)

    def _found(self, index: int) -> list[Gpu]:
        try:
            gpu = self._gpu(index)
        except self._nvml.NVMLError as error:
            self._on_error(ENUMERATE_CALL, _name(error))
            return []
        return [gpu, *self._mig_instances(gpu)]

    def _gpu(self, index: int) -> Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        device = Device(
            self._hostname,
            nvml.nvmlDeviceGetUUID(handle),
            str(index),
            pci_bus_id=_text(nvml.nvmlDeviceGetPciInfo(handle).busId),
            device=self._device_file(handle),
            model_name=nvml.nvmlDeviceGetName(handle),
        )
        return Gpu(handle, device, CALLS)

    def _device_file(self, handle: Any) -> str:
        """The device file's name; empty where there is none, as under WSL."""
        try:
            return f"nvidia{self._nvml.nvmlDeviceGetMinorNumber(handle)}"
        except self._nvml.NVMLError as error:
            if error.value in self._absent_codes:
                return ""
            raise

    def _mig_instances(self, parent: Gpu) -> Iterator[Gpu]:
        """The GPU instances of a GPU in MIG mode; compute instances share their memory, so each stands once."""
        nvml = self._nvml
        try:
            mode, _pending = nvml.nvmlDeviceGetMigMode(parent.handle)
            count = nvml.nvmlDeviceGetMaxMigDeviceCount(parent.handle) if mode else 0
        except nvml.NVMLError:
            return
        seen: set[str] = set()
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent.handle, index)
                gi_id = str(nvml.nvmlDeviceGetGpuInstanceId(handle))
                profile = nvml.nvmlDeviceGetName(handle).rpartition("MIG ")[2]
            except nvml.NVMLError:
                continue
            if gi_id not in seen:
                seen.add(gi_id)
                yield Gpu(handle, _instance(parent.device, gi_id, profile), MIG_CALLS)

    def _read(self, gpu: Gpu, now_ns: int) -> list[Sample] | None:
        """The samples of one GPU; None where it is gone."""
        samples: list[Sample] = []
        attributes = gpu.device.device_labels()
        for call in gpu.calls:
            try:
                reading = call.read(self._nvml, gpu.handle)
            except self._nvml.NVMLError as error:
                if error.value in self._lost_codes:
                    self._on_error(call.name, _name(error))
                    return None
                if error.value not in self._absent_codes:
                    self._on_error(call.name, _name(error))
                continue
            samples.extend(self._samples(gpu, attributes, reading, now_ns))
        return samples

    def _samples(self, gpu: Gpu, attributes: Labels, reading: Reading, now_ns: int) -> Iterator[Sample]:
        for metric, value in reading:
            start_ns = self._start_ns(gpu, metric, value, now_ns) if metric.kind is Kind.COUNTER else 0
            yield Sample(metric, attributes, now_ns, value, start_ns)

    def _start_ns(self, gpu: Gpu, metric: Metric, value: float, now_ns: int) -> int:
        """Since when a counter runs: since boot, or since it was seen to fall, as it does when the driver reloads."""
        counters = self._counters.setdefault((gpu.device.uuid, gpu.device.gi_id), {})
        before, start_ns = counters.get(metric, (0, min(self._boot_ns, now_ns)))
        if value < before:
            start_ns = now_ns
        counters[metric] = (value, start_ns)
        return start_ns


def _instance(parent: Device, gi_id: str, profile: str) -> Device:
    return Device(
        parent.hostname,
        parent.uuid,
        parent.gpu,
        parent.pci_bus_id,
        parent.device,
        parent.model_name,
        gi_id,
        profile,
    )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _name(error: Any) -> str:
    return type(error).__name__.removeprefix("NVMLError_")
