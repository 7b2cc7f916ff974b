"""Starts the probe's threads. They leave all signals to the program's own threads."""

import signal
import threading
from typing import Final

SYNCHRONOUS: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
)
"""Signals of a thread's own mistakes: the kernel ends a process in which they are blocked, without `faulthandler`.

SIGSYS is that of a seccomp filter. `abort` unblocks SIGABRT itself.
"""


def start_without_signals(thread: threading.Thread) -> None:
    """Start a thread that blocks every signal, as all threads of a program must that calls `sigwait`.

    The kernel delivers a signal to any thread that does not block it, where its default action ends the process.

    Raises:
        RuntimeError: There is no thread left.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - SYNCHRONOUS)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
