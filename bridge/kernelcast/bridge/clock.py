"""The clock that the bridge's parts are given, so that tests can set the time. Any thread may ask it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic and wall-clock time."""

    def monotonic(self) -> float:
        """Seconds that only rise."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        """Seconds that only rise."""
        return time.monotonic()

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return time.time_ns()
