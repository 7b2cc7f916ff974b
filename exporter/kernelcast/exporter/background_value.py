"""A value that a background thread keeps up to date, so that the daemon's loop never waits for a slow source.

Sources that may block use it: the kubelet, the API server, job directories, the kernel's log, TPUs.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.threads import Worker

STOP_SECONDS: Final = 2.0
"""Longest wait of `close` for a fetch in progress; one that hangs is abandoned with its daemon thread."""
MIN_PAUSE_SECONDS: Final = 1.0
"""Shortest time between two fetches, however often `soon` is called."""

_Value = TypeVar("_Value")
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RefreshPolicy:
    """Interval between fetches, and the time for which an answer is valid.

    Attributes:
        interval_seconds: Time between two fetches.
        keep_seconds: How long an answer is valid if no newer one follows.
        monotonic: Monotonic seconds.
    """

    interval_seconds: float
    keep_seconds: float
    monotonic: Callable[[], float] = time.monotonic


class Refreshed(Generic[_Value]):
    """Fetches a value at intervals, and earlier on request; a value that is too old is not returned.

    `fetch` and `on_error` run on the object's own thread (or the caller's, in `refresh`). Any thread may read `value`:
    the answer is one tuple that is replaced as a whole.

    Args:
        source: Its name in metrics and logs.
        fetch: Gets the value; may block and raise. None means that this node has no such source, which is no error.
        empty: The value before the first answer, and after the last one became older than `keep_seconds`.
        pace: Interval between fetches, and how long an answer is valid.
        on_error: Called with the source, once for each fetch that failed.
    """

    def __init__(
        self,
        source: str,
        fetch: Callable[[], _Value | None],
        empty: _Value,
        *,
        pace: RefreshPolicy,
        on_error: Callable[[str], None],
    ) -> None:
        self.source = source
        self._fetch = fetch
        self._empty = empty
        self._pace = pace
        self._on_error = on_error
        self._answer: tuple[float, _Value] | None = None
        self._trouble = ""
        self._asked = threading.Event()
        self._tried = threading.Event()
        self._thread = Worker(f"{source}-refresh", self._run)
        self._stopping = self._thread.stopping

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop fetching, with a short wait for a fetch in progress; safe to call twice."""
        self._stopping.set()
        self._asked.set()
        self._thread.stop(STOP_SECONDS)

    def wait_for_first(self, seconds: float) -> None:
        """Wait for the first fetch, within a time limit; used only at the start of the daemon."""
        self._tried.wait(seconds)

    @property
    def value(self) -> _Value:
        """The last answer, or the empty one."""
        answer = self._answer
        if answer is None or self._pace.monotonic() - answer[0] > self._pace.keep_seconds:
            return self._empty
        return answer[1]

    @property
    def age_seconds(self) -> float | None:
        """Age of the last answer; None before the first."""
        answer = self._answer
        return None if answer is None else self._pace.monotonic() - answer[0]

    @property
    def keep_seconds(self) -> float:
        """Age up to which an answer is used."""
        return self._pace.keep_seconds

    def soon(self) -> None:
        """Request an early fetch, because the last answer lacks an entry."""
        self._asked.set()

    def refresh(self) -> None:
        """Fetch once; a failure is counted, and logged unless the last fetch failed in the same way."""
        try:
            value = self._fetch()
        except Exception as error:  # noqa: BLE001  whatever a service answers, the node's other metrics go on
            self._on_error(self.source)
            trouble = f"{type(error).__name__}: {error}"
            if trouble != self._trouble:
                _log.warning("cannot be refreshed", source=self.source, reason=trouble)
            self._trouble = trouble
            return
        self._answer = None if value is None else (self._pace.monotonic(), value)
        if self._trouble:
            _log.info("refreshed again", source=self.source)
            self._trouble = ""

    def _run(self) -> None:
        while True:
            self._asked.clear()
            if self._stopping.is_set():  # asked after `clear`, which may have undone the `set` of `close`
                return
            self.refresh()
            self._tried.set()
            self._stopping.wait(MIN_PAUSE_SECONDS)
            self._asked.wait(max(0.0, self._pace.interval_seconds - MIN_PAUSE_SECONDS))
