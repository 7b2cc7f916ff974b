"""NVTX ranges as regions: ranges that a program marks for Nsight also name its launches here. Off by default.

CuPy's `nvtx.RangePush` and `RangePop` are functions of a module that users and CuPy's own `time_range` look up there;
PyTorch's are `torch.cuda.nvtx.range_push` and `range_pop`. Ranges that are started and ended by handle may overlap, so
they are no regions.
"""

from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kernelcast.probe.process.imports import ImportWatch
from kernelcast.probe.recording.regions import enter, leave_marked, table

CUPY: Final = "cupy.cuda.nvtx"
TORCH: Final = "torch.cuda.nvtx"
MARK: Final = "kernelcast_range"


def watch_nvtx() -> ImportWatch:
    """Make regions of the ranges of CuPy and PyTorch, now or at an import before the returned watch is stopped."""
    watch = ImportWatch({CUPY: _wrap_cupy, TORCH: _wrap_torch})
    watch.start()
    return watch


def _wrap_cupy(module: ModuleType) -> None:
    _wrap(module, ("RangePush", "RangePushC"), "RangePop")


def _wrap_torch(module: ModuleType) -> None:
    _wrap(module, ("range_push",), "range_pop")


def _wrap(module: Any, pushes: tuple[str, ...], pop: str) -> None:
    for name in (*pushes, pop):
        original = getattr(module, name, None)
        if original is not None and not hasattr(original, MARK):
            setattr(module, name, _leaving(original) if name == pop else _entering(original))


def _entering(push: Callable[..., Any]) -> Callable[..., Any]:
    def entering(message: Any, *arguments: Any, **named: Any) -> Any:
        with suppress(Exception):  # a message without a text is NVTX's matter, or the program's
            enter(table.totals(str(message)), marked=True)
        return push(message, *arguments, **named)

    setattr(entering, MARK, True)
    return entering


def _leaving(pop: Callable[..., Any]) -> Callable[..., Any]:
    def leaving(*arguments: Any, **named: Any) -> Any:
        with suppress(Exception):
            leave_marked()
        return pop(*arguments, **named)

    setattr(leaving, MARK, True)
    return leaving
