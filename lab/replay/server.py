"""The oracle's server: a Unix socket, a thread and a session for each connection."""

import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from kernelcast.runtime.threads import Worker
from kernelcast.wire.errors import ConfigurationError
from lab.replay.lines import JsonLines
from lab.replay.oracle import Log, Session

READY: Final = "ready"
"""Line on standard output of an oracle that listens."""
MAX_CONNECTIONS: Final = 64
MAX_REQUEST_BYTES: Final = 1 << 20
"""A request has one configuration: at most 64 values of 256 characters."""
_POLL_SECONDS: Final = 0.1


class LogFile:
    """Writes one JSON object a line; safe for several threads."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Write an entry."""
        with self._lock:
            self._file.write(json.dumps(entry, separators=(",", ":"), default=repr) + "\n")
            self._file.flush()


def serve(
    path: Path, session: Callable[[Log], Session], log: Log, *, stop: threading.Event, ready: Callable[[], None]
) -> None:
    """Answer connections until `stop` is set.

    Args:
        path: The socket's path; it must not exist.
        session: Makes the session of a connection.
        log: Receives every request with its answer.
        stop: Ends the server.
        ready: Called when the socket accepts connections.

    Raises:
        ConfigurationError: The socket cannot be made.
    """
    slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            server.bind(str(path))
        except OSError as error:
            raise ConfigurationError(f"the socket {path} cannot be made: {error}; give another path") from None
        try:
            server.listen(MAX_CONNECTIONS)
            server.settimeout(_POLL_SECONDS)
            ready()
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                if not slots.acquire(blocking=False):
                    connection.close()
                    log({"refused": f"more than {MAX_CONNECTIONS} connections at once"})
                    continue
                connection.settimeout(None)
                Worker("session", _serve_connection, connection, session(log), slots).start()
        finally:
            path.unlink(missing_ok=True)


def _serve_connection(connection: socket.socket, session: Session, slots: threading.BoundedSemaphore) -> None:
    lines = JsonLines(connection, limit_bytes=MAX_REQUEST_BYTES)
    try:
        with connection:
            while True:
                try:
                    request = lines.read()
                except ValueError as error:
                    lines.write({"refused": f"no JSON object on a line: {error}"})
                    session.log({"seed": session.seed, "malformed": str(error)})
                    return
                if request is None:
                    break
                try:
                    answer = session.answer(request)
                except OSError as error:
                    lines.write({"refused": f"the log cannot be written: {error}; free disk space, or give another"})
                    break
                lines.write(answer)
    except OSError:  # the peer has gone
        pass
    finally:
        with suppress(OSError):
            session.log({"seed": session.seed, "closed": True, "ended": session.ended})
        slots.release()
