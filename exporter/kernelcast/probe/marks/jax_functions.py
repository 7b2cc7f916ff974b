"""Marks on JAX: listeners of its compilations, and its own annotation of steps.

A function that is compiled already is called by C++, which calls no listener. `StepTraceAnnotation` keeps its type,
and its base class does what it did.
Source: `jax.monitoring`; `LogElapsedTimeContextManager` in jax/_src/dispatch.py.
"""

from collections.abc import Callable
from functools import partial
from threading import local
from typing import Any, Final

from kernelcast.probe.marks.timeline import EVALUATION, Timeline
from kernelcast.probe.marks.wrapping import wrap

COMPILED: Final = "/jax/core/compile/backend_compile_duration"
"""The last part of a compilation."""
PARTS: Final = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    COMPILED,
)
EVALUATES: Final = ("eval", "valid", "test")
"""Beginnings of the names of annotations, in lower case, that are no steps of a training."""


class _Open(local):
    """Number of parts of compilations that this thread is in."""

    parts = 0


def mark_jax(timeline: Timeline, jax: Any) -> None:
    """Put marks on JAX, once `jax` has been imported.

    Args:
        timeline: Called at each mark.
        jax: The module.
    """
    _listen(timeline, jax.monitoring)
    annotation = jax.profiler.StepTraceAnnotation
    annotation._kernelcast_evaluates = None  # of an instance that is no step: whether its phase lasts  # noqa: SLF001
    wrap(annotation, "__init__", _named)
    wrap(annotation, "__enter__", partial(_entered, timeline))
    wrap(annotation, "__exit__", partial(_left, timeline))


def _listen(timeline: Timeline, monitoring: Any) -> None:
    """Count compilations; one within another, as of a constant while a function is traced, takes no time of its own."""
    opened = _Open()

    def begins(event: str, _time: float, **_more: object) -> None:
        if event in PARTS:
            if not opened.parts:
                timeline.compilation_begins()
            opened.parts += 1

    def ends(event: str, seconds: float, **_more: object) -> None:
        if event in PARTS:
            opened.parts = max(0, opened.parts - 1)
            took_ns = 0 if opened.parts else int(1e9 * seconds)
            timeline.compilation_ends(took_ns, compilations=int(event == COMPILED))

    monitoring.register_event_duration_secs_listener(ends)
    if hasattr(monitoring, "register_scalar_listener"):  # JAX tells a part's begin as a value, its time
        monitoring.register_scalar_listener(begins)


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807
        try:
            function(self, *arguments, **options)
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        name = arguments[0] if arguments else options["name"]
        if name.lower().startswith(EVALUATES):
            self._kernelcast_evaluates = False

    return __init__


def _entered(timeline: Timeline, function: Callable[..., Any]) -> Callable[..., Any]:
    def __enter__(self: Any) -> Any:  # noqa: N807
        if self._kernelcast_evaluates is None:
            timeline.whole_begins()
        else:
            self._kernelcast_evaluates = timeline.interrupt(EVALUATION)
        return function(self)

    return __enter__


def _left(timeline: Timeline, function: Callable[..., Any]) -> Callable[..., Any]:
    def __exit__(self: Any, *raised: Any) -> Any:  # noqa: N807
        try:
            result = function(self, *raised)
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        if self._kernelcast_evaluates is None:
            if raised[0] is None:
                timeline.whole_ends()
        elif self._kernelcast_evaluates:
            self._kernelcast_evaluates = False
            timeline.resume()
        return result

    return __exit__
