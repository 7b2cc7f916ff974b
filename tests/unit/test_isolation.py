"""A unit test that starts a process or a server, or sleeps, fails."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context

import pytest
from tests.support import isolation

from kernelcast.runtime.kafka.embedded import EmbeddedBroker


def process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def worker() -> None:
    get_context("spawn").Process(target=os.getpid).start()


def fork() -> None:
    os.fork()


def broker() -> None:
    with EmbeddedBroker():
        pass


def server() -> None:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen()


def sleep() -> None:
    time.sleep(0.001)


def sleep_of_a_loop() -> None:
    asyncio.run(asyncio.sleep(0.001))


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (process, "starts a process"),
        (worker, "starts a process"),
        (fork, "starts a process"),
        (broker, "starts a broker"),
        (server, "starts a server"),
        (sleep, "sleeps"),
        (sleep_of_a_loop, "sleeps"),
    ],
)
def test_a_unit_test_that_leaves_its_process_or_sleeps_fails(use: Callable[[], object], what: str) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match="move it to tests/service"),
        isolation.isolated("test_any.py"),
        pytest.raises(pytest.fail.Exception, match=what),
    ):
        use()


def run_and_keep_quiet() -> None:
    with suppress(BaseException):  # as a pool of threads does
        process()


def test_a_process_that_another_thread_starts_fails_the_test() -> None:
    thread = threading.Thread(target=run_and_keep_quiet)
    isolated = isolation.isolated("test_any.py")
    isolated.__enter__()
    thread.start()
    thread.join()
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        isolated.__exit__(None, None, None)


def test_code_under_test_may_wait_and_a_loop_may_take_turns() -> None:
    asyncio.run(asyncio.sleep(0))
    with isolation.isolated("test_any.py"):
        began = time.monotonic()
        thread = threading.Thread(target=time.sleep, args=(0.001,))
        thread.start()
        thread.join()
    assert time.monotonic() - began >= 0.001


def test_a_permitted_file_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(reason for reason in isolation.PERMITTED.values())
    monkeypatch.setattr(isolation, "PERMITTED", {"test_any.py": "a reason"})
    listened = socket.socket.listen
    with isolation.isolated("test_any.py"):
        assert socket.socket.listen is listened
