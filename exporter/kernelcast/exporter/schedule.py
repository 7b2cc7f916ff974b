"""Deadlines at fixed intervals, so that a slow interval does not delay later ones."""

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lateness:
    """The start of an interval: its time and lateness.

    Attributes:
        seconds: Time since its deadline.
        missed: Number of deadlines that had passed in the meantime and are skipped.
    """

    seconds: float
    missed: int


def phase_of(hostname: str) -> float:
    """Return a host's phase within every interval, as a share of it: constant per host, different between hosts."""
    return zlib.crc32(hostname.encode(errors="replace")) / 2**32


class Deadlines:
    """Deadlines on a monotonic clock; the first is now.

    Args:
        interval_seconds: Time between two deadlines.
        clock: Monotonic seconds.
        phase: Position of the deadlines after the first in each interval of Unix time, as a share of it, so that a
            fleet that was started together does not sample, send and save at the same time; None counts from the first.
        unix: Unix seconds, used to compute the phase.
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
        """Return the seconds until the next deadline; 0 if it has passed."""
        return max(0.0, self._deadline - self._clock())

    def begin(self) -> Lateness:
        """Start an interval; the next deadline is the first one that has not passed."""
        late = max(0.0, self._clock() - self._deadline)
        missed = int(late // self._interval_seconds)
        self._deadline += (missed + 1) * self._interval_seconds
        if not self._in_phase:
            self._find_phase()
        return Lateness(late, missed)

    def change(self, interval_seconds: float) -> None:
        """Change the interval, counted from the last deadline; the next one is now if that has passed."""
        self._deadline = max(self._clock(), self._deadline + interval_seconds - self._interval_seconds)
        self._interval_seconds = interval_seconds
        self._in_phase = self._phase is None

    def _find_phase(self) -> None:
        """Move the next deadline to the nearest time with the host's phase."""
        self._in_phase = True
        unix_deadline = self._unix() + self._deadline - self._clock()
        ahead = ((self._phase or 0.0) * self._interval_seconds - unix_deadline) % self._interval_seconds
        self._deadline += ahead if ahead < self._interval_seconds / 2 else ahead - self._interval_seconds
