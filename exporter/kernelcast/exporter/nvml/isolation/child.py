"""Starts the process that calls NVML, and exchanges messages with it. `IsolatedSampler` has one at a time."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from kernelcast.exporter.nvml.isolation.call_board import CallBoard
from kernelcast.exporter.nvml.isolation.frames import MessageAssembler, send
from kernelcast.exporter.nvml.sampling.reading import XidTotal
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions

WORKER: Final = "kernelcast.exporter.nvml.worker"
END_SECONDS: Final = 1.0
"""Longest wait for the end of a process that has closed its pipe."""
MILLISECONDS_PER_SECOND: Final = 1000


class ChildEndedError(Exception):
    """The process has ended, or sent bytes that are no message."""


class WorkerProcess:
    """One process of `nvml/worker.py`, from its start to its end. Only the daemon's thread uses it.

    Args:
        nvml: `MODULE` or `MODULE:FUNCTION`, and the function's arguments; see `worker.load`.
        options: The sampler's options.

    Raises:
        OSError: No process can be started, or no memory shared with it.

    Attributes:
        pid: Process id.
        started: Time of its start, monotonic seconds.
        is_ready: Whether it has sent its list of GPUs; `IsolatedSampler` sets it.
    """

    def __init__(self, nvml: Sequence[str], options: SamplerOptions) -> None:
        self._board = CallBoard()
        self.started = time.monotonic()
        self.is_ready = False
        # The package, or a test's double of pynvml, may be on our own search path only.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WORKER, str(self._board.file), *nvml],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                pass_fds=[self._board.file],
            )
        except OSError:
            self._board.close()
            raise
        assert self._process.stdin is not None  # noqa: S101  as was asked for
        assert self._process.stdout is not None  # noqa: S101
        self.pid = self._process.pid
        self._requests, answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._inbox = MessageAssembler(answers)
        self._readable = select.poll()
        self._readable.register(answers, select.POLLIN)
        with suppress(OSError):  # it has ended already; `answer` will report that
            send(self._requests, {"do": "start", "options": options.to_json()})

    @property
    def call(self) -> str:
        """Name of its NVML call in progress; empty between calls."""
        return self._board.call

    @property
    def xids(self) -> list[tuple[str, XidTotal]]:
        """UUID and count of each XID that it has seen, also if it has ended since."""
        return self._board.xids

    def ask(self, **request: Any) -> None:
        """Send a request.

        Raises:
            ChildEndedError: The process has ended.
        """
        try:
            send(self._requests, request)
        except OSError:
            raise ChildEndedError(self._described_end()) from None

    def answer(self, deadline: float) -> dict[str, Any] | None:
        """Return its next message; None if none has come by `deadline` (monotonic seconds).

        Raises:
            ChildEndedError: The process has ended, or its bytes are no message.
        """
        try:
            while (message := self._inbox.next_message()) is None:
                left = max(0.0, deadline - time.monotonic())
                if not self._readable.poll(left * MILLISECONDS_PER_SECOND):
                    return None
                if not self._inbox.read():
                    raise ChildEndedError(self._described_end())
        except (OSError, ValueError) as error:
            raise ChildEndedError(str(error)) from error
        return message

    def ended(self) -> bool:
        """Return whether it has ended; if so, it is reaped."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Ask it to end by itself."""
        with suppress(OSError):
            send(self._requests, {"do": "stop"})

    def kill(self) -> None:
        """Send SIGKILL; a process that hangs in the driver may stay for ever all the same."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for its end within a time limit; returns whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_seconds)
        return self.ended()

    def close(self) -> None:
        """Close its pipes and the call board; safe to call twice."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._board.close()

    def _described_end(self) -> str:
        """Description of its end, for the log."""
        if not self.wait(END_SECONDS):
            return f"closed its pipe, and had not ended {END_SECONDS:g} s later"
        code: int = self._process.returncode
        names = {one.value: one.name for one in signal.Signals}
        return f"killed by {names.get(-code, f'signal {-code}')}" if code < 0 else f"exited with {code}"
