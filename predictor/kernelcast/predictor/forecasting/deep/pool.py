"""Worker processes behind a bounded queue: a request has the window of a series, its answer has the fitted models.

`cycle.deep_fits` submits requests and collects answers in a later cycle; a backtest waits for them (`pooled_fits`). A
thread for each process waits for its answers; it holds no lock and works on small arrays, so the reading of Kafka does
not wait for a fit. A process is started with the first request, stopped after a quarter of an hour without one, and
replaced when it ends by itself or does not answer in time.
"""

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from kernelcast.predictor.forecasting.deep.messages import FitAnswer, FitRequest
from kernelcast.predictor.forecasting.deep.process import FitProcess, Fitter, ProcessEndedError
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.threads import Worker

QUEUED_REQUESTS: Final = 1024
"""Requests that wait at most; a further one is refused, and counted by the caller."""
STOP_SECONDS: Final = 5.0
"""Time for stopping all processes of a backtest."""
ANSWER_SECONDS: Final = 60.0
"""Time for an answer, the start of the process included; a fit takes a tenth of a second."""
IDLE_SECONDS: Final = 900.0
"""Time without requests after which a process is stopped, which frees its memory."""
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Before a process is started again, if it has ended several times in a row without an answer."""

_log = get_logger(__name__)


class Shed(StrEnum):
    """Reason why a window was not fitted, or its models not used."""

    OVER_BUDGET = "over_budget"  # more windows in a block than fits_per_block
    QUEUE_FULL = "queue_full"  # too many requests wait
    HUNG = "hung"  # the process did not answer in time, and was replaced
    ENDED = "ended"  # the process ended before it answered
    LATE = "late"  # the answer came after the block in which it was to be used


@dataclass(frozen=True, slots=True)
class Answered:
    """Result of a request.

    Attributes:
        ticket: As given with the request.
        answer: The models.
        reason: Why there are none, where no process answered.
    """

    ticket: int
    answer: FitAnswer
    reason: Shed | None = None


class Pool(Protocol):
    """Fits windows; answers come later."""

    @property
    def starts(self) -> int:
        """Processes started so far."""

    def submit(self, ticket: int, request: FitRequest) -> bool:
        """Queue a window; False where the queue is full."""

    def answers(self, wait_seconds: float = 0.0) -> list[Answered]:
        """Take the answers that have come since the last call; waits for the first one on request."""

    def close(self, timeout_seconds: float) -> None:
        """Stop all processes; requests that wait are dropped."""


class FitPool:
    """`Pool` of processes; safe for several threads."""

    def __init__(
        self,
        workers: int,
        start: Callable[[], Fitter] = FitProcess,
        *,
        queued: int = QUEUED_REQUESTS,
        answer_seconds: float = ANSWER_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        pause_seconds: float = 1.0,
    ) -> None:
        """Prepare; no process runs before the first request.

        Args:
            workers: Most processes at a time.
            start: Starts one; raises OSError if it cannot be started.
            queued: Most requests that wait.
            answer_seconds: After which a process counts as hung.
            idle_seconds: After which a process without requests is stopped.
            pause_seconds: Before another start, if a process ended without any answer; doubles each time.
        """
        self._start = start
        self._answer_seconds, self._idle_seconds, self._pause_seconds = answer_seconds, idle_seconds, pause_seconds
        self._requests: queue.Queue[tuple[int, FitRequest] | None] = queue.Queue(queued)
        # Each answer belongs to a request that was queued; `answers` is called with each cycle.
        self._answers: queue.SimpleQueue[Answered] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[int, Fitter] = {}
        self._counts: Counter[str] = Counter()
        self._threads = [Worker(f"fits-{number}", self._serve, number) for number in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def starts(self) -> int:
        """See `Pool`."""
        return self._counts["starts"]

    def submit(self, ticket: int, request: FitRequest) -> bool:
        """See `Pool`."""
        try:
            self._requests.put_nowait((ticket, request))
        except queue.Full:
            return False
        return True

    def answers(self, wait_seconds: float = 0.0) -> list[Answered]:
        """See `Pool`."""
        answered: list[Answered] = []
        while True:
            waits = bool(wait_seconds) and not answered
            try:
                answered.append(self._answers.get(block=waits, timeout=wait_seconds or None))
            except queue.Empty:
                return answered

    def fit_all(self, requests: Sequence[FitRequest]) -> list[FitAnswer]:
        """Fit windows and wait for all of them; not while other requests are under way."""
        answers: dict[int, FitAnswer] = {}
        waiting = list(enumerate(requests))[::-1]
        while len(answers) < len(requests):
            while waiting and self.submit(*waiting[-1]):
                waiting.pop()
            answered = self._answers.get()
            answers[answered.ticket] = answered.answer
        return [answers[number] for number in range(len(requests))]

    def close(self, timeout_seconds: float) -> None:
        """See `Pool`."""
        with self._lock:
            self._ending.set()
            for fitter in self._running.values():
                fitter.stop()
        for _ in self._threads:
            with suppress(queue.Full):  # then there are requests, and each thread wakes up with one
                self._requests.put_nowait(None)
        for thread in self._threads:
            thread.join(timeout_seconds / len(self._threads))

    def _serve(self, number: int) -> None:
        unanswered = 0
        while not self._ending.is_set():
            item = self._next(self._idle_seconds if number in self._running else None)
            if item is None:
                self._drop(number)
                continue
            ticket, request = item
            if unanswered:
                self._ending.wait(min(self._pause_seconds * 2 ** (unanswered - 1), LONGEST_PAUSE_SECONDS))
            answered = self._ask(number, ticket, request)
            unanswered = unanswered + 1 if answered.reason is Shed.ENDED else 0
            self._answers.put(answered)
        self._drop(number)

    def _next(self, wait_seconds: float | None) -> tuple[int, FitRequest] | None:
        """The next request; None after a wait without one, or at the end."""
        try:
            return self._requests.get(timeout=wait_seconds)
        except queue.Empty:
            return None

    def _ask(self, number: int, ticket: int, request: FitRequest) -> Answered:
        try:
            answer = self._fitter(number).fit(request, self._answer_seconds)
        except (ProcessEndedError, OSError) as error:
            self._drop(number)
            if not self._ending.is_set():
                _log.warning("a process that fits has ended; another one takes its place", reason=str(error))
            return Answered(ticket, FitAnswer(), Shed.ENDED)
        if answer is None:
            self._drop(number)
            _log.warning("a fit took too long; its process is replaced", limit_seconds=self._answer_seconds)
            return Answered(ticket, FitAnswer(), Shed.HUNG)
        return Answered(ticket, answer)

    def _fitter(self, number: int) -> Fitter:
        with self._lock:
            if self._ending.is_set():
                raise ProcessEndedError("the predictor stops")
            if number not in self._running:
                self._running[number] = self._start()
                self._counts["starts"] += 1
            return self._running[number]

    def _drop(self, number: int) -> None:
        with self._lock:
            fitter = self._running.pop(number, None)
        if fitter is not None:
            fitter.stop()


@contextmanager
def pooled_fits(workers: int) -> Iterator[Callable[[Sequence[FitRequest]], list[FitAnswer]]]:
    """Give a function that fits windows in processes and waits for all of them; stops the processes at the end."""
    pool = FitPool(workers)
    try:
        yield pool.fit_all
    finally:
        pool.close(STOP_SECONDS)
