"""A time limit for a whole HTTP answer: status, headers and body.

The time limit of a socket begins again with each byte, so a server that sends a byte now and then holds its reader for
days. It needs the standard library alone.
"""

import io
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any, TypeVar, cast

_Connection = TypeVar("_Connection", bound=HTTPConnection)


class TimeLimit:
    """Time from now on in which one or several answers have to be complete. For one thread.

    Args:
        seconds: The time.
        monotonic: Monotonic seconds.
    """

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._ends = monotonic() + seconds

    def left_seconds(self) -> float:
        """Return the rest of the time.

        Raises:
            TimeoutError: None is left.
        """
        left = self._ends - self._monotonic()
        if left <= 0:
            raise TimeoutError(f"no whole answer came in {self._seconds:g} s")
        return left

    def apply(self, connection: _Connection) -> _Connection:
        """Let the connection's answer raise TimeoutError at the end of the time; its own time limit stays in force."""
        connection.timeout = min(self.left_seconds(), connection.timeout or self._seconds)
        connection.response_class = cast("type[HTTPResponse]", partial(_TimedResponse, limit=self))
        return connection


class TimedHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections whose answers have a time limit; without a context TLS uses the system's certificates."""

    def __init__(self, limit: TimeLimit, context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._limit, self._secure = limit, context

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        """Open one of HTTP."""
        return self.do_open(lambda host, **facts: self._limit.apply(HTTPConnection(host, **facts)), request)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        """Open one of HTTPS."""
        return self.do_open(
            lambda host, **facts: self._limit.apply(HTTPSConnection(host, context=self._secure, **facts)), request
        )


class _TimedResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, limit: TimeLimit, **facts: Any) -> None:
        super().__init__(sock, *args, **facts)
        self.fp = io.BufferedReader(_TimedStream(self.fp.detach(), sock, limit))


class _TimedStream(io.RawIOBase):
    """Reads a socket, and waits no longer than the time limit allows."""

    def __init__(self, stream: io.RawIOBase, sock: socket.socket, limit: TimeLimit) -> None:
        self._stream, self._socket, self._limit = stream, sock, limit
        self._longest_seconds = sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left_seconds = self._limit.left_seconds()
        self._socket.settimeout(min(left_seconds, self._longest_seconds or left_seconds))
        try:
            return cast("int | None", self._stream.readinto(buffer))
        except TimeoutError:
            self._limit.left_seconds()
            raise

    def close(self) -> None:
        self._stream.close()
        super().close()
