"""CuPy's raw kernels: compile options, grid and block come from the configuration of each call."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

from kernelcast.probe.tuned.space import ProgramSpace

MAX_COMPILED: Final = 4096
# Dynamic shared memory of a block without a higher limit of the function (CUDA C++ Programming Guide, "Shared Memory").
SHARED_BYTES: Final = 48 * 1024

Dimensions = Callable[..., tuple[int, ...]]


def cupy_kernel(  # noqa: PLR0913  the parts of a launch, most with a default
    space: ProgramSpace,
    code: str,
    name: str,
    *,
    grid: Dimensions,
    block: Dimensions,
    options: Iterable[str] = (),
    shared_memory_bytes: Callable[..., int] | None = None,
    name_expressions: Iterable[str] = (),
    shape: Callable[..., object] | None = None,
    share: float | None = None,
) -> Callable[..., None]:
    """Return a launcher of a CUDA kernel that is compiled for each configuration and tuned while it runs.

    Each parameter of the space is a macro in the code: `-Dblock_x=32`. Callers write `run(a, out)`.

    Args:
        space: The parameters of the kernel.
        code: CUDA source.
        name: The kernel's name, or one of `name_expressions`.
        grid: Takes the configuration and the kernel's arguments; returns the number of blocks in each dimension.
        block: Takes the same; returns the number of threads in each dimension.
        options: Further compile options.
        shared_memory_bytes: Takes the same; returns the dynamic shared memory of a block; without it, none.
        name_expressions: Names of C++ templates in the code, as `cupy.RawModule` takes them.
        shape: Takes the kernel's arguments; returns their shape bucket, each of which is tuned by itself.
        share: Share of the launches' time that trials may cost; None for that of the process.
    """
    kernels = _Kernels(code, name, tuple(options), tuple(name_expressions))

    def launch(configuration: Mapping[str, Any], *arguments: Any) -> None:
        shared = shared_memory_bytes(configuration, *arguments) if shared_memory_bytes else 0
        kernel = kernels.compiled(configuration)
        if shared > SHARED_BYTES and kernel.max_dynamic_shared_size_bytes < shared:
            kernel.max_dynamic_shared_size_bytes = shared
        kernel(grid(configuration, *arguments), block(configuration, *arguments), arguments, shared_mem=shared)

    def prepare(configuration: Mapping[str, Any], *_arguments: Any) -> None:
        kernels.prepare(configuration)

    launch.__name__ = name
    run: Callable[..., None] = space.tuned(launch, shape=shape, prepare=prepare, share=share)
    return run


class _Kernels:
    """The kernel of each configuration, compiled at its first use."""

    def __init__(self, code: str, name: str, options: tuple[str, ...], name_expressions: tuple[str, ...]) -> None:
        self._code = code
        self._name = name
        self._options = options
        self._name_expressions = name_expressions
        self._compiled: dict[tuple[str, ...], Any] = {}

    def compiled(self, configuration: Mapping[str, Any]) -> Any:
        """Return the kernel of a configuration."""
        options = (*self._options, *macros(configuration))
        kernel = self._compiled.get(options)
        if kernel is None:
            if len(self._compiled) >= MAX_COMPILED:
                self._compiled.pop(next(iter(self._compiled)))
            kernel = self._compiled[options] = self._made(options)
        return kernel

    def prepare(self, configuration: Mapping[str, Any]) -> None:
        """Compile: CuPy does so when an attribute of the kernel is read."""
        _ = self.compiled(configuration).attributes

    def _made(self, options: tuple[str, ...]) -> Any:
        cupy = import_module("cupy")
        if self._name_expressions:
            module = cupy.RawModule(code=self._code, options=options, name_expressions=self._name_expressions)
            return module.get_function(self._name)
        return cupy.RawKernel(self._code, self._name, options=options)


def macros(configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a compile option for each value; True and False become 1 and 0."""
    return tuple(
        f"-D{name}={int(value) if isinstance(value, bool) else value}" for name, value in configuration.items()
    )
