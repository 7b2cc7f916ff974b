"""Starts kernelcast's daemons in a few milliseconds: forks a process that has imported them and loaded their code.

A daemon's imports take two seconds of a core, and tests start hundreds. Its parent is the process that asked (a child
subreaper, see prctl(2)), so that it is waited for and killed like any child.

`python -m tests.service.nursery` reads one JSON object a line, `{"arguments": […], "log": PATH, "environ": {…},
"before": "MODULE:FUNCTION"}`, and answers with the process id of the daemon, or 0 once it is ready for the first.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self, cast

from tests.service.orphans import fork_orphan
from tests.service.servers import START_SECONDS, ServerProcess

PR_SET_CHILD_SUBREAPER: Final = 36


class Nursery:
    """The client's end; several threads may start daemons, which are children of this process.

    Args:
        command: The process that forks; by default this module, for kernelcast's daemons.
        environ: Its environment; by default this process's.
    """

    def __init__(self, command: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [*command] or [sys.executable, "-m", "tests.service.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**(os.environ if environ is None else environ), "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._lock = threading.Lock()

    def born(self, arguments: Sequence[str], log: Path, environ: Mapping[str, str], before: str = "") -> int:
        """Start a daemon; its process id.

        Args:
            arguments: Of kernelcast's command.
            log: File for its output.
            environ: Acts on what reads it in the daemon: not on the interpreter, and not on what is imported.
            before: A function that the daemon calls first, as `module:name`.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.dumps(
            {"arguments": list(arguments), "log": str(log), "environ": dict(environ), "before": before}
        )
        with self._lock, _adopting():
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
            while (answer := self._process.stdout.readline()) == b"0\n":
                pass
        return int(answer)

    def close(self) -> None:
        """End it; daemons that it has started live on."""
        self._process.communicate()


@contextlib.contextmanager
def nursery(command: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Iterator[Nursery]:
    """A nursery until the block ends; see `Nursery`."""
    made = Nursery(command, environ)
    try:
        yield made
    finally:
        made.close()


@functools.cache
def shared() -> Nursery:
    """The nursery of this process, which lives as long as it does."""
    made = Nursery()
    atexit.register(made.close)
    return made


class Adopted:
    """A child that another process has started; those parts of `subprocess.Popen` that `ServerProcess` needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end.

        Raises:
            TimeoutExpired: It has not ended in time.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkedServer(ServerProcess):
    """A `ServerProcess` of kernelcast's command that a nursery starts."""

    def __init__(
        self, name: str, arguments: Sequence[str], directory: Path, parent: Nursery | None = None, *, before: str = ""
    ) -> None:
        super().__init__(name, arguments, directory)
        self._parent = parent or shared()
        self._before = before

    def start(self, ready: Any = None, timeout_seconds: float = START_SECONDS) -> Self:
        """Start, and wait until `ready` says so."""
        self.process = cast("Any", Adopted(self._parent.born(self.command, self.log, self._environ, self._before)))
        if ready is not None:
            self._wait(ready, timeout_seconds)
        return self


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Make this process a child subreaper until the block ends: orphans of other programs stay those of `init`."""
    _adopt(adopting=True)
    try:
        yield
    finally:
        _adopt(adopting=False)


def _adopt(*, adopting: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(adopting), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def main() -> None:
    """Serve until standard input ends."""
    import kernelcast.bridge.command  # so that forked daemons have it
    import kernelcast.cli.app
    import kernelcast.exporter.command
    import kernelcast.predictor.command  # noqa: F401
    from kernelcast.bridge.warm_up import warm_up

    warm_up()
    gc.collect()
    gc.freeze()  # a collection would write to all pages that the daemons share
    answer(0)
    for line in sys.stdin:
        request = json.loads(line)
        answer(fork_orphan(functools.partial(become, **request)))


def answer(pid: int) -> None:
    """Write a line to the process that asks."""
    os.write(1, b"%d\n" % pid)


def become(arguments: Sequence[str], log: str, environ: Mapping[str, str], before: str) -> None:
    """Run kernelcast's command in this process, as `kernelcast ARGUMENTS >>LOG 2>&1` does, and exit."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environ)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for end, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, end)
    signal.set_wakeup_fd(-1)
    sys.argv = ["kernelcast", *arguments]
    from kernelcast.cli.__main__ import main as command

    code = 1
    try:
        if before:
            module, _, name = before.partition(":")
            getattr(import_module(module), name)()
        command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
