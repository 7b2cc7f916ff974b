"""Waits for what another thread does."""

import threading
import time
from collections.abc import Callable
from typing import Final

LONGEST_SECONDS: Final = 10.0
INTERVAL_SECONDS: Final = 0.005


def wait_for(condition: Callable[[], bool], *, longest_seconds: float = LONGEST_SECONDS) -> bool:
    """Wait until a condition holds, at most for some seconds; returns whether it does."""
    deadline, pause = time.monotonic() + longest_seconds, threading.Event()
    while not condition() and time.monotonic() < deadline:
        pause.wait(INTERVAL_SECONDS)
    return condition()
