"""Which GPUs this process has, asked of the CUDA driver that is loaded in it already; nothing is loaded or initialised.

One way for CuPy, PyTorch, JAX and everything else: the driver library is opened only where it is already mapped
(RTLD_NOLOAD), and answers "not initialised" as long as the program has not begun to use it, so that a program that will
fork is not spoilt.
Source: CUDA Driver API, sections 6.2 (error codes) and 6.5 (device management).
"""

import ctypes
import os
import uuid
from collections.abc import Callable
from typing import Any, Final

from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import SIMULATED

LIBRARY: Final = "libcuda.so.1"
NAME_BYTES: Final = 128
CPU: Final = DeviceClaim(uuid="cpu", model_name="CPU")
UNKNOWN: Final = DeviceClaim(uuid="")

Load = Callable[[], Any]


def loaded_driver() -> Any:
    """The driver library, if this process has it.

    Raises:
        OSError: It has not.
    """
    return ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def claims(source: str, load: Load = loaded_driver) -> tuple[DeviceClaim, ...]:
    """The devices of this process, in CUDA's order, so that a device's number is its index.

    Args:
        source: `simulated` for a program without a GPU: it gets the pseudo device `cpu`.
        load: Gives the driver library.

    Returns:
        At least one; with an empty UUID where it cannot be known here, for the exporter to complete.
    """
    if source == SIMULATED:
        return (CPU,)
    try:
        return _ask(load()) or (UNKNOWN,)
    except (OSError, AttributeError):
        return (UNKNOWN,)


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


def _has_context(driver: Any, ordinal: int) -> bool:
    device, flags, active = ctypes.c_int(0), ctypes.c_uint(0), ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
        return False
    state = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return bool(state == 0 and active.value)


def _ask(driver: Any) -> tuple[DeviceClaim, ...]:
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
        found.append(DeviceClaim(f"{prefix}-{uuid.UUID(bytes=bytes(raw))}", str(ordinal), model))
    return tuple(found)
