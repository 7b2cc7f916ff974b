"""The last error of each topic that a producer writes to, for readiness and pages."""

import threading
import time
from collections.abc import Callable
from typing import Final

FORGET_SECONDS: Final = 600.0
"""A topic that gets a message an hour would else keep a service from being ready for one message that was too large."""


class TopicErrors:
    """Says which topics do not take messages, and why. Thread-safe.

    An error stands until Kafka has confirmed a message of the same topic, or for ten minutes without another one.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._errors: dict[str, tuple[str, float]] = {}

    def failed(self, topic: str, reason: str) -> None:
        """Kafka has not taken a message of this topic."""
        with self._lock:
            self._errors[topic] = (reason, self._clock())

    def confirmed(self, topic: str) -> None:
        """Kafka has taken one."""
        if self._errors:
            with self._lock:
                self._errors.pop(topic, None)

    def text(self) -> str:
        """A sentence that names each topic with its last error; empty where there is none."""
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
