"""Dependencies of `MethodSelection`: the methods, and facts about the process. Tests pass doubles."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from time import monotonic_ns
from typing import Any, Protocol

from kernelcast.probe.cupy.method import CupyMethod
from kernelcast.probe.methods.budget import Budget
from kernelcast.probe.process.driver import active_devices, may_be_loaded
from kernelcast.probe.process.mappings import mapped_libraries
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.regions import RegionTable, table


class CuptiMethod(Protocol):
    """CUPTI's activity records, as `kernelcast.probe.cupti` offers them; it yields to other profilers by itself."""

    state: str
    reason: str

    @property
    def cost(self) -> tuple[float, ...]:
        """Step time with measuring over step time without: lower bound, estimate, upper bound; empty if unknown."""

    def switch(self) -> float:
        """Begin or end a window if it is time; returns the seconds until the next one begins or ends."""

    def start(self) -> bool:
        """Begin if CUPTI is present, allowed and not in use by another profiler."""

    def tick(self) -> None:
        """Report new records to the recorder."""

    def stop(self, reason: str) -> None:
        """Release CUPTI."""

    def forked(self) -> None:
        """Drop the reference without a CUPTI call."""


def open_cupti(recorder: Recorder) -> CuptiMethod:
    """Open CUPTI's activity records.

    Raises:
        ImportError: It is not installed.
    """
    method_used: CuptiMethod = importlib.import_module("kernelcast.probe.cupti").ActivityMethod(recorder)
    return method_used


@cache
def _may_have_gpu() -> bool:
    return may_be_loaded(os.environ)


def _nothing() -> None:
    """The default for `each_poll`: does nothing."""


@dataclass(frozen=True, slots=True)
class MethodEnvironment:
    """Dependencies of the method selection.

    Attributes:
        environ: The environment.
        clock: Monotonic nanoseconds.
        contexts: Devices on which this process has a CUDA context.
        libraries: File names of the libraries in this process.
        modules: The imported modules.
        cupti: Makes the CUPTI method.
        cupy: Makes CuPy's method.
        budget: Judges the cost.
        regions: The program's regions.
        may_have_gpu: Whether this process may use a GPU later.
        each_poll: Called at each poll.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], int] = monotonic_ns
    contexts: Callable[[], tuple[int, ...]] = active_devices
    libraries: Callable[[], frozenset[str]] = mapped_libraries
    modules: Mapping[str, Any] = field(default_factory=lambda: sys.modules)
    cupti: Callable[[Recorder], CuptiMethod] = open_cupti
    cupy: Callable[[Recorder], CupyMethod] = CupyMethod
    budget: Budget = field(default_factory=Budget)
    regions: RegionTable = table
    may_have_gpu: Callable[[], bool] = _may_have_gpu
    each_poll: Callable[[], None] = _nothing
