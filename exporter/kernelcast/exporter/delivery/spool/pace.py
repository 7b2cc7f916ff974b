"""Limits the replay speed of a spool, so that a thousand nodes do not overload a Kafka that has just returned.

`SpoolBacklog` has one for each topic, reports Kafka's answers to it, and asks `allows` before each message from disk.
"""

from collections.abc import Callable
from typing import Final

BURST_SECONDS: Final = 2.0
"""The allowance that an unused rate may accumulate, as seconds of that rate."""
FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 60.0
"""The wait after a failure doubles from the first to the longest."""


class SendThrottle:
    """Decides whether the next message of one topic may be sent. Not thread-safe; the backlog's lock protects it.

    While it is unknown whether Kafka answers, one message is sent as a probe. After it has been confirmed, the others
    follow after a random wait that differs between nodes, at a bounded rate (a token bucket: `_allowance` is in bytes
    and grows by the rate; `_granted` are further bytes, for new messages that have joined the queue on disk).

    Args:
        bytes_per_second: The rate.
        jitter: Draws the wait, seconds.
    """

    def __init__(self, bytes_per_second: float, jitter: Callable[[], float]) -> None:
        self._rate = bytes_per_second
        self._jitter = jitter
        self._allowance = self._granted = 0.0
        self._refilled = 0.0
        self._not_before = 0.0
        self._retry_seconds = FIRST_RETRY_SECONDS
        self.is_up = False
        """Whether Kafka's last answer was a confirmation."""
        self.is_suspended = False
        """Whether Kafka has been silent or has refused a message since its last confirmation."""

    def confirmed(self, now: float) -> None:
        """Note that Kafka has confirmed a message; `now` is monotonic seconds."""
        self._retry_seconds = FIRST_RETRY_SECONDS
        self.is_suspended = False
        if not self.is_up:
            self.is_up = True
            self._not_before = now + self._jitter()
            self._refilled, self._allowance, self._granted = self._not_before, 0.0, 0.0

    def suspended(self) -> None:
        """Note that Kafka has not answered for a while."""
        self.is_up, self.is_suspended = False, True

    def failed(self, now: float) -> None:
        """Note that messages have failed; the wait grows each time."""
        self.suspended()
        self._not_before = now + self._retry_seconds
        self._retry_seconds = min(self._retry_seconds * 2, LONGEST_RETRY_SECONDS)

    def allows(self, now: float, *, in_flight: int) -> bool:
        """Whether one more message may be sent, given the number of unconfirmed ones."""
        if now < self._not_before:
            return False
        if not self.is_up:
            return in_flight == 0
        burst = self._rate * BURST_SECONDS
        self._allowance = min(self._allowance + (now - self._refilled) * self._rate, burst)
        self._refilled = now
        return self._allowance + self._granted >= 0

    def granted(self, size_bytes: int) -> None:
        """Raise the allowance by the size of a new message, or a busy node would never catch up."""
        if self.is_up:
            self._granted += size_bytes

    def spent(self, size_bytes: int) -> None:
        """Note that a message of this size was sent."""
        granted = min(self._granted, size_bytes)
        self._granted -= granted
        self._allowance -= size_bytes - granted
