"""The library that a program imports to be measured and tuned. Standard library only.

Its names are imported at first use, so an interpreter that only checks whether to start the probe pays nothing.

::

    from kernelcast import probe

    probe.start("training")
    block = probe.tunable("block_size", [64, 128, 256], 128, kind="block_size", kernels=["stencil"])
    for batch in batches:
        with probe.region("forward"):
            launch(stencil, block=block.value)
        probe.step()
"""

from __future__ import annotations

TYPE_CHECKING = False
"""True for type checkers only; importing `typing` would take most of an interpreter's start."""

if TYPE_CHECKING:
    from typing import Any, Final

    from kernelcast.probe.activation.current import copy, count, data, observe, space, start, step, stop, sync, tunable
    from kernelcast.probe.adapters.cupy_kernels import cupy_kernel
    from kernelcast.probe.adapters.jax_functions import jax_static
    from kernelcast.probe.adapters.plain import keywords
    from kernelcast.probe.adapters.torch_training import TorchBuckets, TorchLoader, TorchMemoryFormat, torch_compiled
    from kernelcast.probe.adapters.triton_kernels import triton_autotune
    from kernelcast.probe.probe import Probe
    from kernelcast.probe.recording.regions import region
    from kernelcast.probe.tunables import Tunable
    from kernelcast.probe.tuned.checks import close, finite
    from kernelcast.probe.tuned.space import ProgramSpace
    from kernelcast.wire.frames import DeviceClaim

__all__ = [
    "DeviceClaim",
    "Probe",
    "ProgramSpace",
    "TorchBuckets",
    "TorchLoader",
    "TorchMemoryFormat",
    "Tunable",
    "close",
    "copy",
    "count",
    "cupy_kernel",
    "data",
    "finite",
    "jax_static",
    "keywords",
    "observe",
    "region",
    "space",
    "start",
    "step",
    "stop",
    "sync",
    "torch_compiled",
    "triton_autotune",
    "tunable",
]

_HOMES: Final = {
    "DeviceClaim": "kernelcast.wire.frames",
    "Probe": "kernelcast.probe.probe",
    "ProgramSpace": "kernelcast.probe.tuned.space",
    "Tunable": "kernelcast.probe.tunables",
    "close": "kernelcast.probe.tuned.checks",
    "finite": "kernelcast.probe.tuned.checks",
    "region": "kernelcast.probe.recording.regions",
    "TorchBuckets": "kernelcast.probe.adapters.torch_training",
    "TorchLoader": "kernelcast.probe.adapters.torch_training",
    "TorchMemoryFormat": "kernelcast.probe.adapters.torch_training",
    "cupy_kernel": "kernelcast.probe.adapters.cupy_kernels",
    "jax_static": "kernelcast.probe.adapters.jax_functions",
    "keywords": "kernelcast.probe.adapters.plain",
    "torch_compiled": "kernelcast.probe.adapters.torch_training",
    "triton_autotune": "kernelcast.probe.adapters.triton_kernels",
}
_CURRENT: Final = "kernelcast.probe.activation.current"


if not TYPE_CHECKING:  # a type checker that saw this function would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415  an interpreter's start pays for this module

        found = getattr(import_module(_HOMES.get(name, _CURRENT)), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
