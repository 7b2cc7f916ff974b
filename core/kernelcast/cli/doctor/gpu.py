"""Checks of the NVIDIA driver: NVML, profiling rows through GPM on these GPUs, and the right to trace kernels."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kernelcast.cli.doctor.limit import SECONDS
from kernelcast.cli.doctor.result import CheckResult, fail, ok, warn

DRIVER_PARAMETERS: Final = Path("/proc/driver/nvidia/params")
DRIVER_VERSION: Final = Path("/proc/driver/nvidia/version")
OPEN_CUPTI: Final = """
import sys
from kernelcast.probe.cupti.library import CuptiError, open_cupti
try:
    print(open_cupti().version)
except CuptiError as error:
    sys.exit(str(error))
"""
"""Prints the version of the library that a program with the probe would find from here."""
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


def ask_cupti() -> "subprocess.CompletedProcess[str]":
    """Open NVIDIA's library in a child process, which it may end: that of 13.2 does so without a driver.

    Raises:
        subprocess.TimeoutExpired: It hangs.
    """
    command = [sys.executable, "-c", OPEN_CUPTI]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def check_cupti(
    load: Callable[[str], ModuleType] = import_module,
    parameters: Path = DRIVER_PARAMETERS,
    ask: Callable[[], "subprocess.CompletedProcess[str]"] = ask_cupti,
) -> Iterator[CheckResult]:
    """Whether the probe can use CUPTI: its own decoder, NVIDIA's library, and the right to performance counters."""
    try:
        native: Any = load("kernelcast.probe.cupti.native")
        library: Any = load("kernelcast.probe.cupti.library")
    except ImportError as error:
        yield warn("cupti", f"this installation has no probe: {error}", "install kernelcast again")
    else:
        yield _check_decoder(native)
        yield _check_library(library, ask, has_driver=parameters.exists())
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


def _check_library(
    library: Any, ask: Callable[[], "subprocess.CompletedProcess[str]"], *, has_driver: bool
) -> CheckResult:
    """NVIDIA's library, as a program with the probe would find it from here."""
    try:
        answer = ask()
    except subprocess.TimeoutExpired:
        return _broken(library, f"did not give its version within {SECONDS:g} s", has_driver=has_driver)
    if answer.returncode < 0:
        ended = f"ended the process that asked its version ({signal.Signals(-answer.returncode).name})"
        return _broken(library, ended, has_driver=has_driver)
    if answer.returncode:
        error = (answer.stderr.splitlines() or ["it could not be opened"])[-1]
        return warn("cupti", error, "the probe times with events until it is there")
    return ok("cupti", f"version {answer.stdout.strip()}; programs use it with KERNELCAST_CUPTI=1")


def _broken(library: Any, found: str, *, has_driver: bool) -> CheckResult:
    """A library that would do the same to a program."""
    paths = ", ".join(map(str, library.candidates(os.environ)))
    if has_driver:
        return fail("cupti", f"{paths} {found}", "leave KERNELCAST_CUPTI unset here; install kernelcast[cupti] again")
    return ok("cupti", f"{paths} is there; whether it works shows only where there is a driver")


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
