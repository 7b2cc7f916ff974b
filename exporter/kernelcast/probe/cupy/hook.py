"""CuPy's kernel launches: counted at every launch, timed at some."""

# CuPy has no hook for launches, but everything that it compiles (RawKernel, RawModule from source, elementwise and
# reduction kernels, ufuncs, fusion, jit) comes out of `cupy.cuda.compiler`, which makes a `function.Module()` through
# its module's attribute `function`. That attribute is replaced by an object with a subclass of `Module`, whose
# functions are of a subclass of `Function`. `cupy.cuda.function` itself is not changed, so CuPy's extension modules
# find the classes that they were compiled with. Checked with CuPy 14.2; source: cupy/cuda/compiler.py, function.pyx,
# _core/_kernel.pyx, raw.pyx.
#
# Not seen: cuBLAS, cuFFT, cuSOLVER, cuSPARSE, cuRAND, Thrust and CUB, graph replays, `RawModule(path=…)`, copies, and
# kernels that were compiled before.

from collections.abc import Callable
from time import perf_counter_ns
from types import ModuleType
from typing import Any, Final

from kernelcast.probe.cupy.events import EventTimer, SamplingBucket, TimedLaunch
from kernelcast.probe.cupy.traced import Traced, TracedConfiguration, TracedKernels
from kernelcast.probe.process.demangle import demangled
from kernelcast.probe.recording.regions import current

STREAM_ARGUMENT: Final = 4
"""`stream` is the fifth argument of both ways to launch."""
LINEAR_BLOCK: Final = 128
"""CuPy's default for `block_max_size`."""
CALIBRATION_LAUNCHES: Final = 2000
GIVEN_UP_LAUNCHES: Final = 10_000
"""Launches outside a capture after which it counts as given up: after an error a program may not call `end_capture`."""


class FunctionStandIn(ModuleType):
    """Replaces the attribute `function` of CuPy's compiler, with another class `Module`.

    Args:
        real: The replaced module, `cupy.cuda.function`.
        module: The class that replaces its `Module`.
    """

    def __init__(self, real: Any, module: type[Any]) -> None:
        super().__init__(real.__name__, real.__doc__)
        self.kernelcast_real = real
        self.Module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernelcast_real, name)


