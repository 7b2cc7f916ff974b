"""Waits until this process has a CUDA context or ends a step, then starts the probe; used with `KERNELCAST_PROBE=1`.

`preload/door.py` calls `wait_for_context` when the interpreter starts. Before there is either there is no socket,
and a thread only if a library does not report its context: pip, compile workers and data-loader children inherit the
variable, never use a GPU and train nothing.

* CuPy compiles nothing before it has a context, so its first compiled module shows that there is one.
* PyTorch calls registered functions (`torch.cuda._lazy_call`) when it initialises CUDA.
* JAX, TensorFlow, Numba and others do not report it. After one is imported, a thread queries the driver: after 0.1,
  0.3, 0.7 and 1.5 s, then once a second. Without a driver it ends after one query. A child that is forked while the
  thread runs has such a thread as well.

Steps are those of PyTorch, JAX and Keras (`marks`), and explicit ones. A program that has none, and uses CUDA without
any of these libraries, calls `kernelcast.probe.start()` itself.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import allocate_lock
from types import ModuleType

from kernelcast.probe import TYPE_CHECKING
from kernelcast.probe.marks.process import marks
from kernelcast.probe.process.imports import ImportWatch
from kernelcast.probe.switch import LAUNCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final

CUPY: Final = "cupy.cuda.compiler"
TORCH: Final = "torch"
# Libraries that do not report their context.
POLLED_LIBRARIES: Final = (
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


class ContextWaiter:
    """Waits for a CUDA context, and calls `start_probe` at most once. Any thread may call its methods.

    Args:
        start_probe: Starts the probe.
        contexts: Returns the devices on which this process has a context.
        driver_exists: Returns whether CUDA's driver can be loaded at all.
    """

    # Both locks are only tried, never waited for, and a forked child inherits their state.
    def __init__(
        self,
        start_probe: Callable[[], object],
        contexts: Callable[[], tuple[int, ...]],
        driver_exists: Callable[[], bool] = lambda: True,
    ) -> None:
        self._start_probe = start_probe
        self._contexts = contexts
        self._driver_exists = driver_exists
        # Locked for good by the first call that ends the waiting.
        self._ended = allocate_lock()
        # Locked while a thread queries the driver.
        self._polling = allocate_lock()
        self._follows_forks = False
        names = dict.fromkeys(POLLED_LIBRARIES, self._start_polling)
        self._watch = ImportWatch({**names, CUPY: self._watch_cupy, TORCH: self._watch_torch})
        self._compiler: Any = None

    @property
    def has_ended(self) -> bool:
        """Whether the waiting has ended: the probe was started, by the waiter or by the program."""
        return self._ended.locked()

    @property
    def is_polling(self) -> bool:
        """Whether a thread queries the driver."""
        return self._polling.locked()

    def start(self) -> None:
        """Start waiting."""
        self._watch.start()

    def stop(self) -> None:
        """Stop waiting; a second call has no effect."""
        self._ended.acquire(blocking=False)
        self._watch.stop()
        self._restore_cupy()

    def context_found(self) -> None:
        """Stop waiting and start the probe, unless the waiting has ended; no exception reaches the program.

        Called at a CUDA context, or at the end of a step.
        """
        if self._ended.acquire(blocking=False):
            _guarded(self.stop)
            _guarded(self._start_probe)

    def _watch_cupy(self, compiler: Any) -> None:
        self._compiler = compiler
        compiler.function = FirstModuleWatch(compiler.function, compiler, self.context_found)
        if self._ended.locked():  # another thread has called `stop` during the import, perhaps before the line above
            self._restore_cupy()

    def _restore_cupy(self) -> None:
        present = getattr(self._compiler, "function", None)
        if isinstance(present, FirstModuleWatch):
            self._compiler.function = present.kernelcast_real

    def _watch_torch(self, torch: Any) -> None:
        if self._ended.locked():
            return
        register = getattr(getattr(torch, "cuda", None), "_lazy_call", None)
        if register is None:
            self._start_polling()
        else:
            register(self._torch_initialises)

    def _torch_initialises(self) -> None:
        """Handle PyTorch's call within `torch.cuda.init`, where an exception would reach the program."""
        _guarded(self._start_polling)

    def _start_polling(self, _module: ModuleType | None = None) -> None:
        if self._ended.locked() or not self._polling.acquire(blocking=False):
            return
        try:
            # Slow to import; an interpreter that imports no such library never needs it.
            import threading  # noqa: PLC0415

            from kernelcast.probe.process.threads import start_without_signals  # noqa: PLC0415

            if not self._follows_forks:  # after the import: `threading` registers itself first, and so runs first
                os.register_at_fork(after_in_child=self._forked)
                self._follows_forks = True
            start_without_signals(threading.Thread(target=self._run, name="kernelcast-context", daemon=True))
        except BaseException:
            self._polling.release()
            raise

    def _forked(self) -> None:
        """Poll in a forked child as in its parent, whose thread does not survive the fork."""
        if self._polling.locked():
            self._polling = allocate_lock()
            _guarded(self._start_polling)

    def _run(self) -> None:
        _guarded(self._poll)
        self._polling.release()

    def _poll(self) -> None:
        from time import sleep  # noqa: PLC0415  only the thread needs it

        pause_seconds, first = FIRST_PAUSE_SECONDS, True
        while not self._ended.locked():
            sleep(pause_seconds)
            if self._contexts():
                self.context_found()
            elif first and not self._driver_exists():
                return
            first = False
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


