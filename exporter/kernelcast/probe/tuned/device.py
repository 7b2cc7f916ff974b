"""Waits for the devices of trial calls, through the libraries that the program has loaded; imports none itself."""

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from types import MethodType
from typing import Any, Final

# Values of a call whose devices are looked at.
MAX_VALUES: Final = 1024


def wait(arguments: Any) -> Callable[[Any], None]:
    """Wait until the current streams of CuPy and PyTorch have finished: of the current device and those of arguments.

    The devices are read here, outside the call's time.

    Returns:
        A function that does the same after the call, and waits until JAX has computed the result.
    """
    cupy, torch = _used()
    arrays: Any = getattr(cupy, "ndarray", ())
    tensors: Any = getattr(torch, "Tensor", ())
    values = list(_values(arguments))
    # By number: CuPy's devices cannot be hashed.
    of_cupy = {one.device.id: one.device for one in values if isinstance(one, arrays)}
    cupy_devices = [one for number, one in of_cupy.items() if number != cupy.cuda.runtime.getDevice()]
    of_torch = {one.device.index: one.device for one in values if isinstance(one, tensors) and one.is_cuda}
    torch_devices = [one for number, one in of_torch.items() if number != torch.cuda.current_device()]

    def wait_again(result: Any) -> None:
        cupy, torch = _used()
        jax = sys.modules.get("jax")
        if jax is not None and result is not None and hasattr(jax, "block_until_ready"):
            jax.block_until_ready(result)
        if cupy is not None:
            cupy.cuda.get_current_stream().synchronize()
            for device in cupy_devices:
                with device:
                    cupy.cuda.get_current_stream().synchronize()
        if torch is not None:
            torch.cuda.current_stream().synchronize()
            for device in torch_devices:
                torch.cuda.current_stream(device).synchronize()

    wait_again(None)
    return wait_again


def capturing() -> bool:
    """Whether the program captures a CUDA graph, which a wait would break."""
    cupy, torch = _used()
    if torch is not None and torch.cuda.is_current_stream_capturing():
        return True
    if cupy is None:
        return False
    stream = cupy.cuda.get_current_stream()
    return bool(cupy.cuda.runtime.streamIsCapturing(stream.ptr))


def devices_of(arguments: Any) -> frozenset[str]:
    """The devices for which a call is compiled: those of its arrays, and the current ones of CuPy and PyTorch."""
    cupy, torch = _used()
    found = {f"cupy {cupy.cuda.runtime.getDevice()}"} if cupy is not None else set()
    if torch is not None:
        found.add(f"torch {torch.cuda.current_device()}")
    values = (getattr(one, "sharding", None) or getattr(one, "device", "") for one in _values(arguments))
    return frozenset(found.union(str(one) for one in values if not isinstance(one, MethodType)))


def _values(arguments: Any) -> Iterator[Any]:
    """The values in arguments, at most `MAX_VALUES`."""
    left = [arguments]
    for one in islice(left, MAX_VALUES):  # the list grows meanwhile
        if isinstance(one, list | tuple | dict):
            left += islice(one.values() if isinstance(one, dict) else one, MAX_VALUES)
        else:
            yield one


def _used() -> tuple[Any, Any]:
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if torch is not None and not (hasattr(torch, "cuda") and torch.cuda.is_initialized()):
        torch = None
    if cupy is not None and not hasattr(cupy, "cuda"):
        cupy = None
    return cupy, torch
