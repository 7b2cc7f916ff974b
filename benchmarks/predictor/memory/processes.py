"""Runs parts of a benchmark in processes of their own, and measures locks."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def in_process(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Call a function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


class TimedLock:
    """A reentrant lock that measures how long it is held and waited for.

    Attributes:
        held_seconds: How long it was held each time, by the clock.
        worked_seconds: Processor time of the holder, each time; on a busy machine less than that by the clock.
        waited_seconds: How long it was waited for, each time, by thread.
    """

    def __init__(self) -> None:
        self.held_seconds: list[float] = []
        self.worked_seconds: list[float] = []
        self.waited_seconds: dict[str, list[float]] = {}
        self._lock = threading.RLock()
        self._depth = 0
        self._since = (0.0, 0.0)

    def __enter__(self) -> None:
        asked = time.perf_counter()
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            self._since = (time.perf_counter(), time.thread_time())
            name = threading.current_thread().name
            self.waited_seconds.setdefault(name, []).append(self._since[0] - asked)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.held_seconds.append(time.perf_counter() - self._since[0])
            self.worked_seconds.append(time.thread_time() - self._since[1])
        self._lock.release()
