"""Stopping and reloading."""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import pytest

from kernelcast.runtime.lifecycle import Shutdown


@contextmanager
def limit_seconds(seconds: float) -> Iterator[None]:
    """Interrupt a main thread that waits for a lock which it holds itself."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError("the signal handler waits for ever")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def signal_inside(code: Any, number: int) -> Iterator[None]:
    """Send this process a signal at the first line of a function, once."""
    lines = 0

    def at_line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if event == "line" and lines == 1:
            signal.raise_signal(number)
        return at_line

    previous = sys.gettrace()
    sys.settrace(lambda frame, *_: at_line if frame.f_code is code else None)
    try:
        yield
    finally:
        sys.settrace(previous)


def test_sigterm_asks_to_stop() -> None:
    with Shutdown().signals() as shutdown:
        os.kill(os.getpid(), signal.SIGTERM)

        assert shutdown.wait(5)


def test_sigterm_stops_a_main_thread_that_is_entering_a_wait() -> None:
    inside = Shutdown.wait.__code__
    with Shutdown().signals() as shutdown, limit_seconds(5), signal_inside(inside, signal.SIGTERM):
        stopped = shutdown.wait(60)

    assert stopped
    assert shutdown.requested


def test_sigterm_stops_all_waiting_threads_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    stopped: list[bool] = []
    with Shutdown().signals() as shutdown:
        threads = [threading.Thread(target=lambda: stopped.append(shutdown.wait(5))) for _ in range(3)]
        for thread in threads:
            thread.start()
        monkeypatch.setattr(_thread, "start_new_thread", refuse)
        os.kill(os.getpid(), signal.SIGTERM)
        stopped.append(shutdown.wait(5))
        for thread in threads:
            thread.join()

    assert stopped == [True] * 4


def test_requests_of_several_threads_are_one_request() -> None:
    shutdown = Shutdown()

    assert not shutdown.wait(-1)
    shutdown.request()
    shutdown.request()

    assert shutdown.wait(0)
    assert shutdown.wait()


def test_a_second_signal_ends_the_process_at_once() -> None:
    codes: list[int] = []
    with Shutdown(exit_now=codes.append).signals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    assert codes == [128 + signal.SIGINT]


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Shutdown().signals():
        pass

    assert signal.getsignal(signal.SIGTERM) is before


def test_sighup_runs_the_reload_callbacks_once_where_the_service_asks_for_it() -> None:
    ran: list[int] = []
    with Shutdown().signals() as shutdown:
        shutdown.on_reload(lambda: ran.append(1))
        os.kill(os.getpid(), signal.SIGHUP)
        answers = [shutdown.reload_if_asked(), shutdown.reload_if_asked()]

    assert answers == [True, False]
    assert ran == [1]


def test_a_loop_runs_until_asked_to_stop_without_signals() -> None:
    shutdown = Shutdown()
    turns = 0

    for _ in shutdown.every(0):
        turns += 1
        if turns == 3:
            shutdown.request()

    assert turns == 3
    assert shutdown.requested