class LaunchObserver:
    """Counts and times launches for the subclasses below, on the program's threads.

    Args:
        runtime: `cupy.cuda.runtime`.
        current_stream: `cupy.cuda.get_current_stream`.
        kernels: Counts of launches.
        timer: Times launches.
        bucket: Limits how many are timed.
    """

    def __init__(
        self,
        runtime: Any,
        current_stream: Callable[[], Any],
        kernels: TracedKernels,
        timer: EventTimer,
        bucket: SamplingBucket,
    ) -> None:
        self._runtime = runtime
        self._current_stream = current_stream
        self.kernels = kernels
        self.timer = timer
        self.bucket = bucket
        self.spent_ns = 0
        """Time that timed launches have cost the program's threads."""
        self.samples = 0
        """Number of timed launches."""
        self.capturing = 0
        """Number of streams that capture a graph through CuPy."""
        self.not_captured = 0
        """Launches since one was captured, while `capturing`."""
        self.failures = 0
        self.configuration: Callable[[], int] = int
        """Returns the number of the configuration in force."""

    def traced(self, name: str) -> Traced:
        """The counts of a function of the current device."""
        return self.kernels.get(demangled(name), self._runtime.getDevice())

    def timed(
        self,
        function: Any,
        launch: Callable[..., Any],
        read: Callable[..., TracedConfiguration],
        *arguments: Any,
        **named: Any,
    ) -> Any:
        """Launch once, with events around it if that can be; the program's own exception passes."""
        began_ns = perf_counter_ns()
        traced: Traced = function.traced
        traced.sample_at = traced.launched + 1 + traced.stride
        sample, stream = self._begin(function, read, arguments, named)
        launched_ns = perf_counter_ns()
        try:
            result = launch(function, *arguments, **named)
        except BaseException:
            if sample is not None:
                self.timer.release(sample.pair)
            raise
        ended_ns = perf_counter_ns()
        if sample is not None:
            try:
                self.timer.end(sample, stream)
            except Exception:  # noqa: BLE001  CUDA's trouble is not the launch's
                self.failures += 1
        spent_ns = launched_ns - began_ns + perf_counter_ns() - ended_ns
        self.spent_ns += spent_ns
        self.samples += 1
        return result

    def captures(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Whether a launch goes into a graph instead of to the device."""
        try:
            captured = bool(self._runtime.streamIsCapturing(self._stream(arguments, named)))
        except Exception:  # noqa: BLE001  asked of the legacy stream while another captures, CUDA refuses to say
            captured = False
        self.not_captured = 0 if captured else self.not_captured + 1
        if self.not_captured >= GIVEN_UP_LAUNCHES:
            self.capturing = self.not_captured = 0
        return captured

    def _begin(
        self, function: Any, read: Callable[..., TracedConfiguration], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[TimedLaunch | None, int]:
        try:
            traced: Traced = function.traced
            if not self.bucket.take():
                return None, 0
            weight = traced.sampled(self.kernels.random)
            stream = self._stream(arguments, named)
            if self._runtime.streamIsCapturing(stream):
                return None, 0
            entry = current.get()
            key = (function, traced, read(*arguments, **named))
            pair = self.timer.begin(traced.device, stream)
            if pair is None:
                return None, 0
            return TimedLaunch(key, pair, entry.totals if entry else None, weight, self.configuration()), stream
        except Exception:  # noqa: BLE001  a launch that cannot be timed is launched all the same
            self.failures += 1
            return None, 0

    def _stream(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
        stream = arguments[STREAM_ARGUMENT] if len(arguments) > STREAM_ARGUMENT else named.get("stream")
        pointer: int = (self._current_stream() if stream is None else stream).ptr
        return pointer


def probed_function(base: type[Any], launches: LaunchObserver) -> type[Any]:
    """A subclass of CuPy's `Function` that counts and times its launches.

    With `retire()` both ways to launch are CuPy's own again, at no cost at all.
    """
    launch, linear_launch = base.__call__, base.linear_launch

    class ProbedFunction(base):  # type: ignore[misc]
        __slots__ = ("traced",)

    def attend() -> None:
        ProbedFunction.__call__ = _unpacked(launches, launch, _counted(launches, launch, grid_configuration))
        ProbedFunction.linear_launch = _counted(launches, linear_launch, linear_configuration)

    def retire() -> None:
        for name in ("__call__", "linear_launch"):
            if name in vars(ProbedFunction):
                delattr(ProbedFunction, name)

    ProbedFunction.attend, ProbedFunction.retire = staticmethod(attend), staticmethod(retire)
    attend()
    return ProbedFunction


def _counted(
    launches: LaunchObserver, way: Callable[..., Any], read: Callable[..., TracedConfiguration]
) -> Callable[..., Any]:
    """A way to launch that counts, and times or leaves out a captured one; for any arguments."""
    in_region = current.get

    def launch_counted(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            traced = self.traced
            wanted = traced.launched + 1 >= traced.sample_at
            captured = launches.capturing and launches.captures(arguments, named)
        except Exception:  # noqa: BLE001  made without `get_function`
            return way(self, *arguments, **named)
        if captured:
            result = way(self, *arguments, **named)
            traced.captured += 1
            return result
        result = launches.timed(self, way, read, *arguments, **named) if wanted else way(self, *arguments, **named)
        traced.launched += 1
        entry = in_region()
        if entry is not None:
            _count_in_region(entry, traced.device)
        return result

    return launch_counted


def _unpacked(launches: LaunchObserver, launch: Callable[..., Any], counted: Callable[..., Any]) -> Callable[..., Any]:
    """The usual case of `counted`, for the arguments that a raw kernel of CuPy passes.

    It passes `enable_cooperative_groups` by name. Arguments that are named here are not packed into a tuple and a
    dictionary and out again, which takes as long as the counting.
    """
    in_region = current.get

    def launch_unpacked(  # noqa: PLR0913, PLR0917  CuPy's own parameters
        self: Any,
        grid: Any,
        block: Any,
        args: Any,
        shared_mem: Any = 0,
        stream: Any = None,
        enable_cooperative_groups: Any = False,  # noqa: FBT002
        *more: Any,
        **others: Any,
    ) -> Any:
        try:
            traced = self.traced
            is_usual = traced.launched + 1 < traced.sample_at and not launches.capturing
        except Exception:  # noqa: BLE001  made without `get_function`
            is_usual = False
        if not is_usual or enable_cooperative_groups or more or others:
            rest = (enable_cooperative_groups, *more) if enable_cooperative_groups or more else ()
            return counted(self, grid, block, args, shared_mem, stream, *rest, **others)
        result = launch(self, grid, block, args, shared_mem, stream)
        traced.launched += 1
        entry = in_region()
        if entry is not None:
            _count_in_region(entry, traced.device)
        return result

    return launch_unpacked


def probed_module(base: type[Any], function: type[Any], launches: LaunchObserver) -> type[Any]:
    """A subclass of CuPy's `Module` whose functions are counted."""

    class ProbedModule(base):  # type: ignore[misc]
        __slots__ = ()

        def get_function(self, name: str) -> Any:
            made = function(self, name)
            try:
                made.traced = launches.traced(name)
            except Exception:  # noqa: BLE001  a function without counts launches all the same
                launches.failures += 1
            return made

    return ProbedModule


def grid_configuration(
    grid: Any, block: Any, _args: Any = (), shared_mem: int = 0, *_: Any, **__: Any
) -> TracedConfiguration:
    """The launch configuration of `function(grid, block, args, shared_mem=0, …)`."""
    return TracedConfiguration(_three(grid), _three(block), int(shared_mem))


def linear_configuration(
    size: int, _args: Any = (), shared_mem: int = 0, block_max_size: int = LINEAR_BLOCK, *_: Any, **__: Any
) -> TracedConfiguration:
    """The launch configuration of `function.linear_launch(size, args, shared_mem=0, block_max_size=128, …)`."""
    size, most = int(size), int(block_max_size)
    return TracedConfiguration((-(-size // most), 1, 1), (min(size, most), 1, 1), int(shared_mem))


def calibrate(clock: Callable[[], int] = perf_counter_ns) -> float:
    """Nanoseconds that counting adds to one launch, measured on this machine with a function that does nothing."""

    class Empty:
        __slots__ = ()

        def __call__(self, *_arguments: Any, **_named: Any) -> None:
            return None

        linear_launch = __call__

    probed = probed_function(
        Empty, LaunchObserver(None, _nothing, TracedKernels(), EventTimer(None, _nothing), SamplingBucket(0))
    )
    plain, counted = Empty(), probed()
    counted.traced = Traced("calibration", 0)

    def best(function: Any) -> float:
        times = []
        for _ in range(5):
            began_ns = clock()
            for _ in range(CALIBRATION_LAUNCHES // 5):
                function((1,), (1,), (), enable_cooperative_groups=False)  # as a raw kernel of CuPy calls it
            times.append((clock() - began_ns) / (CALIBRATION_LAUNCHES // 5))
        return min(times)

    return max(0.0, best(counted) - best(plain))


def _count_in_region(entry: Any, device: int) -> None:
    part = entry.totals.devices.get(device) or entry.totals.on(device)
    part.launches += 1


def _three(dimensions: Any) -> tuple[int, ...]:
    return tuple(max(1, int(part)) for part in (*dimensions, 1, 1)[:3])


def _nothing() -> None:
    return None
