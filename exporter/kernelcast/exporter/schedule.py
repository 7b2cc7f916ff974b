"""Deadlines a fixed interval apart, so that a slow interval delays no later one."""

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lateness:
    """The start of an interval: its time and lateness.

    Attributes:
        seconds: How long after its deadline.
        missed: Deadlines that had passed in the meantime, and are left out.
    """

    seconds: float
    missed: int


def phase_of(hostname: str) -> float:
    """A host's own moment within every interval, as a share of it: the same at each start, another on another host."""
    return zlib.crc32(hostname.encode(errors="replace")) / 2**32


class Schedule:
    """Deadlines on a monotonic clock; the first is now.

    Args:
        interval_seconds: Between two deadlines.
        clock: Monotonic seconds.
        phase: Where in each interval of Unix time the deadlines after the first lie, as a share of it, so that a fleet
            that was started at once does not sample, send and save its state at once; None lets them follow the first.
        unix: Unix seconds, looked at when the phase is sought.
    """

    def __init__(
        self,
        interval_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        phase: float | None = None,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._phase = phase
        self._unix = unix
        self._in_phase = phase is None
        self._deadline = clock()

    def wait_seconds(self) -> float:
        """Seconds until the next deadline; 0 where it has passed."""
        return max(0.0, self._deadline - self._clock())

    def begin(self) -> Lateness:
        """Begin an interval; the next deadline is the first one that has not passed."""
        late = max(0.0, self._clock() - self._deadline)
        missed = int(late // self._interval_seconds)
        self._deadline += (missed + 1) * self._interval_seconds
        if not self._in_phase:
            self._find_phase()
        return Lateness(late, missed)

    def change(self, interval_seconds: float) -> None:
        """Go on with another interval, from the last deadline."""
        self._deadline += interval_seconds - self._interval_seconds
        self._interval_seconds = interval_seconds
        self._in_phase = self._phase is None

    def _find_phase(self) -> None:
        """Move the next deadline to the host's moment that is nearest to it."""
        self._in_phase = True
        unix_deadline = self._unix() + self._deadline - self._clock()
        ahead = ((self._phase or 0.0) * self._interval_seconds - unix_deadline) % self._interval_seconds
        self._deadline += ahead if ahead < self._interval_seconds / 2 else ahead - self._interval_seconds
