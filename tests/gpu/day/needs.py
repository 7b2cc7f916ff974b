"""Requirements of steps: a GPU, CUPTI, a Python package, a command."""

import ctypes
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable

from kernelcast.probe.cupti.library import candidates

NO_GPU = "no NVIDIA GPU: "


def missing(needs: Iterable[str]) -> str:
    """Return why the first requirement that is missing is missing; empty if all are met.

    Args:
        needs: `gpu`, `cupti`, `module:NAME`, `command:NAME`.
    """
    for need in needs:
        kind, _, name = need.partition(":")
        reason = _KINDS[kind](name)
        if reason:
            return reason
    return ""


def gpu(_name: str = "") -> str:
    """Return why CUDA's driver finds no GPU; empty if it finds one. Makes no context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return f"{NO_GPU}there is no libcuda.so.1, which the driver brings"
    error = driver.cuInit(0)
    if error:
        return f"{NO_GPU}cuInit answered {error}"
    count = ctypes.c_int(0)
    error = driver.cuDeviceGetCount(ctypes.byref(count))
    return f"{NO_GPU}the driver counts {count.value} (answer {error})" if error or not count.value else ""


def _cupti(_name: str) -> str:
    return "" if candidates(os.environ) else "no libcupti was found: pip install nvidia-cuda-cupti"


def _module(name: str) -> str:
    return "" if importlib.util.find_spec(name) else f"the Python package {name} is not installed"


def _command(name: str) -> str:
    return "" if shutil.which(name) else f"the command {name} is not on PATH"


_KINDS: dict[str, Callable[[str], str]] = {"gpu": gpu, "cupti": _cupti, "module": _module, "command": _command}


if __name__ == "__main__":  # in a process of its own: a driver that hangs or crashes ends this process only
    sys.stdout.write(gpu())
