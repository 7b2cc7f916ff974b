"""Whether a program without progress waits for a person, or has ended its loop."""

import sys
import threading
import types
from time import perf_counter_ns
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from kernelcast.probe.marks.standby import QUIET_NS, Standby, waits_for_person
from kernelcast.probe.marks.timeline import Timeline
from kernelcast.probe.recording.step_totals import StepTotals


def stack(*modules: str) -> FrameType:
    """Frames of functions in these modules, the innermost first."""
    found = list[FrameType]()
    call: Any = lambda: found.append(sys._getframe(1))  # noqa: E731  its own frame is no part of the stack
    for module in modules:
        made: Any = calling(call)
        call = types.FunctionType(made.__code__, {"__name__": module}, closure=made.__closure__)
    call()
    return found[0]


def calling(inner: Any) -> Any:
    """Return a function that calls another one."""

    def call() -> None:
        inner()

    return call


@pytest.mark.parametrize(
    ("modules", "waits"),
    [
        (("cmd", "pdb", "bdb", "train"), True),
        (("code", "__main__"), True),
        (("selectors", "asyncio.base_events", "tornado.platform.asyncio", "ipykernel.kernelapp", "__main__"), True),
        (("threading", "_pydevd_bundle.pydevd", "train"), True),
        (("train", "IPython.core.interactiveshell", "ipykernel.kernelapp"), False),
        (("selectors", "asyncio.base_events", "serve"), False),
        (("torch.autograd", "train"), False),
        (("threading",), False),
    ],
)
def test_a_prompt_or_a_debugger_waits_for_a_person(modules: tuple[str, ...], *, waits: bool) -> None:
    assert waits_for_person(stack(*modules, "<end>")) is waits


def standby(quiet_ns: int, timeline: Timeline | None) -> Standby:
    progress = StepTotals()
    progress.steps, progress.progress_ns = 3, perf_counter_ns() - quiet_ns
    return Standby(progress, lambda: timeline)


def test_a_loop_that_has_ended_is_said_once_nothing_has_moved_for_five_seconds() -> None:
    ended = cast("Timeline", SimpleNamespace(thread=threading.get_ident(), loop_ended=True))
    going_on = cast("Timeline", SimpleNamespace(thread=threading.get_ident(), loop_ended=False))
    assert standby(QUIET_NS, ended)() == "ended"
    assert standby(QUIET_NS // 2, ended)() == ""
    assert standby(QUIET_NS, going_on)() == ""


def test_a_thread_that_has_ended_trains_no_more() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    gone = cast("Timeline", SimpleNamespace(thread=thread.ident, loop_ended=False))
    assert standby(QUIET_NS, gone)() == "ended"


def test_a_program_without_steps_is_asked_nothing() -> None:
    assert Standby(StepTotals(), lambda: None)() == ""
