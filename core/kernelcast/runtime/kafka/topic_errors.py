"""The last error of each topic that a producer writes to; the producer's readiness check shows it."""

import threading
import time
from collections.abc import Callable
from typing import Final

FORGET_SECONDS: Final = 600.0
"""Time after which an error is forgotten. Without it, one message that was too large could make a service unready for
an hour, if its topic gets one message an hour."""


class TopicErrors:
    """Records the topics that refuse messages, with the reason. Thread-safe.

    An error is kept until Kafka has confirmed a message of the same topic, or for ten minutes without another one.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._errors: dict[str, tuple[str, float]] = {}

    def failed(self, topic: str, reason: str) -> None:
        """Note that Kafka has refused a message of this topic."""
        with self._lock:
            self._errors[topic] = (reason, self._clock())

    def confirmed(self, topic: str) -> None:
        """Note that Kafka has confirmed a message of this topic."""
        if self._errors:
            with self._lock:
                self._errors.pop(topic, None)

    def text(self) -> str:
        """Return a sentence that names each topic with its last error; empty without errors."""
        now = self._clock()
        with self._lock:
            standing = [
                f"{topic}: {reason} ({now - when:.0f} s ago)"
                for topic, (reason, when) in sorted(self._errors.items())
                if now - when < FORGET_SECONDS
            ]
        if not standing:
            return ""
        return f"Kafka does not take messages of {'; '.join(standing)}; `kernelcast topics apply` sets what topics need"
