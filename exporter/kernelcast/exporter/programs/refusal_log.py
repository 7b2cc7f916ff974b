"""Logs connections that the probe socket refuses, at a bounded rate whatever the refused processes send."""

import time
from collections.abc import Callable
from typing import Final

from kernelcast.runtime.logging import get_logger

INTERVAL_SECONDS: Final = 10.0

_log = get_logger(__name__)


class RefusalLog:
    """Writes one line per reason in ten seconds, and in it how many refusals the lines before left out.

    The limit of repeated lines in `runtime.logging` compares texts; a program chooses part of these.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._written: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def write(self, reason: str, detail: str, *, uid: int, pid: int) -> None:
        """Log a refusal, or count it for the next line of its reason.

        Args:
            reason: As it is counted; the values are few and fixed.
            detail: What happened, for people.
            uid: The user of the refused process.
            pid: The process; 0 where it lies outside this pid namespace.
        """
        now = self._clock()
        if now - self._written.get(reason, float("-inf")) < INTERVAL_SECONDS:
            self._suppressed[reason] = self._suppressed.get(reason, 0) + 1
            return
        self._written[reason] = now
        suppressed = self._suppressed.pop(reason, 0)
        _log.warning("probe refused", reason=reason, detail=detail, uid=uid, pid=pid, suppressed=suppressed)
