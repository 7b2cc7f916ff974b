"""Progress of a start that takes long: one line every few seconds, as a sign that it does not hang.

`run.Demo` reports its steps to a `StartProgress`, which prints on the main thread.
"""

import time
from collections.abc import Callable
from typing import Final

EVERY_SECONDS: Final = 4.0


class StartProgress:
    """Prints the present step of a start, at most every few seconds.

    Args:
        write: Receives a line.
        monotonic: The clock.
    """

    def __init__(self, write: Callable[[str], None], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._monotonic = monotonic
        self._began = self._written = monotonic()

    def report(self, step: str) -> None:
        """Take note of the present step; it is printed if nothing was for some seconds."""
        now = self._monotonic()
        if now - self._written >= EVERY_SECONDS:
            self._written = now
            self._write(f"  {now - self._began:3.0f} s  {step}")
