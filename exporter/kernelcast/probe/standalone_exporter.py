"""The exporter that `--standalone` starts: `python -m kernelcast.probe.standalone_exporter DIRECTORY DESCRIPTOR`.

It is the ordinary exporter, in a process that ends once no program is connected to its lifetime socket. DESCRIPTOR is
that of an inherited socket, which is bound to the exporter's port but does not listen: it reserves the port.
"""

import fcntl
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from kernelcast.wire.standalone import LIFE_LINE, PORT, PROBE_SOCKET

LOCK: Final = "lock"
STATE: Final = "state"
# Wait for the first program to connect: it may end before it does.
FIRST_SECONDS: Final = 30.0
# Wait for a next program, as between two steps of a batch script; long enough to write the last report.
GRACE_SECONDS: Final = 3.0
# Longest wait of one poll of the sockets.
POLL_SECONDS: Final = 0.5


class ExporterLifetime:
    """Counts the programs that are connected to the lifetime socket. Only the thread of `_watch` uses it.

    Args:
        listener: The lifetime socket; non-blocking.
        clock: Monotonic seconds.
    """

    def __init__(self, listener: socket.socket, clock: Callable[[], float] = monotonic) -> None:
        self._listener = listener
        self._clock = clock
        self._programs: dict[int, socket.socket] = {}
        self._empty_since = clock()
        self._patience = FIRST_SECONDS

    @property
    def programs(self) -> int:
        """Number of connected programs."""
        return len(self._programs)

    def abandoned(self, wait_seconds: float = POLL_SECONDS) -> bool:
        """Poll the sockets once; True when no program has been connected for the grace period."""
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        for number in self._programs:
            poller.register(number, select.POLLIN)
        for number, _event in poller.poll(wait_seconds * 1000):
            if number == self._listener.fileno():
                self._accept()
            else:
                self._receive(number)
        return not self._programs and self._clock() - self._empty_since >= self._patience

    def _accept(self) -> None:
        try:
            program, _ = self._listener.accept()
        except OSError:
            return
        self._programs[program.fileno()] = program
        self._patience = GRACE_SECONDS

    def _receive(self, number: int) -> None:
        try:
            ended = not self._programs[number].recv(1)
        except OSError:
            ended = True
        if ended:
            self._programs.pop(number).close()
            self._empty_since = self._clock()


def main(arguments: list[str]) -> None:
    """Run the exporter until no program is connected; return at once if another one runs for this directory."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that starts it, or the program, may block signals
    directory, reserved = Path(arguments[0]), socket.socket(fileno=int(arguments[1]))
    port = str(reserved.getsockname()[1])
    lock = (directory / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    shutil.rmtree(directory / STATE, ignore_errors=True)  # totals begin with this exporter's first program
    (directory / PORT).write_text(port)
    path = directory / LIFE_LINE
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(128)
        listener.setblocking(False)
        lifetime = ExporterLifetime(listener)
        threading.Thread(target=_watch, args=(lifetime, path), name="life-line", daemon=True).start()
        sys.argv = ["kernelcast", *exporter_arguments(directory, port)]
        try:
            runpy.run_module("kernelcast.cli", run_name="__main__", alter_sys=True)
        finally:
            path.unlink(missing_ok=True)


def exporter_arguments(directory: Path, port: str) -> list[str]:
    """Return the exporter's command line: all of its files are in the directory, and it uses no Kafka."""
    return [
        "exporter",
        "--probe.socket",
        str(directory / PROBE_SOCKET),
        "--state.directory",
        str(directory / STATE),
        "--web.listen-address",
        f"127.0.0.1:{port}",
        "--interval",
        "1",
        "--kafka",
        "off",
    ]


def _watch(line: ExporterLifetime, path: Path) -> None:
    """Stop this process (SIGTERM, as a service manager would) once no program is connected."""
    while not line.abandoned():
        pass
    path.unlink(missing_ok=True)  # a program that begins now does not find this exporter, and starts another one
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
