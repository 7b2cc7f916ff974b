"""When to sample: at deadlines a fixed interval apart, so that a slow interval delays no later one."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lateness:
    """How an interval began.

    Attributes:
        seconds: How long after its deadline.
        missed: Deadlines that had passed in the meantime, and are left out.
    """

    seconds: float
    missed: int


class Schedule:
    """Deadlines on a monotonic clock; the first is now.

    Args:
        interval_seconds: Between two deadlines.
        clock: Monotonic seconds.
    """

    def __init__(self, interval_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._deadline = clock()

    def wait_seconds(self) -> float:
        """How long it is until the next deadline; 0 where it has passed."""
        return max(0.0, self._deadline - self._clock())

    def begin(self) -> Lateness:
        """Begin an interval; the next deadline is the first one that has not passed."""
        late = max(0.0, self._clock() - self._deadline)
        missed = int(late // self._interval_seconds)
        self._deadline += (missed + 1) * self._interval_seconds
        return Lateness(late, missed)

    def change(self, interval_seconds: float) -> None:
        """Go on with another interval, from the last deadline."""
        self._deadline += interval_seconds - self._interval_seconds
        self._interval_seconds = interval_seconds
