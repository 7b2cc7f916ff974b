"""Pauses before a request is sent again.

Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015: full jitter.
"""

from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final

FIRST_SECONDS: Final = 0.5
"""Limit of the first pause; it doubles with each failure."""
LONGEST_SECONDS: Final = 30.0
"""Limit of a pause, so that a receiver that is back gets points within half a minute."""
LONGEST_ASKED_SECONDS: Final = 600.0
"""Longest pause that a receiver may ask for."""


class Backoff:
    """Grows with each failure, from half a second to half a minute at most; begins again after `reset`."""

    def __init__(self, random: Callable[[], float]) -> None:
        """Begin.

        Args:
            random: Uniform between 0 and 1.
        """
        self._random = random
        self._limit_seconds = FIRST_SECONDS

    def next_seconds(self, asked_seconds: float | None = None) -> float:
        """The next pause.

        Args:
            asked_seconds: The pause that the receiver asks for; up to half of it is added at random, to spread senders.
        """
        limit = self._limit_seconds
        self._limit_seconds = min(limit * 2, LONGEST_SECONDS)
        if asked_seconds is None:
            return self._random() * limit
        asked = min(max(asked_seconds, 0.0), LONGEST_ASKED_SECONDS)
        return asked + self._random() * min(limit, asked / 2)

    def reset(self) -> None:
        """It worked."""
        self._limit_seconds = FIRST_SECONDS


def retry_after_seconds(value: str | None, now_seconds: float) -> float | None:
    """Seconds from now of a `Retry-After` header; None without a valid one.

    Args:
        value: The header: seconds, or an HTTP date.
        now_seconds: Unix time.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_seconds)
    except (ValueError, OverflowError):
        return None
