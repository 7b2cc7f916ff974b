"""Waits until this process has a CUDA context, then starts the probe; used with `KERNELCAST_PROBE=1`.

`preload/door.py` calls `arm` when the interpreter starts. Until there is a context there is no socket, and no thread
either if a library reports its context: pip, compile workers and data-loader children inherit the variable and never
use a GPU.

* CuPy compiles nothing before it has a context, so its first compiled module shows that there is one.
* PyTorch calls registered functions (`torch.cuda._lazy_call`) when it initialises CUDA.
* JAX, TensorFlow, Numba and others do not report it: once one is imported, a thread queries the driver, at most once a
  second. On a machine without a driver the thread ends after the first query.

A program that uses CUDA without any of them calls `kernelcast.probe.start()` itself.
"""

from __future__ import annotations

import os
from types import ModuleType

from kernelcast.probe import TYPE_CHECKING
from kernelcast.probe.process.imports import ImportWatch

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from typing import Any, Final

CUPY: Final = "cupy.cuda.compiler"
TORCH: Final = "torch"
# Libraries that do not report their context.
WITHOUT_A_SIGN: Final = (
    "jaxlib",
    "tensorflow",
    "numba.cuda",
    "pycuda.driver",
    "cuda.bindings.driver",
    "cuda.cuda",
    "warp",
)
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 1.0


class Dormant:
    """Waits for a CUDA context, and calls `begin` once. Any thread may call its methods.

    Args:
        begin: Starts the probe.
        contexts: Returns the devices on which this process has a context.
        driver_exists: Returns whether CUDA's driver can be loaded at all.
    """

    def __init__(
        self,
        begin: Callable[[], object],
        contexts: Callable[[], tuple[int, ...]],
        driver_exists: Callable[[], bool] = lambda: True,
    ) -> None:
        self._begin = begin
        self._contexts = contexts
        self._driver_exists = driver_exists
        self._ended = False
        self._thread: threading.Thread | None = None
        names = dict.fromkeys(WITHOUT_A_SIGN, self._poll_driver)
        self._watch = ImportWatch({**names, CUPY: self._watch_cupy, TORCH: self._watch_torch})
        self._compiler: Any = None

    @property
    def asking(self) -> bool:
        """Whether a thread queries the driver."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start waiting."""
        self._watch.start()

    def stop(self) -> None:
        """Stop waiting."""
        self._ended = True
        self._watch.stop()
        if self._compiler is not None and isinstance(self._compiler.function, Doorbell):
            self._compiler.function = self._compiler.function.kernelcast_real

    def wake(self) -> None:
        """Start the probe once, because there is a context; no error of it reaches the program."""
        if self._ended:
            return
        _guarded(self.stop)
        _guarded(self._begin)

    def _watch_cupy(self, compiler: Any) -> None:
        self._compiler = compiler
        compiler.function = Doorbell(compiler.function, compiler, self.wake)

    def _watch_torch(self, torch: Any) -> None:
        lazily = getattr(getattr(torch, "cuda", None), "_lazy_call", None)
        if lazily is None:
            self._poll_driver()
        else:
            lazily(self._torch_initialises)

    def _torch_initialises(self) -> None:
        """Handle PyTorch's call within `torch.cuda.init`, where an exception would reach the program."""
        _guarded(self._poll_driver)

    def _poll_driver(self, _module: ModuleType | None = None) -> None:
        if self.asking or self._ended:
            return
        import threading  # noqa: PLC0415  an interpreter that imports no such framework does without

        self._thread = threading.Thread(target=self._ask, name="kernelcast-dormant", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        from time import sleep  # noqa: PLC0415  likewise

        pause_seconds, first = FIRST_PAUSE_SECONDS, True
        while not self._ended:
            sleep(pause_seconds)
            if self._contexts():
                self.wake()
            elif first and not self._driver_exists():
                return
            first = False
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


class Doorbell(ModuleType):
    """Replaces the attribute `function` of CuPy's compiler until CuPy makes its first module, and so has a context.

    Args:
        real: The replaced module, `cupy.cuda.function`.
        compiler: `cupy.cuda.compiler`.
        ring: Called before the first `Module` is made; the probe that it starts may replace the attribute again.
    """

    def __init__(self, real: Any, compiler: Any, ring: Callable[[], None]) -> None:
        super().__init__(real.__name__, real.__doc__)
        self.kernelcast_real = real
        self._compiler = compiler
        self._ring = ring

    def __getattr__(self, name: str) -> Any:
        if name == "Module":
            self._ring()
            if self._compiler.function is not self:
                return self._compiler.function.Module
        return getattr(self.kernelcast_real, name)


class _Armed:
    """Holds the `Dormant` of this process, if there is one, so that the functions need no `global`."""

    def __init__(self) -> None:
        self.dormant: Dormant | None = None


_armed = _Armed()


def arm(begin: Callable[[], object], environ: Mapping[str, str] = os.environ) -> None:
    """Wait for this process's CUDA context, then call `begin`; a second call has no effect."""
    if _armed.dormant is None:
        _armed.dormant = Dormant(begin, _contexts, lambda: _driver_exists(environ))
        _armed.dormant.start()


def disarm() -> None:
    """Stop waiting, because the program has started its probe itself."""
    if _armed.dormant is not None:
        _armed.dormant.stop()


def _warn(error: Exception) -> None:
    from logging import getLogger  # noqa: PLC0415  importing it takes most of an interpreter's start

    getLogger("kernelcast.probe").warning("kernelcast probe did not start: %r; the program runs on", error)


def _contexts() -> tuple[int, ...]:
    from kernelcast.probe.process.driver import active_devices  # noqa: PLC0415  likewise

    return active_devices()


def _driver_exists(environ: Mapping[str, str]) -> bool:
    from kernelcast.probe.process.driver import may_be_loaded  # noqa: PLC0415  likewise

    return may_be_loaded(environ)


def _guarded(work: Callable[[], object]) -> None:
    """Call our code within a call of the program; an exception of it is caught, and the program's call continues."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  the program goes on without a probe
        try:  # noqa: SIM105  contextlib would have to be imported
            _warn(error)
        except Exception:  # noqa: BLE001, S110  nor may the program's own logging
            pass


def script_name(arguments: list[str]) -> str | None:
    """Default name of a program: its script's or module's."""
    directory, _, file = (arguments[0] if arguments else "").rpartition("/")
    name = directory.rpartition("/")[2] if file == "__main__.py" else file.removesuffix(".py")
    return name if name not in {"", "-c", "-m"} else None
