"""JAX's static arguments: a function is compiled for each configuration, and tuned while it runs."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

from kernelcast.probe.tuned.space import ProgramSpace

MAX_COMPILED: Final = 4096


def jax_static(
    space: ProgramSpace,
    function: Callable[..., Any],
    *,
    static_argnames: Iterable[str] = (),
    donate_argnames: Iterable[str] = (),
    share: float | None = None,
) -> Callable[..., Any]:
    """Return a jitted function whose parameters of the space are static arguments, chosen for each call.

    Callers leave them out. Each combination of shapes and types of the other arguments is tuned by itself. Inside
    another transformation of JAX, such as `jit` or `grad`, the start is used.

    Args:
        space: The parameters; the function takes each by name.
        function: A pure function.
        static_argnames: Further static arguments of the function, which callers pass by name.
        donate_argnames: Arguments whose memory JAX may reuse; a call that failed is then not repeated.
        share: Share of the calls' time that trials may cost; None for that of the process.
    """
    jax = import_module("jax")
    donated, fixed = tuple(donate_argnames), tuple(static_argnames)
    names = (*space.configuration, *fixed)
    jitted = jax.jit(function, static_argnames=names, **({"donate_argnames": donated} if donated else {}))
    compiled: dict[tuple[object, ...], Any] = {}

    def prepare(configuration: Mapping[str, Any], *arguments: Any, **named: Any) -> None:
        key = (configuration, _compilation(jax, arguments, named, fixed))
        if key not in compiled:
            if len(compiled) >= MAX_COMPILED:
                compiled.pop(next(iter(compiled)))
            compiled[key] = jitted.lower(*arguments, **named, **configuration).compile()

    def call(configuration: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
        ready = compiled.get((configuration, _compilation(jax, arguments, named, fixed)))
        if ready is None:
            return jitted(*arguments, **named, **configuration)
        return ready(*arguments, **{name: value for name, value in named.items() if name not in fixed})

    call.__name__ = getattr(function, "__name__", "call")
    run = space.tuned(
        call,
        shape=lambda *arguments, **named: _signature(jax, arguments, named, fixed),
        prepare=prepare,
        repeatable=not donated,
        share=share,
    )

    def outside(*arguments: Any, **named: Any) -> Any:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves((arguments, named))):
            return jitted(*arguments, **named, **space.configuration)
        return run(*arguments, **named)

    outside.__name__ = call.__name__
    return outside


def _signature(
    jax: Any, arguments: tuple[Any, ...], named: Mapping[str, Any], fixed: tuple[str, ...]
) -> tuple[object, ...]:
    """Shapes and types of arrays with their structure, types of numbers, and values of static arguments."""
    static = tuple((name, named[name]) for name in fixed if name in named)
    traced = {name: value for name, value in named.items() if name not in fixed}
    leaves, structure = jax.tree_util.tree_flatten((arguments, traced))
    return (str(structure), *static, *map(_described, leaves))


def _compilation(
    jax: Any, arguments: tuple[Any, ...], named: Mapping[str, Any], fixed: tuple[str, ...]
) -> tuple[object, ...]:
    """The signature, with devices and settings that a function is compiled for.

    JAX refuses an array that the program has put on another device, and takes the present precision at compilation.
    """
    placements = map(_placement, jax.tree_util.tree_leaves((arguments, named)))
    settings = (jax.config.jax_default_matmul_precision, jax.config.jax_enable_x64)
    return (_signature(jax, arguments, named, fixed), *settings, *placements)


def _placement(leaf: Any) -> object:
    return getattr(leaf, "sharding", None) if getattr(leaf, "committed", True) else None


def _described(leaf: Any) -> object:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), str(leaf.dtype)
    return type(leaf).__name__
