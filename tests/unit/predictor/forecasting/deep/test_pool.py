"""The pool with stand-ins for its processes: every request has an answer, whatever becomes of the process."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from kernelcast.predictor.forecasting.deep.messages import FitAnswer, FitRequest
from kernelcast.predictor.forecasting.deep.pool import Answered, FitPool, Shed
from kernelcast.predictor.forecasting.deep.process import ProcessEndedError

REQUEST = FitRequest(np.arange(3.0), 2, 0)
LIMIT_SECONDS = 20.0


@dataclass
class StandIn:
    """Answers, or ends, or hangs, as its turn says."""

    turns: list[str]
    asked: threading.Event
    stopped: threading.Event
    gate: threading.Event = field(default_factory=threading.Event)

    def fit(self, _request: FitRequest, _timeout_seconds: float) -> FitAnswer | None:
        self.asked.set()
        turn = self.turns.pop(0) if self.turns else "answer"
        if turn == "end":
            raise ProcessEndedError("killed")
        if turn == "wait":
            self.gate.wait(LIMIT_SECONDS)
        return None if turn == "hang" else FitAnswer(seconds=0.5)

    def stop(self) -> None:
        self.gate.set()
        self.stopped.set()


@dataclass
class Running:
    pool: FitPool
    asked: threading.Event
    stopped: threading.Event


Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    pools: list[FitPool] = []

    def started(turns: list[str], *, queued: int = 10, idle_seconds: float = 900.0, fails: int = 0) -> Running:
        asked, stopped, left = threading.Event(), threading.Event(), [fails]

        def fitter() -> StandIn:
            if left[0]:
                left[0] -= 1
                raise OSError("no memory")
            return StandIn(turns, asked, stopped)

        pools.append(FitPool(1, fitter, queued=queued, idle_seconds=idle_seconds, pause_seconds=0.001))
        return Running(pools[-1], asked, stopped)

    yield started
    for pool in pools:
        pool.close(5.0)


def answers(pool: FitPool, count: int) -> list[Answered]:
    found: list[Answered] = []
    while len(found) < count and (more := pool.answers(LIMIT_SECONDS)):
        found += more
    return found


def test_no_process_runs_before_the_first_request(start: Start) -> None:
    running = start([])
    assert (running.pool.starts, running.pool.answers()) == (0, [])


@pytest.mark.parametrize(("turn", "reason"), [("end", Shed.ENDED), ("hang", Shed.HUNG)])
def test_a_process_that_ends_or_hangs_is_replaced_and_its_request_given_up(
    start: Start, turn: str, reason: Shed
) -> None:
    running = start(["answer", turn, "answer"])
    assert all(running.pool.submit(ticket, REQUEST) for ticket in range(3))
    found = answers(running.pool, 3)
    assert [(each.ticket, each.reason) for each in found] == [(0, None), (1, reason), (2, None)]
    assert running.pool.starts == 2
    assert running.stopped.is_set()


def test_a_process_that_cannot_be_started_is_tried_again(start: Start) -> None:
    running = start([], fails=2)
    assert all(running.pool.submit(ticket, REQUEST) for ticket in range(3))
    assert [each.reason for each in answers(running.pool, 3)] == [Shed.ENDED, Shed.ENDED, None]


def test_a_full_queue_refuses(start: Start) -> None:
    running = start(["wait"], queued=2)
    assert running.pool.submit(0, REQUEST)
    assert running.asked.wait(LIMIT_SECONDS)
    assert [running.pool.submit(ticket, REQUEST) for ticket in (1, 2, 3)] == [True, True, False]


def test_closing_does_not_wait_for_a_fit(start: Start) -> None:
    running = start(["wait"])
    running.pool.submit(0, REQUEST)
    assert running.asked.wait(LIMIT_SECONDS)
    begun = time.monotonic()
    running.pool.close(5.0)
    assert time.monotonic() - begun < 4.0
    assert running.stopped.is_set()


def test_a_process_without_work_is_stopped_and_started_again(start: Start) -> None:
    running = start([], idle_seconds=0.01)
    running.pool.submit(0, REQUEST)
    assert len(answers(running.pool, 1)) == 1
    assert running.stopped.wait(LIMIT_SECONDS)
    running.pool.submit(1, REQUEST)
    assert len(answers(running.pool, 1)) == 1
    assert running.pool.starts == 2


def test_all_windows_of_a_recording_are_answered_in_order_though_the_queue_is_short(start: Start) -> None:
    running = start(["answer", "end", "answer", "hang"], queued=2)
    found = running.pool.fit_all([REQUEST] * 7)
    assert [each.seconds for each in found] == [0.5, 0.0, 0.5, 0.0, 0.5, 0.5, 0.5]
