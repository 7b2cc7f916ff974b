"""Logs connections that the probe socket refuses, at a rate that the refused processes cannot raise."""

import time
from collections.abc import Callable
from typing import Final

from kernelcast.runtime.logging import get_logger

INTERVAL_SECONDS: Final = 10.0

_log = get_logger(__name__)


class RefusalLog:
    """Writes one line per reason in ten seconds, with the number of refusals that were not logged since the last line.

    The limit of repeated lines in `runtime.logging` compares texts, and a program chooses part of these texts.

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
            reason: Value of the counter's label; there are few.
            detail: Description, for people.
            uid: The user of the refused process.
            pid: The process; 0 if it is outside this pid namespace.
        """
        now = self._clock()
        if now - self._written.get(reason, float("-inf")) < INTERVAL_SECONDS:
            self._suppressed[reason] = self._suppressed.get(reason, 0) + 1
            return
        self._written[reason] = now
        suppressed = self._suppressed.pop(reason, 0)
        _log.warning("probe refused", reason=reason, detail=detail, uid=uid, pid=pid, suppressed=suppressed)
