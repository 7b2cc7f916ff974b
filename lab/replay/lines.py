"""JSON objects, one a line, over a Unix socket: both sides of the oracle's protocol read and write with it."""

import json
import socket
from typing import Any, Final

MAX_LINE_BYTES: Final = 1 << 28
"""The answer with the space is one line: every valid configuration in it."""
_PART_BYTES: Final = 1 << 18
"""Bytes of one read from the socket."""


class JsonLines:
    """Reads and writes JSON lines on a connected socket. For one thread.

    Attributes:
        limit_bytes: Longest line that is read.
    """

    def __init__(self, connection: socket.socket, *, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._connection = connection
        self._pending = bytearray()
        self.limit_bytes = limit_bytes

    def write(self, document: Any) -> None:
        """Write one object.

        Raises:
            OSError: The peer has gone.
        """
        self._connection.sendall(json.dumps(document, separators=(",", ":")).encode() + b"\n")

    def read(self) -> Any:
        """Return the next object; None at the end of the stream.

        Raises:
            ValueError: A line is too long, incomplete or no JSON.
            OSError: The connection broke.
        """
        searched = 0
        while (end := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            if searched > self.limit_bytes:
                raise ValueError(f"a line has more than {self.limit_bytes:,} bytes")
            part = self._connection.recv(_PART_BYTES)
            if not part:
                if self._pending:
                    raise ValueError("the last line has no end")
                return None
            self._pending += part
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        try:
            return json.loads(line, parse_constant=_refuse)
        except RecursionError:
            raise ValueError("a line is nested too deeply") from None


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
