"""A token bucket: allows a burst at once, then one event in each interval.

It limits dead letters, HTTP requests and wrong passwords.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class TokenBucket:
    """Token bucket that starts full. Safe for several threads.

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
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._tokens = float(self.burst)
        self._filled_at = self.clock()

    def take(self) -> bool:
        """Take a token; returns whether there was one."""
        with self._lock:
            now = self.clock()
            gained = max(0.0, now - self._filled_at) / self.interval_seconds
            self._tokens, self._filled_at = min(self.burst, self._tokens + gained), now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def give_back(self) -> None:
        """Return a token that was not needed."""
        with self._lock:
            self._tokens = min(self.burst, self._tokens + 1)
