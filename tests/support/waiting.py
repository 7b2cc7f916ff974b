"""Waits for what another thread or process does, and measures how long something took."""

import threading
import time
from collections.abc import Callable
from typing import Final, Self

LONGEST_SECONDS: Final = 120.0
"""A test waits for an event, and this long only for one that never comes: machines of CI stand still for a minute."""
INTERVAL_SECONDS: Final = 0.005
LONGEST_INTERVAL_SECONDS: Final = 0.3
"""A condition may be a page that is drawn and read, so a long wait polls less often: it is a twentieth longer."""
LONGEST_TICK_SECONDS: Final = 4 * INTERVAL_SECONDS


def wait_for(condition: Callable[[], bool], *, longest_seconds: float = LONGEST_SECONDS) -> bool:
    """Wait until a condition holds, at most for some seconds; returns whether it does."""
    began, pause = time.monotonic(), threading.Event()
    while not condition():
        waited_seconds = time.monotonic() - began
        if waited_seconds > longest_seconds:
            return False
        pause.wait(min(max(INTERVAL_SECONDS, waited_seconds / 20), LONGEST_INTERVAL_SECONDS))
    return True


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: It does not.
    """
    assert wait_for(condition), f"it did not come to pass within {LONGEST_SECONDS:.0f} s"


class Stopwatch:
    """Measures the seconds of a block without those in which the machine stood still or ran other processes.

    A thread wakes up every few milliseconds. Each of its intervals counts for at most `LONGEST_TICK_SECONDS`, so a
    stall of a minute counts for no more than a late wake-up. A block that waits too long is still seen, and so is one
    that computes for too long without letting the thread wake up: its own processor time is the least that counts.

    Attributes:
        seconds: The time so far; final once the block has ended.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count, name="stopwatch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._began = time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        computed = time.thread_time() - self._began
        self._ended.set()
        self._thread.join()
        self.seconds = max(self.seconds, computed)

    def _count(self) -> None:
        last, ended = time.monotonic(), False
        while not ended:
            ended = self._ended.wait(INTERVAL_SECONDS)
            now = time.monotonic()
            self.seconds += min(now - last, LONGEST_TICK_SECONDS)
            last = now
