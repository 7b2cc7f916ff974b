"""Time, passed in."""

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time."""

    def monotonic(self) -> float:
        """Seconds that only rise."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""


class SystemClock:
    """This machine's."""

    def monotonic(self) -> float:
        """Seconds that only rise."""
        return time.monotonic()

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return time.time_ns()