class FirstModuleWatch(ModuleType):
    """Replaces the attribute `function` of CuPy's compiler until CuPy makes its first module, and so has a context.

    Args:
        real: The replaced module, `cupy.cuda.function`.
        compiler: `cupy.cuda.compiler`.
        on_first_module: Called before the first `Module` is made; the probe that it starts may replace the attribute
            again.
    """

    def __init__(self, real: Any, compiler: Any, on_first_module: Callable[[], None]) -> None:
        super().__init__(real.__name__, real.__doc__)
        self.kernelcast_real = real
        self._compiler = compiler
        self._on_first_module = on_first_module

    def __getattr__(self, name: str) -> Any:
        if name == "Module":
            self._on_first_module()
            if self._compiler.function is not self:
                return self._compiler.function.Module
        return getattr(self.kernelcast_real, name)


class _Process:
    """Holds the `ContextWaiter` of this process, if there is one, so that the functions need no `global`."""

    def __init__(self) -> None:
        self.waiter: ContextWaiter | None = None


_process = _Process()


def wait_for_context(start_probe: Callable[[], object], environ: Mapping[str, str] = os.environ) -> None:
    """Call `start_probe` once this process has a CUDA context or ends a step; a second call has no effect."""
    if _process.waiter is None:
        _process.waiter = ContextWaiter(start_probe, _contexts, lambda: _driver_exists(environ))
        _process.waiter.start()
        marks.watch(_process.waiter.context_found)
        pid = os.getpid()
        if environ.get(LAUNCH, "").partition("-")[0] == str(pid):  # the command has become this process
            atexit.register(lambda: _guarded(lambda: _explain_silence(environ, pid)))


def start_at_step() -> None:
    """Start the probe of a program that waits for it, because it ends a step."""
    if _process.waiter is not None:
        _process.waiter.context_found()


def stop_waiting() -> None:
    """Stop waiting, because the program has started its probe itself."""
    if _process.waiter is not None:
        _process.waiter.stop()


def _warn(error: Exception) -> None:
    from logging import getLogger  # noqa: PLC0415  importing it takes most of an interpreter's start

    getLogger("kernelcast.probe").warning("kernelcast probe did not start: %r; the program runs on", error)


def _contexts() -> tuple[int, ...]:
    from kernelcast.probe.process.driver import active_devices  # noqa: PLC0415  imports ctypes; only the thread needs it

    return active_devices()


def _driver_exists(environ: Mapping[str, str]) -> bool:
    from kernelcast.probe.process.driver import may_be_loaded  # noqa: PLC0415  as in `_contexts`

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


def _explain_silence(environ: Mapping[str, str], pid: int) -> None:
    """Write that no step was seen, at the end of a program that the command has started and nothing was measured in.

    A launcher of ranks measures nothing itself. It is known by its children, which have taken more processor time.
    After an unhandled error it imports nothing, as `UserMessages.finish` explains.
    """
    waiter, times = _process.waiter, os.times()
    is_launcher = times.children_user + times.children_system > times.user + times.system
    if waiter is None or waiter.has_ended or is_launcher or os.getpid() != pid or hasattr(sys, "last_type"):
        return
    from kernelcast.probe.terminal.messages import UserMessages  # noqa: PLC0415  the program has ended
    from kernelcast.probe.terminal.role import launch_role  # noqa: PLC0415  likewise

    UserMessages(lambda: launch_role(environ, sys.modules, ""), environ).explain_silence()
