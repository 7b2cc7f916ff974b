"""Detects other profilers that use CUPTI: it has one set of callbacks, and the user's trace comes before ours."""

# Before CUDA 13.3 with driver r610 CUPTI serves one client, and later only clients of its second interface side by
# side (NVIDIA's guide to CUPTI, "Initialization"). The client that registers callbacks last gets all buffers, and a
# client that disables a kind disables it for all. So we check for a profiler before we start. To learn of one that
# Python starts later, the functions that start PyTorch's, JAX's, TensorFlow's and Triton's profilers are wrapped in
# modules that are loaded. If a profiler is found running without such a call, the kinds stay enabled, because it uses
# them, too.

import sys
import threading
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any, Final, NamedTuple

from kernelcast.probe.process.mappings import mapped_libraries
from kernelcast.probe.process.profilers import injected, running


class Profiler(NamedTuple):
    """A profiler that Python starts.

    Attributes:
        name: Its name.
        modules: Modules through which its functions are called.
        starts: Functions that start using CUPTI.
        stops: Functions that release CUPTI.
    """

    name: str
    modules: tuple[str, ...]
    starts: tuple[str, ...]
    stops: tuple[str, ...]


PROFILERS: Final = (
    Profiler(
        "PyTorch's profiler",
        ("torch.autograd.profiler",),
        ("_prepare_profiler", "_enable_profiler"),
        ("_disable_profiler",),
    ),
    Profiler(
        "JAX's profiler",
        ("jax._src.profiler", "jax.profiler"),
        ("start_trace", "start_server"),
        ("stop_trace", "stop_and_get_fdo_profile", "stop_server"),
    ),
    Profiler("TensorFlow's profiler", ("tensorflow.python.profiler.profiler_v2",), ("start", "warmup"), ("stop",)),
    Profiler("Triton's Proton", ("triton.profiler.profile", "triton.profiler"), ("start",), ("finalize",)),
)

PREPARING: Final = frozenset({"_prepare_profiler", "warmup"})
"""Start functions after which another one begins to record."""

Modules = Mapping[str, ModuleType]


class ProfilerWatch:
    """Detects whether another profiler uses CUPTI; safe for several threads, because profilers start on any thread.

    Args:
        environ: The environment.
        modules: The loaded modules.
        libraries: Returns the file names of the libraries in this process.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        modules: Modules = sys.modules,
        libraries: Callable[[], frozenset[str]] = mapped_libraries,
    ) -> None:
        self._environ = environ
        self._modules = modules
        self._libraries = libraries
        self._lock = threading.RLock()
        self._wrapped: list[tuple[ModuleType, str, Any]] = []
        self._begun: set[str] = set()
        # Those of them that record: a further start that fails ends nothing.
        self._recording: set[str] = set()
        self._announce: Callable[[str], None] | None = None

    def injected(self) -> str:
        """Name of a tool that was loaded with the process and stays; empty without one."""
        return injected(self._environ, self._libraries())

    def running(self) -> str:
        """Name of a running profiler that Python started; empty without one."""
        with self._lock:
            begun = next(iter(self._begun), "")
        return begun or running(self._modules)

    def on_start(self, announce: Callable[[str], None]) -> None:
        """Call `announce` before a profiler in a loaded module starts; repeat this after more modules were loaded."""
        self._announce = announce
        for profiler in PROFILERS:
            for module in filter(None, map(self._modules.get, profiler.modules)):
                self._wrap_all(module, profiler)

    def release(self) -> None:
        """Restore every function that is still our wrapper."""
        self._announce = None
        while self._wrapped:
            module, name, original = self._wrapped.pop()
            if getattr(getattr(module, name, None), "__wrapped__", None) is original:
                setattr(module, name, original)

    def _wrap_all(self, module: ModuleType, profiler: Profiler) -> None:
        for name in profiler.starts:
            self._wrap(module, name, profiler.name, starts=True)
        for name in profiler.stops:
            self._wrap(module, name, profiler.name, starts=False)

    def _wrap(self, module: ModuleType, name: str, profiler: str, *, starts: bool) -> None:
        original = getattr(module, name, None)
        if original is None or hasattr(original, "__kernelcast__"):
            return

        @wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if not starts:
                try:
                    return original(*arguments, **named)
                finally:
                    self._ends(profiler)
            self._begins(profiler)
            try:
                result = original(*arguments, **named)
            except BaseException:
                if profiler not in self._recording:
                    self._ends(profiler)
                raise
            if name not in PREPARING:
                self._recording.add(profiler)
            return result

        wrapper.__kernelcast__ = True  # type: ignore[attr-defined]
        setattr(module, name, wrapper)
        self._wrapped.append((module, name, original))

    def _begins(self, name: str) -> None:
        with self._lock:
            self._begun.add(f"{name} runs")
        announce = self._announce
        if announce is not None:
            announce(f"{name} runs")

    def _ends(self, name: str) -> None:
        with self._lock:
            self._recording.discard(name)
            self._begun.discard(f"{name} runs")
