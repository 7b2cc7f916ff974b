"""The connection to the node's exporter; it never blocks and reconnects by itself."""

import errno
import socket
from collections.abc import Callable
from enum import Enum
from typing import Final

from kernelcast.probe.process.descriptors import OwnDescriptor
from kernelcast.wire.frames import MAX_FRAME_BYTES

FIRST_PAUSE_SECONDS: Final = 0.25
# Longest pause between two attempts. One costs some ten microseconds, and a program that ends during a pause cannot
# report its last totals.
LONGEST_PAUSE_SECONDS: Final = 2.0
SEND_BUFFER_BYTES: Final = 4 * MAX_FRAME_BYTES
# Packets read at one time, so that an exporter cannot keep the thread in its loop.
MAX_RECEIVED: Final = 64


class Sent(Enum):
    """Result of sending a packet."""

    HANDED_OVER = "handed over"
    FULL = "full"
    LOST = "lost"


class ExporterConnection:
    """A SOCK_SEQPACKET client of the exporter. Only `ReportSender`, on the probe's thread, uses it, except `abandon`.

    Args:
        path: The exporter's socket.
        monotonic: Monotonic seconds.
    """

    def __init__(self, path: str, monotonic: Callable[[], float]) -> None:
        self.path = path
        self._monotonic = monotonic
        self._socket: OwnDescriptor | None = None
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._next_try = monotonic()
        self._kept: list[bytes] = []
        self.failure = ""
        """Reason why the last attempt to connect failed; empty after a success."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as known."""
        return self._socket is not None

    def fileno(self) -> int | None:
        """File descriptor to poll for hints; None without a connection, or if the program has closed it."""
        return self._socket.fileno() if self._socket else None

    def connect(self) -> bool:
        """Try to connect if an attempt is due; each failure lengthens the pause before the next one."""
        if self._monotonic() < self._next_try:
            return False
        fresh: socket.socket | None = None
        try:
            fresh = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            fresh.setblocking(False)
            fresh.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            fresh.connect(self.path)
        except OSError as error:
            if fresh:
                fresh.close()
            self.failure = error.strerror or str(error)
            self._postpone()
            return False
        self._socket = OwnDescriptor(fresh.detach())
        self.failure = ""
        return True

    def hurry(self) -> None:
        """Allow the next attempt at once, because the program is ending."""
        self._next_try = self._monotonic()

    def proven(self) -> None:
        """Reset the pause: the connection has lasted, so the exporter accepted it."""
        self._pause_seconds = FIRST_PAUSE_SECONDS

    def send(self, packet: bytes) -> Sent:
        """Send a packet; returns the result."""
        if self._socket is None:
            return Sent.LOST
        try:
            self._socket.write(packet)
        except BlockingIOError:
            return Sent.FULL
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.ENOMEM):
                return Sent.FULL
            self._kept = self.receive()
            self.close()
            return Sent.LOST
        return Sent.HANDED_OVER

    def receive(self) -> list[bytes]:
        """Return waiting packets, 64 at most; closes the connection if its end was read."""
        packets, self._kept = self._kept, []
        while self._socket is not None and len(packets) < MAX_RECEIVED:
            try:
                packet = self._socket.read(MAX_FRAME_BYTES + 1)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # The exporter has closed it with packets of ours unread. The kernel says so once, and what the
                # exporter sent before, such as a refusal, can still be read.
                continue
            except OSError:
                packet = b""
            if not packet:
                self.close()
                break
            packets.append(packet)
        return packets

    def close(self) -> None:
        """Close the connection, if there is one, and start a pause."""
        if self._socket is not None:
            self.abandon()
            self._postpone()

    def abandon(self) -> None:
        """Close the socket and change nothing else: after a fork the connection is the parent's."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _postpone(self) -> None:
        self._next_try = self._monotonic() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
