"""The words for the end of the process that calls NVML."""

import subprocess
from typing import Any

import pytest

from kernelcast.exporter.nvml.isolation.child import WorkerProcess


class Ended:
    """A process that has closed its pipe; it has ended unless its exit code is None."""

    def __init__(self, returncode: int | None) -> None:
        self.returncode = returncode

    def wait(self, timeout_seconds: float) -> int:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("worker", timeout_seconds)
        return self.returncode

    def poll(self) -> int | None:
        return self.returncode


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (0, "exited with 0"),
        (3, "exited with 3"),
        (-11, "killed by SIGSEGV"),
        (-40, "killed by signal 40"),
        (None, "closed its pipe, and had not ended 1 s later"),
    ],
)
def test_the_log_says_how_the_process_ended_and_whether_it_has(returncode: int | None, words: str) -> None:
    child: Any = WorkerProcess.__new__(WorkerProcess)
    child._process = Ended(returncode)
    assert child._described_end() == words
