"""The listening socket: one per node; it is not taken over from a running daemon, and is removed at the end."""

import contextlib
import fcntl
import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelcast.exporter.process_stat import stat_fields
from kernelcast.wire.errors import ConfigurationError

DIRECTORY_MODE: Final = 0o755
OPEN_MODE: Final = 0o666
"""Mode for programs of any user; users are checked by peer credentials, not by the file's mode."""
OWNER_MODE: Final = 0o600
BACKLOG: Final = 1024
"""Largest number of connections that wait to be accepted; further programs try again later."""
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7))


@dataclass(frozen=True, slots=True)
class Peer:
    """Credentials of the peer, from the kernel; pid 0 if it is outside this pid namespace."""

    pid: int
    uid: int


class ProbeSocket:
    """The bound and locked socket path.

    Args:
        path: The path; its directory is created if needed.
        mode: Permissions of the socket.

    Raises:
        ConfigurationError: Another daemon uses it, or the path cannot be used.
    """

    def __init__(self, path: Path, mode: int = OPEN_MODE) -> None:
        self._path = path
        self._lock = -1
        try:
            path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._claim()
            self._remove_stale()
            self.listener = self._listen(mode)
        except OSError as error:
            self._release()
            raise ConfigurationError(
                f"probe socket {path} cannot be opened: {error.strerror or error}; name one that user {os.getuid()} "
                "can make with --probe.socket"
            ) from error
        except ConfigurationError:
            self._release()
            raise

    def close(self) -> None:
        """Stop listening and remove the socket if it still is ours; safe to call twice."""
        if self._lock < 0:
            return
        self.listener.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        self._release()

    def _claim(self) -> None:
        self._lock = os.open(f"{self._path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, OWNER_MODE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._taken() from None

    def _remove_stale(self) -> None:
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise ConfigurationError(
                f"probe socket {self._path} is a file that is no socket; remove it, or name another with --probe.socket"
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as attempt:
            attempt.setblocking(False)
            try:
                attempt.connect(str(self._path))
            except ConnectionRefusedError:
                self._path.unlink()
                return
            except OSError:
                raise self._taken() from None
        raise self._taken()

    def _listen(self, mode: int) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.setblocking(False)
            listener.bind(str(self._path))
            self._path.chmod(mode)
            self._inode = self._path.stat().st_ino
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def _taken(self) -> ConfigurationError:
        return ConfigurationError(
            f"probe socket {self._path} belongs to a daemon that is running; stop it, or name another with "
            "--probe.socket"
        )

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def peer_of(connection: socket.socket) -> Peer:
    """Return the credentials of a connection's peer (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


def has_ended(pid: int) -> bool:
    """Whether a process has ended or is a zombie; False if its pid is unknown here."""
    if pid <= 0:
        return False
    try:
        fields = stat_fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return fields[:1] in ([b"Z"], [b"X"])
