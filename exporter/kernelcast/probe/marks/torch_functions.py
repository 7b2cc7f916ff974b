"""Marks on PyTorch's own functions: the loader's `__next__`, `backward`, the optimizers' and the scaler's step.

Each listener gets a module that PyTorch has just imported, and replaces functions in it by wrappers that call the
timeline at their begin and end. Nothing changes for the program: a wrapper passes arguments, results and exceptions on,
and takes its own frame out of their traceback; a class keeps its type. `torch.compile` sees no wrapper: a call that is
being compiled takes the first branch, which leaves nothing behind, and the frames themselves are never compiled, as
`_hide` says. An optimizer's step is called by Python even in a compiled function, because PyTorch breaks the graph
there, so its marks are made.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from kernelcast.probe.marks.batches import batch_items
from kernelcast.probe.marks.gpu_phases import METHODS as GPU_METHODS
from kernelcast.probe.marks.timeline import BACKWARD, CHECKPOINT, Timeline
from kernelcast.probe.marks.wrapping import MARK, like


class TorchMarks:
    """Puts marks on PyTorch, once `torch` has been imported.

    Args:
        timeline: Called at each mark.
        torch: The module.
    """

    def __init__(self, timeline: Timeline, torch: Any) -> None:
        self._timeline = timeline
        self._torch = torch
        self.has_gradients: Callable[[], bool] = torch.is_grad_enabled
        self.precision = ""
        """Type of the parameters that the first step has changed, such as `bfloat16`."""
        self._sees_compiler = False
        self._is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", _never)
        self._eval_frame: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)  # noqa: SLF001
        for function in (*_CALLED, *GPU_METHODS):
            self._hide(function, below=True)
        self._wrap(torch.autograd, "backward", self._backward)
        if "torch._dynamo" not in sys.modules:  # it knows the function: it would take a wrapper for another one
            self._wrap(torch.autograd, "grad", self._backward)
        for context in (torch.no_grad, getattr(torch, "inference_mode", None)):
            if context is not None:
                self._wrap(context, "__enter__", self._without_gradients)
        self._wrap(torch.serialization, "save", self._saving)
        torch.save = torch.serialization.save
        self._mark_optimizers(torch.optim.Optimizer)

    def mark(self, module: Any) -> None:
        """Mark one of `TORCH_MODULES`, which has been imported."""
        if hasattr(module, "_BaseDataLoaderIter"):
            self._wrap(module._BaseDataLoaderIter, "__next__", self._fetch)  # noqa: SLF001
        if hasattr(module, "GradScaler"):
            self._wrap(module.GradScaler, "step", self._scaled_step)
        if hasattr(module, "on_compile_start") and not self._sees_compiler:
            self._sees_compiler = True
            self._mark_compiler(module)
        for name in ("save", "async_save", "save_file"):
            if hasattr(module, name):
                self._wrap(module, name, self._saving)

    def _mark_compiler(self, callback: Any) -> None:
        timeline = self._timeline

        def begins(*_arguments: object) -> None:
            timeline.compilation_begins()

        def ends(*_arguments: object) -> None:
            timeline.compilation_ends()

        self._hide(begins)
        self._hide(ends)

        def listen() -> None:
            callback.on_compile_start(begins)
            callback.on_compile_end(ends)

        def listening(clear: Callable[[Any], None]) -> Callable[[Any], None]:
            def cleared(handler: Any) -> None:
                clear(handler)
                listen()

            return cleared

        listen()
        self._wrap(type(callback.callback_handler), "clear", listening)  # `torch._dynamo.reset` removes all listeners

    def _mark_optimizers(self, base: Any) -> None:
        """Mark the step of every class of optimizers: those that have an instance already, and others at their first.

        PyTorch replaces a class's `step` by a function of its own when its first instance is made; the marks are around
        that one.
        """
        name = "_patch_step_function" if hasattr(base, "_patch_step_function") else "_hook_for_profile"
        patch = getattr(base, name)

        def patched(optimizer: Any) -> None:
            patch(optimizer)
            self._wrap(type(optimizer), "step", self._step)

        setattr(base, name, self._like(patched, patch))
        waiting = [base]
        while waiting:
            for kind in waiting.pop().__subclasses__():
                waiting.append(kind)
                if getattr(kind.__dict__.get("step"), "hooked", False):
                    self._wrap(kind, "step", self._step)

    def _wrap(self, owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        function = getattr(owner, name)
        if hasattr(function, MARK):
            return
        wrapper = self._like(make(function), function)
        setattr(owner, name, wrapper)
        package = sys.modules.get(getattr(owner, "__package__", None) or "")
        if getattr(package, name, None) is function:  # imported from the module before
            setattr(package, name, wrapper)

    def _like(self, wrapper: Any, function: Any) -> Any:
        self._hide(like(wrapper, function))
        return wrapper

    def _hide(self, function: Any, *, below: bool = False) -> None:
        """Have `torch.compile` run a function as it is; `below`: also the functions that it calls."""
        eval_frame = self._eval_frame
        try:
            skip = eval_frame._FrameAction.SKIP  # noqa: SLF001
            callees = skip if below else eval_frame._FrameAction.DEFAULT  # noqa: SLF001
            strategy = eval_frame._FrameExecStrategy(skip, callees)  # noqa: SLF001
            eval_frame.set_code_exec_strategy(function.__code__, strategy)
        except AttributeError:
            skip_code = getattr(
                eval_frame, "skip_code", None
            )  # before 2.7; without it, before 2.0, nothing is compiled
            if skip_code is not None:
                skip_code(function.__code__)

    def _backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._timeline.marking(BACKWARD, function, unless=self._is_compiling)

    def _step(self, function: Callable[..., Any], *, scaled: bool = False) -> Callable[..., Any]:
        marks, timeline, is_compiling = self, self._timeline, self._is_compiling

        def step(self: Any, *arguments: Any, **named: Any) -> Any:
            if is_compiling():
                return function(self, *arguments, **named)
            if not marks.precision:
                marks.precision = _precision(self)
            optimizer = id(arguments[0]) if scaled and arguments else id(self)
            if not timeline.step_begins(scaled=scaled):
                try:
                    return function(self, *arguments, **named)
                except BaseException as error:
                    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                    raise
            failed = True
            try:
                result = function(self, *arguments, **named)
                failed = False
            except BaseException as error:
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            finally:
                timeline.step_ends(optimizer, failed=failed)
            return result

        return step

    def _scaled_step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._step(function, scaled=True)

    def _fetch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Mark a batch. No branch for `torch.compile`: it cannot compile a loader, with or without a mark."""
        return self._timeline.fetching(function, self.has_gradients, batch_items)

    def _without_gradients(self, function: Callable[..., Any]) -> Callable[..., Any]:
        timeline = self._timeline

        def __enter__(self: Any) -> Any:  # noqa: N807
            timeline.without_gradients = True
            return function(self)

        return __enter__

    def _saving(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._timeline.marking(CHECKPOINT, function, unless=self._is_compiling)


def _precision(optimizer: Any) -> str:
    try:
        return str(optimizer.param_groups[0]["params"][0].dtype).removeprefix("torch.")
    except Exception:  # noqa: BLE001  a scaler, or an optimizer of another kind
        return ""


def _never() -> bool:
    return False


_CALLED: Final = (
    Timeline._is_first,  # noqa: SLF001  called by a wrapper, as all of these
    Timeline._fetch_fails,  # noqa: SLF001
    Timeline.backward_begins,
    Timeline.backward_ends,
    Timeline.step_begins,
    Timeline.step_ends,
    Timeline.interrupt,
    Timeline.resume,
    Timeline.compilation_begins,
    Timeline.compilation_ends,
    batch_items,
    _precision,
)
"""Functions that wrappers call; `torch.compile` is not to see them."""
