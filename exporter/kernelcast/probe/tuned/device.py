"""Waits for the device around trial calls, through the libraries that the program has loaded; imports none itself."""

import sys
from typing import Any


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


def _used() -> tuple[Any, Any]:
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if torch is not None and not (hasattr(torch, "cuda") and torch.cuda.is_initialized()):
        torch = None
    if cupy is not None and not hasattr(cupy, "cuda"):
        cupy = None
    return cupy, torch
