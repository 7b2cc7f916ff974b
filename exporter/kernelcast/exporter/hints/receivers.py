"""Records which users' processes received which hint: an outcome is accepted only from one of them.

Sessions add to it when they send a hint, and ask it when an outcome arrives; `StateFile` stores it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from kernelcast.wire.cloudevents import NANOSECONDS

MAX_HINTS: Final = 4096
"""Bound of memory; beyond it the oldest hint is forgotten, and outcomes of it are refused."""
UNKNOWN_SECONDS: Final = 3600.0
"""Time for which outcomes of unknown hints are accepted after a start without a stored list, because the hints may have
been delivered before. It is six times the default life of a hint."""


class HintReceivers:
    """Users by hint. Thread-safe.

    The exporter's state stores them, because a program may send an outcome long after the exporter was restarted, and
    an expired hint is not delivered again.

    Args:
        clock: Unix nanoseconds.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._lock = threading.Lock()
        self._uids: OrderedDict[str, set[int]] = OrderedDict()
        self._unknown_until_ns = clock() + round(UNKNOWN_SECONDS * NANOSECONDS)

    def add(self, hint_id: str, uid: int) -> None:
        """Record that a process of this user received the hint."""
        with self._lock:
            self._uids.setdefault(hint_id, set()).add(uid)
            while len(self._uids) > MAX_HINTS:
                self._uids.popitem(last=False)

    def includes(self, hint_id: str, uid: int, now_ns: int) -> bool:
        """Whether a process of this user got the hint; `now_ns` is Unix nanoseconds."""
        with self._lock:
            uids = self._uids.get(hint_id)
            return now_ns < self._unknown_until_ns if uids is None else uid in uids

    def document(self) -> list[Any]:
        """The list, as the state stores it."""
        with self._lock:
            return [[hint_id, sorted(uids)] for hint_id, uids in self._uids.items()]

    def restore(self, document: Any) -> None:
        """Replace the content by a stored list.

        Raises:
            TypeError, ValueError: It is not one that `document` made.
        """
        uids = OrderedDict((str(hint_id), {int(uid) for uid in found}) for hint_id, found in document)
        with self._lock:
            self._uids, self._unknown_until_ns = uids, 0
