"""A CuPy with the functions that the probe touches, on a GPU that finishes kernels on command."""

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

NAMES = (
    "cupy",
    "cupy.cuda",
    "cupy.cuda.function",
    "cupy.cuda.stream",
    "cupy.cuda.compiler",
    "cupy_backends",
    "cupy_backends.cuda",
    "cupy_backends.cuda.api",
    "cupy_backends.cuda.api.runtime",
    "cupy_backends.cuda.api.driver",
)


class CudaError(RuntimeError):
    """The error that CuPy raises."""


class Gpu:
    """One process's devices: its launches, and the events that have passed."""

    def __init__(self) -> None:
        self.device = 0
        self.launches: list[tuple[str, int, tuple[Any, ...]]] = []
        self.now_ms = 0.0
        self.kernel_ms = 0.25
        self.recorded: dict[int, tuple[float, bool]] = {}
        self.queue: deque[int] = deque()
        self.created: list[int] = []
        self.capturing: set[int] = set()
        self.synchronised = 0
        self.fail: set[str] = set()

    def check(self, call: str) -> None:
        if call in self.fail:
            raise CudaError(call)

    def finish(self) -> None:
        """Everything that was launched is done."""
        while self.queue:
            event = self.queue.popleft()
            self.recorded[event] = (self.recorded[event][0], True)


class Stream:
    def __init__(self, pointer: int = 0) -> None:
        self.ptr = pointer


class Pool:
    def __init__(self) -> None:
        self.limit = 0

    def used_bytes(self) -> int:
        return 300

    def free_bytes(self) -> int:
        return 200

    def get_limit(self) -> int:
        return self.limit


def runtime_of(gpu: Gpu) -> dict[str, Any]:
    def create(_flags: int) -> int:
        gpu.check("eventCreateWithFlags")
        gpu.created.append(1000 + len(gpu.created))
        return gpu.created[-1]

    def record(event: int, stream: int) -> None:
        gpu.check("eventRecord")
        assert stream not in gpu.capturing, "an event was recorded into a graph"
        gpu.recorded[event] = (gpu.now_ms, False)
        gpu.queue.append(event)

    def query(event: int) -> int:
        gpu.check("eventQuery")
        return 0 if gpu.recorded[event][1] else 600

    def elapsed_ms(start: int, end: int) -> float:
        gpu.check("eventElapsedTime")
        return gpu.recorded[end][0] - gpu.recorded[start][0]

    def synchronise(*_: Any) -> None:
        gpu.synchronised += 1

    def choose(device: int) -> None:
        gpu.device = device

    return {
        "eventCreateWithFlags": create,
        "eventRecord": record,
        "eventQuery": query,
        "eventElapsedTime": elapsed_ms,
        "eventSynchronize": synchronise,
        "deviceSynchronize": synchronise,
        "streamIsCapturing": lambda stream: stream in gpu.capturing,
        "getDevice": lambda: gpu.device,
        "setDevice": choose,
        "deviceGetAttribute": lambda _attribute, _device: 2048,
    }


def driver_of(gpu: Gpu) -> dict[str, Any]:
    attributes = {4: 40, 1: 1024, 3: 16}

    def attribute(which: int, _pointer: int) -> int:
        gpu.check("funcGetAttribute")
        return attributes[which]

    return {
        "CU_FUNC_ATTRIBUTE_NUM_REGS": 4,
        "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES": 1,
        "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": 3,
        "funcGetAttribute": attribute,
        "occupancyMaxActiveBlocksPerMultiprocessor": lambda _pointer, _threads, _shared: 8,
    }


def function_of(gpu: Gpu) -> dict[str, Any]:
    class Module:
        __slots__ = ("__weakref__",)

        def load(self, _cubin: bytes) -> None:
            """A context exists from here on."""

        def get_function(self, name: str) -> Any:
            return Function(self, name)

    class Function:
        __slots__ = ("module", "name", "ptr")

        def __init__(self, module: Any, name: str) -> None:
            self.module, self.name, self.ptr = module, name, 77

        def __call__(self, grid: Any, block: Any, *rest: Any, shared_mem: int = 0, **_named: Any) -> None:
            self._launch(grid, block, rest[1] if len(rest) > 1 else shared_mem)

        def linear_launch(self, size: int, *rest: Any, shared_mem: int = 0, **named: Any) -> None:
            self._launch(size, named.get("block_max_size", 128), rest[1] if len(rest) > 1 else shared_mem)

        def _launch(self, *how: Any) -> None:
            gpu.check("launch")
            gpu.launches.append((self.name, gpu.device, how))
            gpu.now_ms += gpu.kernel_ms

    return {"Module": Module, "Function": Function, "LinkState": object}


def stream_of(gpu: Gpu) -> dict[str, Any]:
    class _BaseStream(Stream):
        def begin_capture(self, _mode: int | None = None) -> None:
            gpu.capturing.add(self.ptr)

        def end_capture(self) -> str:
            gpu.capturing.discard(self.ptr)
            return "graph"

    return {"_BaseStream": _BaseStream, "get_current_stream": lambda: Stream(0)}


class Cupy:
    """The double: import it by `installed`."""

    def __init__(self) -> None:
        self.gpu = Gpu()
        self.pool = Pool()
        self.modules = {name: ModuleType(name) for name in NAMES}
        made = self.modules
        made["cupy_backends.cuda.api.runtime"].__dict__.update(runtime_of(self.gpu))
        made["cupy_backends.cuda.api.driver"].__dict__.update(driver_of(self.gpu))
        made["cupy.cuda.function"].__dict__.update(function_of(self.gpu))
        made["cupy.cuda.stream"].__dict__.update(stream_of(self.gpu))
        made["cupy.cuda.compiler"].__dict__["function"] = made["cupy.cuda.function"]
        made["cupy.cuda"].__dict__["runtime"] = made["cupy_backends.cuda.api.runtime"]
        made["cupy"].__dict__.update(cuda=made["cupy.cuda"], get_default_memory_pool=lambda: self.pool)

    def compile(self, *names: str) -> list[Any]:
        """Compiles in the same way as `cupy.cuda.compiler`."""
        module = self.modules["cupy.cuda.compiler"].function.Module()
        module.load(b"")
        return [module.get_function(name) for name in names]

    def stream(self, pointer: int) -> Any:
        return self.modules["cupy.cuda.stream"]._BaseStream(pointer)


@contextmanager
def installed() -> Iterator[Cupy]:
    """CuPy is imported."""
    before = {name: sys.modules.get(name) for name in NAMES}
    double = Cupy()
    sys.modules.update(double.modules)
    try:
        yield double
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


class Clock:
    """A clock in nanoseconds that a test advances."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self) -> int:
        return self.now_ns

    def pass_seconds(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
