"""Measures how long processes have waited for a processor, so that time limits can leave that time out."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from tests.faults.model.invariants import Violation
from tests.service.servers import ServerProcess

HEALTHY_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 5.0
"""After which a request for health has no response."""
MAX_TIMES: Final = 5


def check_health(ask: Callable[[], bool], server: ServerProcess) -> None:
    """Ask a server for its health, and once more if that takes too long.

    Args:
        ask: Sends a request; whether there was a response before its own time limit.
        server: The process that is asked.

    Raises:
        Violation: The last request has no response, or both responses take too long.
    """
    assert server.process is not None
    answered: list[bool] = []

    def asked_seconds() -> float:
        assert server.process is not None
        return own_seconds(lambda: answered.append(ask()), server.process.pid)

    took_seconds = [asked_seconds()]
    if took_seconds[0] > HEALTHY_SECONDS:
        took_seconds.append(asked_seconds())
    detail = f"{server.name}: {', '.join(f'{one:.2f} s' for one in took_seconds)}"
    if not answered[-1]:
        raise Violation("health is not answered", detail)
    if min(took_seconds) > HEALTHY_SECONDS:
        raise Violation("health takes too long", detail)


def waits(pid: int) -> dict[str, float]:
    """Seconds that each thread of a process has been runnable without a processor, since its start; see proc(5).

    Kafka's nodes have a hundred threads each and are asked every second, so no file is opened through `pathlib`: that
    takes four times as long.
    """
    found: dict[str, float] = {}
    tasks = f"/proc/{pid}/task"
    with suppress(OSError):  # the process has ended
        for name in os.listdir(tasks):  # noqa: PTH208  see above
            with suppress(OSError, IndexError):  # the thread has ended
                path = f"{tasks}/{name}/schedstat"
                found[path] = _waited_seconds(path)
    return found


def _waited_seconds(path: str) -> float:
    file = os.open(path, os.O_RDONLY)
    try:
        return int(os.read(file, 100).split()[1]) / 1e9
    finally:
        os.close(file)


def own_seconds(action: Callable[[], object], pid: int) -> float:
    """Seconds that an action takes, less the longest wait for a processor of a thread of each process.

    Args:
        action: Sends a request to the process.
        pid: The process that answers; the calling process is the other one.
    """
    pids = (pid, os.getpid())
    before, began = [waits(one) for one in pids], time.monotonic()
    action()
    took_seconds = time.monotonic() - began
    for one, then in zip(pids, before, strict=True):
        took_seconds -= max((waited - then.get(path, waited) for path, waited in waits(one).items()), default=0.0)
    return max(0.0, took_seconds)


class Patience:
    """A time limit that leaves out the time in which a process waits for a processor.

    It ends after `MAX_TIMES` as much real time in any case.
    """

    def __init__(self, limit_seconds: float, servers: Callable[[], Iterable[ServerProcess]]) -> None:
        """Begin.

        Args:
            limit_seconds: How long.
            servers: The processes that have something to do; asked each time, as they come and go.
        """
        self._limit_seconds, self._servers = limit_seconds, servers
        self._began = self._asked = time.monotonic()
        self._before: dict[str, float] = {}
        self._waited_seconds = 0.0
        self._note()

    @property
    def ended(self) -> bool:
        """Whether the limit is reached; asked at least every few seconds."""
        self._note()
        took_seconds = time.monotonic() - self._began
        own_seconds = took_seconds - self._waited_seconds
        return own_seconds > self._limit_seconds or took_seconds > MAX_TIMES * self._limit_seconds

    def _note(self) -> None:
        """Add the longest wait of any thread since the last call."""
        alive = [one.process.pid for one in self._servers() if one.process is not None and one.poll() is None]
        now = {path: waited for pid in (*alive, os.getpid()) for path, waited in waits(pid).items()}
        asked = time.monotonic()
        longest = max((waited - self._before.get(path, 0.0) for path, waited in now.items()), default=0.0)
        self._waited_seconds += min(longest, asked - self._asked)
        self._asked, self._before = asked, now
