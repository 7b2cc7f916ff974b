"""Why a program without progress may wait: its loop has ended, or a person's input is waited for.

The probe's thread asks once an interval, and looks only where there was no progress for `QUIET_NS`: it reads the stack
of the thread that trains, without touching it.
"""

import os
import sys
import threading
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import Final

from kernelcast.probe.marks.timeline import Timeline
from kernelcast.probe.recording.step_totals import StepTotals
from kernelcast.wire.frames import ENDED, PERSON

QUIET_NS: Final = 5_000_000_000
PROMPTS: Final = frozenset(
    {
        *("bdb", "cmd", "code", "debugpy", "ipykernel", "ipdb", "IPython", "pdb", "prompt_toolkit", "ptpython", "pudb"),
        *("pydevd", "_pydevd_bundle", "_pyrepl"),
    }
)
"""Packages of prompts and debuggers."""
WAITS: Final = frozenset(
    ("asyncio", "queue", "selectors", "signal", "socket", "threading", "tornado", "traitlets", "zmq")
)
"""Packages in which a prompt may wait; whoever called them decides."""
_READS: Final = frozenset({"0", "63"})
_POLLS: Final = frozenset({"7", "23", "72", "73", "270", "271"})
"""Numbers of read, and of poll, select and their like, on x86-64 and arm64."""


class Standby:
    """Returns `Counters.standby`. Only the probe's thread calls it.

    Args:
        progress: Steps of the program.
        timeline: Returns the timeline of its framework; None without one.
    """

    def __init__(self, progress: StepTotals, timeline: Callable[[], Timeline | None]) -> None:
        self._progress = progress
        self._timeline = timeline

    def __call__(self) -> str:
        """Return `PERSON`, `ENDED`, or an empty text while the program is at work as far as known."""
        progress = self._progress
        if not progress.steps or perf_counter_ns() - progress.progress_ns < QUIET_NS:
            return ""
        timeline = self._timeline()
        thread = (timeline.thread if timeline else 0) or threading.main_thread().ident or 0
        frame = sys._current_frames().get(thread)  # noqa: SLF001  there is no other way to another thread's stack
        if frame is None:  # the prompt of an interpreter runs no code in Python; a thread that has ended has no stack
            return PERSON if thread == threading.main_thread().ident else ENDED
        if waits_for_person(frame, thread):
            return PERSON
        return ENDED if timeline is not None and timeline.loop_ended else ""


def waits_for_person(frame: FrameType, thread: int = 0) -> bool:
    """Whether a stack is that of a prompt or a debugger, or of a call of `input`.

    Args:
        frame: The innermost frame.
        thread: Identity of its thread, to see what it waits for.
    """
    if "input" in frame.f_code.co_names and _reads_standard_input(thread):
        return True
    caller: FrameType | None = frame
    while caller is not None:
        package = str(caller.f_globals.get("__name__", "")).partition(".")[0]
        if package in PROMPTS:
            return True
        if package not in WAITS:
            return False
        caller = caller.f_back
    return False


def _reads_standard_input(thread: int) -> bool:
    """Whether a thread of this process waits in `read` of its standard input, or in a poll before it, as readline."""
    python_thread = threading._active.get(thread)  # type: ignore[attr-defined]  # noqa: SLF001
    # Python keeps the main thread's number from before a fork.
    native = os.getpid() if python_thread is threading.main_thread() else getattr(python_thread, "native_id", None)
    try:
        with open(f"/proc/self/task/{native}/syscall") as file:  # noqa: PTH123  without pathlib
            number, *arguments = file.read().split()
    except (OSError, ValueError):
        return False
    return (number in _READS and arguments[:1] == ["0x0"]) or (number in _POLLS and os.isatty(0))
