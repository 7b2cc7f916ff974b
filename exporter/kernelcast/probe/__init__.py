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

    from kernelcast.probe.activation.current import copy, count, observe, start, step, stop, sync, tunable
    from kernelcast.probe.probe import Probe
    from kernelcast.probe.recording.regions import region
    from kernelcast.probe.tunables import Agreement, Tunable
    from kernelcast.wire.frames import DeviceClaim

__all__ = [
    "Agreement",
    "DeviceClaim",
    "Probe",
    "Tunable",
    "copy",
    "count",
    "observe",
    "region",
    "start",
    "step",
    "stop",
    "sync",
    "tunable",
]

_HOMES: Final = {
    "Agreement": "kernelcast.probe.tunables",
    "DeviceClaim": "kernelcast.wire.frames",
    "Probe": "kernelcast.probe.probe",
    "Tunable": "kernelcast.probe.tunables",
    "region": "kernelcast.probe.recording.regions",
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
