"""Helpers of the test suite: ports that no other process takes, work that is done once, and measured times."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.once import once, run_directory
from tests.support.ports import free_ports
from tests.support.waiting import Stopwatch, eventually

MEASURED = """
from tests.support.waiting import Stopwatch
with Stopwatch() as took:
    print("began", flush=True)
    input()
print(took.seconds)
"""


def test_ports_are_below_those_that_the_kernel_assigns() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def test_a_port_that_is_listened_on_is_not_given_out() -> None:
    (port,) = free_ports(1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert port not in free_ports(255)


def test_two_processes_have_ports_of_their_own_whatever_folder_they_use(tmp_path: Path) -> None:
    ours = set(free_ports(200))
    code = "from tests.support.ports import free_ports; print(*free_ports(200))"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert not {int(port) for port in done.stdout.split()} & ours


def test_work_of_a_run_is_done_by_the_first_that_needs_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    done: list[int] = []
    name = f"work-{os.getpid()}"
    for _ in range(2):
        once(tmp_path_factory, name, lambda: done.append(1))
    assert done == [1]
    assert (run_directory(tmp_path_factory) / f"{name}.done").exists()


def test_work_that_failed_is_tried_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    name = f"failing-{os.getpid()}"

    def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        once(tmp_path_factory, name, failing)
    done: list[int] = []
    once(tmp_path_factory, name, lambda: done.append(1))
    assert done == [1]


def test_a_stopwatch_counts_a_wait_but_not_a_machine_that_stood_still() -> None:
    command = [sys.executable, "-c", MEASURED]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n")
    assert float(out) < 0.5
    began = time.monotonic()
    with Stopwatch() as took:
        eventually(lambda: took.seconds >= 0.3)
    assert 0.3 <= took.seconds <= time.monotonic() - began


def test_a_stopwatch_counts_what_its_thread_computes_while_no_other_may_run() -> None:
    text = "a" * 30_000_000
    with Stopwatch() as took:
        began = time.thread_time()
        while time.thread_time() - began < 0.3:
            text.encode("utf-16")
    assert took.seconds >= 0.3
