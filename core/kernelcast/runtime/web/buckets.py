"""A token bucket: a burst at once, then one token in each interval."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Bucket:
    """Token bucket that starts full. Only one thread may use it.

    Attributes:
        interval_seconds: Time in which one token is added.
        burst: Largest number of tokens.
        clock: Monotonic seconds.
    """

    interval_seconds: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _tokens: float = field(init=False)
    _filled_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens = float(self.burst)
        self._filled_at = self.clock()

    def take(self) -> bool:
        """Take a token; returns whether there was one."""
        now = self.clock()
        self._tokens = min(self.burst, self._tokens + (now - self._filled_at) / self.interval_seconds)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        """Return a token that was not needed."""
        self._tokens = min(self.burst, self._tokens + 1)
