"""Threads of a daemon, and the error that ends one."""

import threading

import pytest
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.runtime import threads
from kernelcast.runtime.threads import Worker


@pytest.fixture(autouse=True)
def _no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_failed", {})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_an_error_ends_is_named_from_then_on() -> None:
    worker = Worker("reader", int, "x")
    worker.start()
    assert worker.stop(LONGEST_SECONDS)
    assert threads.failure().startswith("the thread reader ended by an error: ValueError: invalid literal")


def test_a_thread_that_is_stopped_is_no_failure() -> None:
    def read() -> None:
        worker.stopping.wait()

    worker = Worker("reader", read)
    worker.start()
    assert worker.stop(LONGEST_SECONDS)
    assert threads.failure() == ""


def test_a_thread_that_was_never_started_can_be_stopped() -> None:
    assert Worker("reader", int).stop(LONGEST_SECONDS)


def test_a_thread_that_does_not_end_in_time_is_reported() -> None:
    hold = threading.Event()
    worker = Worker("reader", hold.wait)
    worker.start()
    assert not worker.stop(0.0)
    hold.set()
    assert worker.stop(LONGEST_SECONDS)
