"""Checks of the NVIDIA driver: NVML, profiling rows through GPM on these GPUs, and the right to trace kernels."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kernelcast.cli.doctor.finding import CheckResult, fail, ok, warn

DRIVER_PARAMETERS: Final = Path("/proc/driver/nvidia/params")
DRIVER_VERSION: Final = Path("/proc/driver/nvidia/version")
_NO_GPU: Final = "without a GPU, use `kernelcast replay`, `simulate` or `demo`"


def check_gpu(
    load: Callable[[str], ModuleType] = import_module, driver: Path = DRIVER_VERSION
) -> Iterator[CheckResult]:
    """Whether NVML works, and for each GPU whether GPM gives profiling rows."""
    try:
        nvml: Any = load("pynvml")
    except ModuleNotFoundError:
        yield warn("nvml", "pynvml is not installed", "pip install 'kernelcast[exporter]' to read GPUs")
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if driver.exists():
            yield fail("nvml", f"a driver is loaded, yet {error}", "install libnvidia-ml of the driver's version")
        else:
            yield warn("nvml", f"{error}", f"install the NVIDIA driver; {_NO_GPU}")
        return
    try:
        yield from _check_devices(nvml)
    except nvml.NVMLError as error:
        yield fail("nvml", f"{error}", "look at `nvidia-smi` and the kernel's log (Xid)")
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def check_cupti(
    load: Callable[[str], ModuleType] = import_module, parameters: Path = DRIVER_PARAMETERS
) -> Iterator[CheckResult]:
    """Whether the probe can use CUPTI: its own decoder, NVIDIA's library, and the right to performance counters."""
    try:
        native: Any = load("kernelcast.probe.cupti.native")
        library: Any = load("kernelcast.probe.cupti.library")
    except ImportError as error:
        yield warn("cupti", f"this installation has no probe: {error}", "install kernelcast again")
    else:
        yield _check_decoder(native)
        yield _check_library(library)
    try:
        text = parameters.read_text()
    except OSError:
        return
    if "RmProfilingAdminOnly: 1" in text:
        yield warn(
            "gpu counters",
            "only root may use them (RmProfilingAdminOnly: 1)",
            "activity tracing works all the same; for counters set the nvidia module's option "
            "NVreg_RestrictProfilingToAdminUsers=0 and reload it",
        )
    else:
        yield ok("gpu counters", "every user may use them")


def _check_decoder(native: Any) -> CheckResult:
    """The C library that adds records up."""
    try:
        native.ActivityDecoder()
    except native.NativeError as error:
        remedy = "install a C compiler, then kernelcast again from source; until then the probe times with events"
        return warn("cupti decoder", f"{error}", remedy)
    return ok("cupti decoder", "built")


def _check_library(library: Any) -> CheckResult:
    """NVIDIA's library, as a program with the probe would find it from here."""
    try:
        found = library.open_cupti()
    except library.CuptiError as error:
        return warn("cupti", f"{error}", "the probe times with events until it is there")
    return ok("cupti", f"version {found.version}; programs use it with KERNELCAST_CUPTI=1")


def _check_devices(nvml: Any) -> Iterator[CheckResult]:
    count = nvml.nvmlDeviceGetCount()
    version = nvml.nvmlSystemGetDriverVersion()
    if count == 0:
        yield warn("nvml", f"driver {version}, no GPU", f"look at `nvidia-smi`; {_NO_GPU}")
        return
    yield ok("nvml", f"driver {version}, {count} GPU{'s' if count > 1 else ''}")
    for index in range(count):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(handle)
        if _supports_gpm(nvml, handle):
            yield ok(f"gpm gpu {index}", f"{name}: profiling rows available")
        else:
            yield warn(f"gpm gpu {index}", f"{name}: no GPM", "profiling rows stay absent; they need Hopper or later")


def _supports_gpm(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except (nvml.NVMLError, AttributeError):
        return False
