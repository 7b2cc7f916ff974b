"""The demo's child processes: started in order, watched, and stopped in reverse order.

`run.Demo` and `lab.tune_replay` use a `Supervisor`, from the main thread alone.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kernelcast.runtime.exits import EXIT_INCOMPLETE

HEALTHY: Final = ("running", "done", "incomplete", "stopped")
"""States without a fault."""

STOP_SECONDS: Final = 12.0
"""Time between SIGTERM and SIGKILL: a service flushes its producer and leaves its group within it."""
POLL_SECONDS: Final = 0.05
_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1
"""Number of the option in prctl(2)."""

KERNELCAST: Final = (sys.executable, "-m", "kernelcast.cli")


@dataclass(slots=True)
class DemoProcess:
    """One process of the demo. Its state: not started, running, then stopped, done, incomplete or `exited CODE`.

    Attributes:
        name: For people, and for its log's name.
        command: Its command line.
        log: File of its output.
        ends: Whether it may end by itself with 0 (a replay does).
        unblocks: Whether it starts with SIGTERM blocked, and unblocks it once it handles it, as our own programs do.
        environ: Variables that its environment has besides ours.
        process: The process, from its start on.
        stopped: Whether the demo has stopped it.
        is_empty: Whether its group was seen without processes; the group's number may be another's from then on.
    """

    name: str
    command: Sequence[str]
    log: Path
    ends: bool = False
    unblocks: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None
    stopped: bool = False
    is_empty: bool = False

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches the demo alone and everything stops in order."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environ},
                start_new_session=True,
                preexec_fn=self._prepare,  # noqa: PLW1509  all are started before the demo has a thread of its own
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs or before it was started."""
        code = None if self.process is None else self.process.poll()
        if self.process is not None and code is not None and not self.is_empty:
            self.is_empty = not _has_processes(self.process.pid)
        return code

    @property
    def is_left(self) -> bool:
        """Whether it runs, or processes of its group do after it has ended."""
        return self.process is not None and (self.exit_code is None or not self.is_empty)

    @property
    def failed(self) -> bool:
        """Whether it ended although it should not have."""
        return self.exit_code is not None and self.state not in HEALTHY

    @property
    def state(self) -> str:
        """The state, for people and for `HEALTHY`."""
        if self.process is None:
            return "not started"
        if self.exit_code is None:
            return "running"
        if self.stopped and (self.exit_code == 0 or (self.exit_code == -signal.SIGTERM and not self.unblocks)):
            return "stopped"
        if self.ends and self.exit_code == EXIT_INCOMPLETE:
            return "incomplete"
        return "done" if self.ends and self.exit_code == 0 else f"exited {self.exit_code}"

    def log_end(self, lines: int = 6) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL to those of its session that have not ended in time.

        A program of the user, such as a shell that runs another, may pass no signal on, so all its processes get it.
        Ours end their own.
        """
        process = self.process
        if process is None or not self.is_left:
            return
        runs = self.exit_code is None
        self.stopped = self.stopped or runs
        deadline = time.monotonic() + STOP_SECONDS
        with suppress(ProcessLookupError):
            (os.kill if self.unblocks and runs else os.killpg)(process.pid, signal.SIGTERM)
        while self.is_left:
            if time.monotonic() > deadline:
                self.kill()
                break
            time.sleep(POLL_SECONDS)
        process.wait()

    def kill(self) -> None:
        """Send SIGKILL to it and to the processes of its group that are left."""
        if self.process is not None and self.is_left:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _prepare(self) -> None:
        """Have the kernel end the new process when the demo is gone, so that `kill -9` of the demo leaves nothing."""
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if self.unblocks:
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


class Supervisor:
    """Starts children, and stops them in the reverse order whatever happens."""

    def __init__(self) -> None:
        self.children: list[DemoProcess] = []

    def start(self, child: DemoProcess) -> DemoProcess:
        """Start one and watch it from now on."""
        child.start()
        self.children.append(child)
        return child

    def failed(self) -> list[DemoProcess]:
        """Those that ended although they should not have."""
        return [child for child in self.children if child.failed]

    def stop(self) -> dict[str, int | None]:
        """Stop all children; returns exit codes by name. A child that handles SIGTERM has the code of its own exit."""
        for child in reversed(self.children):
            child.stop()
        return {child.name: child.exit_code for child in self.children}

    def kill(self) -> None:
        """Send SIGKILL to all at once, for a user who pressed Ctrl-C twice."""
        for child in self.children:
            child.kill()

    def wait_for(self, child: DemoProcess, seconds: float) -> bool:
        """Wait until a child ends by itself; False when it has not within the time."""
        deadline = time.monotonic() + seconds
        while child.exit_code is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return child.exit_code is not None
