"""Waits for the device around trial calls, through the libraries that the program has loaded; imports none itself."""

import sys
from itertools import islice
from types import MethodType
from typing import Any, Final

MAX_ARGUMENTS: Final = 1024
"""Arguments of a call, and values in them, whose devices are looked at."""


def wait(result: Any = None) -> None:
    """Wait until the current streams of CuPy and PyTorch have finished, and until JAX has computed a result."""
    cupy, torch = _used()
    jax = sys.modules.get("jax")
    if jax is not None and result is not None and hasattr(jax, "block_until_ready"):
        jax.block_until_ready(result)
    if cupy is not None:
        cupy.cuda.get_current_stream().synchronize()
    if torch is not None:
        torch.cuda.current_stream().synchronize()


def capturing() -> bool:
    """Whether the program captures a CUDA graph, which a wait would break."""
    cupy, torch = _used()
    if torch is not None and torch.cuda.is_current_stream_capturing():
        return True
    if cupy is None:
        return False
    stream = cupy.cuda.get_current_stream()
    return bool(cupy.cuda.runtime.streamIsCapturing(stream.ptr))


def devices_of(*arguments: Any, **named: Any) -> frozenset[str]:
    """The devices for which a call is compiled: those of its arrays, and the current ones of CuPy and PyTorch."""
    cupy, torch = _used()
    found = {f"cupy {cupy.cuda.runtime.getDevice()}"} if cupy is not None else set()
    if torch is not None:
        found.add(f"torch {torch.cuda.current_device()}")
    left: list[Any] = [*arguments, *named.values()]
    for one in islice(left, MAX_ARGUMENTS):  # the list grows meanwhile
        if isinstance(one, list | tuple | dict):
            left += islice(one.values() if isinstance(one, dict) else one, MAX_ARGUMENTS)
        elif not isinstance(its := getattr(one, "sharding", None) or getattr(one, "device", ""), MethodType):
            found.add(str(its))
    return frozenset(found)


def _used() -> tuple[Any, Any]:
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if torch is not None and not (hasattr(torch, "cuda") and torch.cuda.is_initialized()):
        torch = None
    if cupy is not None and not hasattr(cupy, "cuda"):
        cupy = None
    return cupy, torch
