"""Starts an exporter beside the program, for a machine without a daemon: one per user and node, shared by all ranks.

Each program keeps a silent connection to the exporter's lifetime socket. The kernel closes it however the program ends,
including `kill -9`. The exporter ends after the last connection is closed.
"""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final

from kernelcast.probe.process.descriptors import OwnDescriptor
from kernelcast.wire.standalone import LIFE_LINE, PROBE_SOCKET, directories

LOG: Final = "exporter.log"
PRIVATE: Final = 0o700
# Pause before an exporter is started again; it doubles, and a connection resets it.
FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 60.0
# Variables that would start a probe in the exporter itself.
NOT_INHERITED: Final = ("KERNELCAST_PROBE", "KERNELCAST_PROBE_STANDALONE")
# The shell ends at once, so that the exporter is no child of the program, which may wait for all of its children. The
# subshell waits for the exporter, and writes its exit status to the pipe.
LAUNCH: Final = '("$@" >>"$0" 2>&1; echo $?) &'
# Status where the subshell was killed, too.
KILLED: Final = 137


class StartedExporter:
    """A started exporter, which is no child of this process; `pipe` gives its exit status."""

    def __init__(self, pipe: OwnDescriptor) -> None:
        self._pipe = pipe
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its exit status; None while it runs, and 0 if the program has closed the pipe."""
        if self._status is None:
            try:
                self._status = int(self._pipe.read(8) or KILLED)
            except BlockingIOError:
                return None
            except (OSError, ValueError):
                self._status = 0
            self.close()
        return self._status

    def close(self) -> None:
        """Close the pipe; the exporter runs on."""
        self._pipe.close()


class Standalone:
    """Starts the exporter if none runs, and stays connected to its lifetime socket. Never raises.

    The program's thread calls `start` and `let_go`, the probe's thread calls `poll`.

    Args:
        directory: A private directory; None takes the user's own.
        python: Runs the exporter.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        directory: Path | None = None,
        python: str = sys.executable,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._directory = directory or private_directory(os.environ)
        self._python = python
        self._line: OwnDescriptor | None = None
        self._process: StartedExporter | None = None
        self._port = 0
        self._failure = ""
        self._clock = clock
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._start_at = 0.0

    @property
    def socket_path(self) -> str:
        """Path of the socket on which the exporter listens for programs."""
        return str(self._directory / PROBE_SOCKET)

    @property
    def held(self) -> bool:
        """Whether this program is connected to the lifetime socket."""
        return self._line is not None

    def start(self) -> None:
        """Find the exporter of this node, or start one; it is ready some seconds later."""
        try:
            self._directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            _check_private(self._directory)
            self._start_at = self._clock() + self._pause_seconds
            if not self._hold() and self._can_run():
                self._process = self._spawn()
        except Exception as error:  # noqa: BLE001  nothing here may reach the program
            self._failure = self._failure or f"{error}"

    def poll(self) -> None:
        """Keep a connection to the lifetime socket of a running exporter; called on the probe's thread.

        An exporter that was about to end has accepted this program, or has prevented the one that it started: another
        one is started then.
        """
        if self._line is not None and _has_ended(self._line):
            self._drop_line()
            self._start_at = self._clock() + self._pause_seconds
        if self._line is None and self._hold():
            self._pause_seconds = FIRST_PAUSE_SECONDS
        process = self._process
        code = process.poll() if process is not None else 0
        if code:
            self._failure = self._failure or f"it ended with {code}; see {self._directory / LOG}"
            self._process = None
        if self._line is None and code == 0 and not self._failure and self._clock() >= self._start_at:
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            self.start()

    def let_go(self) -> None:
        """Close the connections, because the program ends or this is a forked child."""
        self._start_at = inf
        self._drop_line()
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _drop_line(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _hold(self) -> bool:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.setblocking(False)
        try:
            line.connect(str(self._directory / LIFE_LINE))
        except OSError:
            line.close()
            return False
        self._line = OwnDescriptor(line.detach())
        return True

    def _can_run(self) -> bool:
        if not self._python:
            self._failure = self._failure or "sys.executable is empty, so there is no Python to run it"
            return False
        if find_spec("typer") and find_spec("confluent_kafka"):
            return True
        self._failure = self._failure or "it is not installed: pip install 'kernelcast[exporter]'"
        return False

    def _spawn(self) -> StartedExporter:
        """Start an exporter. It inherits a socket that is bound to its port, so no other program is given the port."""
        environ = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        with socket.socket() as reserved:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("127.0.0.1", 0))
            self._port = reserved.getsockname()[1]
            place = reserved.fileno()
            command = [self._python, "-m", "kernelcast.probe.standalone_exporter", str(self._directory), str(place)]
            shell = subprocess.Popen(
                ["/bin/sh", "-c", LAUNCH, str(self._directory / LOG), *command],
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environ,
                start_new_session=True,
                pass_fds=(place,),
            )
        shell.wait()
        pipe: Any = shell.stdout
        with pipe:
            own = os.dup(pipe.fileno())
        os.set_blocking(own, False)
        return StartedExporter(OwnDescriptor(own))

    def failure(self) -> str:
        """Return the reason why there is no exporter and none is started again; empty while one may come."""
        return "" if self.held else self._failure


def private_directory(environ: Mapping[str, str]) -> Path:
    """Directory of this user's exporter on this node."""
    known = [Path(path) for path in directories(environ, os.getuid())]
    return next((path for path in known if os.access(path.parent, os.W_OK | os.X_OK)), known[-1])


def _has_ended(line: OwnDescriptor) -> bool:
    """Whether the exporter, which never sends anything, or the program has closed a connection."""
    try:
        return not line.read(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _check_private(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{directory} is not a directory of this user's alone; remove it")
