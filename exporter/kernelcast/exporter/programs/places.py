"""The connections of the probe socket, and the choice of the one to close when all places are used."""

import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.programs.socket import Peer


@dataclass(slots=True)
class ProgramConnection:
    """One connection.

    Attributes:
        socket: Its socket.
        peer: Credentials of the connected process.
        since: When it was accepted, monotonic seconds.
        session: The process's session; None before its `Hello`.
        bad_frames: Number of invalid frames.
        writing: Whether packets wait until the socket is writable.
    """

    socket: socket.socket
    peer: Peer
    since: float = 0.0
    session: ProbeSession | None = None
    bad_frames: int = 0
    writing: bool = False


class ConnectionPlaces:
    """A bounded number of places for connections, shared between the users of the node. Not thread-safe.

    A single user may have all of them. When all are used, the user with the most connections loses one to a user with
    at least two fewer; of one user's connections, one without `Hello` is replaced by a new one. So a user who opens
    silent connections blocks neither other users nor its own programs.

    Args:
        limit: Number of places.
        hello_seconds: Time limit for `Hello`.
        clock: Monotonic seconds.
    """

    def __init__(self, limit: int, hello_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._hello_seconds = hello_seconds
        self._clock = clock
        self._connections: dict[int, ProgramConnection] = {}
        self._silent: dict[int, None] = {}

    def __len__(self) -> int:
        """Number of used places."""
        return len(self._connections)

    @property
    def is_full(self) -> bool:
        """Whether a further connection needs another one's place."""
        return len(self._connections) >= self._limit

    @property
    def numbers(self) -> list[int]:
        """Return the file descriptors of all connections, oldest first."""
        return list(self._connections)

    def add(self, connection: ProgramConnection) -> None:
        """Add a connection; it counts as silent until `greeted`."""
        number = connection.socket.fileno()
        connection.since = self._clock()
        self._connections[number] = connection
        self._silent[number] = None

    def get(self, number: int) -> ProgramConnection | None:
        """Return the connection with a file descriptor."""
        return self._connections.get(number)

    def greeted(self, number: int) -> None:
        """Note that a connection has sent its `Hello`."""
        self._silent.pop(number, None)

    def remove(self, number: int) -> ProgramConnection:
        """Remove a connection."""
        self._silent.pop(number, None)
        return self._connections.pop(number)

    def overdue(self) -> list[int]:
        """Return the connections that have not sent `Hello` in time."""
        limit = self._clock() - self._hello_seconds
        return [number for number in self._silent if self._connections[number].since <= limit]

    def wait_seconds(self) -> float | None:
        """Return the seconds until a connection may become overdue; None if all have sent `Hello`."""
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return None
        return max(0.0, self._connections[oldest].since + self._hello_seconds - self._clock())

    def to_displace(self, uid: int) -> int | None:
        """Return the connection to close for a new one of a user; None if the new one must be refused."""
        held = Counter(connection.peer.uid for connection in self._connections.values())
        heaviest = max(held, key=lambda user: held[user])
        if held[heaviest] > held[uid] + 1:
            silent = self._oldest_silent(heaviest)
            return silent if silent is not None else self._newest(heaviest)
        return self._oldest_silent(uid)

    def _oldest_silent(self, uid: int) -> int | None:
        return next((number for number in self._silent if self._connections[number].peer.uid == uid), None)

    def _newest(self, uid: int) -> int:
        """Return the newest connection, so that programs that have reported for long keep their places."""
        return next(number for number in reversed(self._connections) if self._connections[number].peer.uid == uid)
