"""Shutdown by signals, and reloading of the configuration on SIGHUP.

A daemon's command makes one `Shutdown` and passes it to its loops.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """An event that SIGTERM and SIGINT set; a second signal ends the process at once.

    Any thread may request a stop, wait for it, or ask for a reload. The callbacks of a reload run on the thread that
    calls `reload_if_asked` or iterates over `every`. Signals are optional: tests call `request()`.
    """

    def __init__(self, *, exit_now: Callable[[int], Any] = os._exit) -> None:
        self._running = threading.Lock()
        self._running.acquire()
        self._releases = [self._running.release]
        self._requested = self._reload = False
        self._callbacks: list[Callable[[], None]] = []
        self._exit_now = exit_now

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._requested

    def request(self) -> None:
        """Ask to stop."""
        self._requested = True
        with suppress(IndexError):
            self._releases.pop()()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until a stop is requested, or until the time-out; returns whether it was requested."""
        if self._running.acquire(timeout=-1 if timeout_seconds is None else max(timeout_seconds, 0)):
            self._running.release()
        return self._requested

    def on_reload(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs after SIGHUP, on the thread that calls `reload_if_asked`."""
        self._callbacks.append(callback)

    def reload(self) -> None:
        """Ask for a reload, as SIGHUP does."""
        self._reload = True

    def reload_if_asked(self) -> bool:
        """Run the callbacks if a reload was asked for since the last call."""
        if not self._reload:
            return False
        self._reload = False
        for callback in self._callbacks:
            callback()
        return True

    def every(self, interval_seconds: float) -> Iterator[None]:
        """Yield now and after each interval until asked to stop; reloads happen in between."""
        while not self.requested:
            self.reload_if_asked()
            yield
            self.wait(interval_seconds)

    @contextmanager
    def signals(self) -> Iterator["Shutdown"]:
        """Listen to SIGTERM, SIGINT and SIGHUP inside the block; the main thread only."""
        previous = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    # A signal handler runs on the main thread, between two of its instructions. It must not wait for a lock that this
    # thread may hold, as `threading.Event.set` does, nor start a thread, which fails at the limit of processes. So the
    # first request releases a lock, which never waits, and each waiting thread acquires it and releases it again.
    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            self._exit_now(128 + number)
        self.request()

    def _hang_up(self, _number: int, _frame: FrameType | None) -> None:
        self._reload = True
