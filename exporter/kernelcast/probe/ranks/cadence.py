"""Chooses the steps at which the ranks meet: every two seconds while no trial is open, more often in a trial.

All ranks must meet at the same step, so the first rank announces each meeting one meeting ahead, as a number of
boundaries (ends of steps). `Council` asks `due` at each boundary.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

IDLE_SECONDS: Final = 2.0
ACTIVE_SECONDS: Final = 0.25
LONGEST_IDLE_SECONDS: Final = 10.0
# An order to stop must reach all ranks within two seconds, if steps are shorter than that.
LONGEST_ACTIVE_SECONDS: Final = 1.0
# Share of the time that meetings may take while no trial is open, within the limits above.
IDLE_COST: Final = 0.002
ACTIVE_COST: Final = 0.01
MAX_PAUSE: Final = 1024
# Boundaries between two meetings; a trial's is shorter, because its report must hold the times of all launches.
MAX_ACTIVE_PAUSE: Final = 256
# A pause grows at most by this factor, because the length of the next steps is not known.
GROWTH: Final = 2


class Cadence:
    """Counts boundaries down to the next meeting. One for each `Council`, on the program's thread.

    Args:
        clock: Nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._left = self._next = 1
        self._passed = 0
        self._since_ns = clock()
        self._boundary_seconds = 0.0
        self._exchange_seconds: deque[float] = deque(maxlen=8)

    @property
    def announced(self) -> int:
        """Boundaries from the next meeting to the one after it, as all ranks know them."""
        return self._next

    def due(self) -> bool:
        """Count a boundary; returns whether the ranks meet at it."""
        self._left -= 1
        self._passed += 1
        return self._left <= 0

    def choose(self, *, active: bool) -> int:
        """Return the boundaries from the meeting after the next one to the one after that."""
        now_ns = self._clock()
        if self._passed:
            self._boundary_seconds = (now_ns - self._since_ns) / 1e9 / self._passed
        cost = min(self._exchange_seconds, default=0.0)
        if active:
            seconds = min(max(ACTIVE_SECONDS, cost / ACTIVE_COST), LONGEST_ACTIVE_SECONDS)
        else:
            seconds = min(max(IDLE_SECONDS, cost / IDLE_COST), LONGEST_IDLE_SECONDS)
        longest = min(MAX_ACTIVE_PAUSE if active else MAX_PAUSE, GROWTH * self._next + 1)
        if seconds >= longest * self._boundary_seconds:
            return longest
        return max(1, int(seconds / self._boundary_seconds))

    def exchanged(self, duration_ns: int) -> None:
        """Note the duration of an exchange."""
        self._exchange_seconds.append(duration_ns / 1e9)

    def set(self, pause: int, next_pause: int) -> None:
        """Take over the first rank's announcement."""
        self._left, self._next = pause, next_pause
        self._count_again()

    def go_on(self) -> None:
        """Keep to the earlier announcement, because a message is missing."""
        self._left = self._next
        self._count_again()

    def _count_again(self) -> None:
        self._passed = 0
        self._since_ns = self._clock()
