"""A device's compute capability, of the driver that the process has loaded.

Source: CUDA Driver API, cuDeviceGetAttribute; CUdevice_attribute 75 and 76 in cuda.h.
"""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from kernelcast.probe.process.driver import Load, loaded_driver

MAJOR: Final = 75
MINOR: Final = 76
UNKNOWN: Final = (0, 0)


def capabilities(load: Load = loaded_driver) -> Callable[[int], tuple[int, int]]:
    """A function from a device's number to its capability; (0, 0) where the driver does not say.

    Args:
        load: Gives the driver library.
    """

    @lru_cache(maxsize=64)
    def capability(device: int) -> tuple[int, int]:
        try:
            driver = load()
            return _attribute(driver, MAJOR, device), _attribute(driver, MINOR, device)
        except (OSError, AttributeError, LookupError):
            return UNKNOWN

    return capability


def _attribute(driver: Any, attribute: int, device: int) -> int:
    value = ctypes.c_int(0)
    if driver.cuDeviceGetAttribute(ctypes.byref(value), ctypes.c_int(attribute), ctypes.c_int(device)) != 0:
        raise LookupError(attribute)
    return value.value
