"""Lists this process's GPUs through the CUDA driver that it has loaded already; loads and initialises nothing.

One way for CuPy, PyTorch, JAX and everything else: the driver library is opened only where it is already mapped
(RTLD_NOLOAD), and answers "not initialised" as long as the program has not begun to use it, so that a program that will
fork is not spoilt.
Source: CUDA Driver API, sections 6.2 (error codes) and 6.5 (device management).
"""

import contextlib
import ctypes
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernelcast.probe.process.mappings import MAPS, mapped_files
from kernelcast.wire import identity
from kernelcast.wire.frames import DeviceClaim

LIBRARY: Final = "libcuda.so.1"
NAME_BYTES: Final = 128
RELAXED: Final = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED."""
CPU: Final = DeviceClaim(uuid="cpu", model_name="CPU")
UNKNOWN: Final = DeviceClaim(uuid="")

Load = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class DriverPaths:
    """Paths that show that a machine has an NVIDIA driver.

    Attributes:
        devices: Device files: Linux, WSL 2, Tegra.
        cache: The dynamic linker's list of libraries.
        folders: Where the linker looks by default, and where NixOS keeps the driver.
    """

    devices: tuple[str, ...] = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu")
    cache: str = "/etc/ld.so.cache"
    folders: tuple[str, ...] = (
        "/lib64",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/compat",
    )


def loaded_driver() -> Any:
    """The driver library, if this process has it.

    Raises:
        OSError: It has not.
    """
    return ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def loaded_library(path: str) -> Any:
    """A library that this process has.

    Raises:
        OSError: It has not.
    """
    return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def claims(source: str, load: Load = loaded_driver, environ: Mapping[str, str] = os.environ) -> tuple[DeviceClaim, ...]:
    """The devices of this process, in CUDA's order: CUDA's number of a device is its index.

    Args:
        source: `cpu` for real work without a GPU, `simulated` for invented work: both get the pseudo device `cpu`.
        load: Gives the driver library.
        environ: The process's.

    Returns:
        At least one; with an empty UUID where it cannot be known here, for the exporter to complete.
    """
    if source in {identity.SIMULATED, identity.CPU}:
        return (CPU,)
    try:
        return _visible_devices(load(), _node_numbers(environ)) or (UNKNOWN,)
    except (OSError, AttributeError):
        return (UNKNOWN,)


def runtime_version(maps: Path = MAPS, load: Callable[[str], Any] = loaded_library) -> str:
    """Version of the CUDA runtime that this process has loaded, else of NVRTC, such as `12.4`; empty for neither.

    Only for a process that uses a GPU: before CUDA 12 the runtime's function initialises the driver.
    Source: CUDA Runtime API, section 6.27 (version management); NVRTC, section 3.2 (general information query).
    """
    for library, version_of in (("libcudart.so", _cudart_version), ("libnvrtc.so", _nvrtc_version)):
        for path in mapped_files(library, maps):
            with contextlib.suppress(OSError, AttributeError):  # such as a file that was replaced on disk
                if version := version_of(load(path)):
                    return version
    return ""


def _cudart_version(runtime: Any) -> str:
    number = ctypes.c_int()
    known = runtime.cudaRuntimeGetVersion(ctypes.byref(number)) == 0
    return f"{number.value // 1000}.{number.value % 1000 // 10}" if known else ""


def _nvrtc_version(nvrtc: Any) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    known = nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
    return f"{major.value}.{minor.value}" if known else ""


def active_devices(load: Load = loaded_driver) -> tuple[int, ...]:
    """The devices, by number, on which this process has a primary context; none is made.

    Source: CUDA Driver API, section 6.7 (cuDevicePrimaryCtxGetState).
    """
    try:
        driver = load()
        count = ctypes.c_int(0)
        if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return ()
        return tuple(ordinal for ordinal in range(count.value) if _has_context(driver, ordinal))
    except (OSError, AttributeError):
        return ()


def relax_capture(load: Load = loaded_driver) -> None:
    """Let this thread ask CUDA for events while another thread captures a graph, whose capture would break else.

    Source: CUDA Driver API, section 6.18 (cuThreadExchangeStreamCaptureMode).
    """
    with contextlib.suppress(OSError, AttributeError):
        load().cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(RELAXED)))


def may_be_loaded(
    environ: Mapping[str, str], places: DriverPaths = DriverPaths(), mapped: Callable[[], bool] | None = None
) -> bool:
    """Whether this process has the driver library or could load it; False only where nothing points to a driver.

    Loading it to find out would map it into a program that may not want it.

    Args:
        environ: The process's.
        places: Where to look.
        mapped: Whether the library is loaded already; passed in for tests.
    """
    if (mapped or _is_mapped)():
        return True
    folders = [*environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *places.folders]
    if any(folder and os.path.exists(os.path.join(folder, LIBRARY)) for folder in folders):  # noqa: PTH110, PTH118
        return True
    if any(map(os.path.exists, places.devices)):
        return True
    try:
        return LIBRARY.encode() in Path(places.cache).read_bytes()
    except OSError:
        return False


def _is_mapped() -> bool:
    try:
        return loaded_driver() is not None
    except OSError:
        return False


def _has_context(driver: Any, ordinal: int) -> bool:
    device, flags, active = ctypes.c_int(0), ctypes.c_uint(0), ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
        return False
    state = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return bool(state == 0 and active.value)


def _node_numbers(environ: Mapping[str, str]) -> Callable[[int], str]:
    """Return a function from CUDA's number of a device to the node's; empty where it is not known.

    Example: `CUDA_VISIBLE_DEVICES=2,GPU-5d83` makes the node's GPU 2 device 0; the number of device 1 is not known.
    Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str
    numbers = [one.strip() for one in visible.split(",")]
    known = {ordinal: one for ordinal, one in enumerate(numbers) if one.isdecimal()}
    return lambda ordinal: known.get(ordinal, "")


def _visible_devices(driver: Any, number_of: Callable[[int], str]) -> tuple[DeviceClaim, ...]:
    count = ctypes.c_int(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    found = []
    for ordinal in range(count.value):
        device = ctypes.c_int(0)
        raw = (ctypes.c_ubyte * 16)()
        name = ctypes.create_string_buffer(NAME_BYTES)
        if driver.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
            return ()
        by_uuid = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
        if by_uuid(ctypes.byref(raw), device) != 0 or driver.cuDeviceGetName(name, NAME_BYTES, device) != 0:
            return ()
        model = name.value.decode(errors="replace")
        prefix = "MIG" if " MIG " in model else "GPU"
        found.append(DeviceClaim(f"{prefix}-{uuid.UUID(bytes=bytes(raw))}", number_of(ordinal), model))
    return tuple(found)
