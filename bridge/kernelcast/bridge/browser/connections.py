"""Connections to the one configured Prometheus, kept open between queries; `PrometheusProxy` asks through them.

A query through httpx costs 2.5 ms of processor time, through http.client 0.3 ms; three open pages ask about 100 times
in a scrape interval. http.client connects and reads answers; a request is written here, head and body in one packet.
"""

import http.client
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

READ_BYTES: Final = 64 * 1024
"""Largest part of an answer that is read at once."""


class AnswerTooLargeError(Exception):
    """An answer with more bytes than are forwarded."""


@dataclass(frozen=True, slots=True)
class ForwardedAnswer:
    """An answer as it was transferred.

    Attributes:
        status: HTTP status.
        content_type: Its type.
        content_encoding: Its compression; empty for none.
        body: Its bytes, compressed or not.
    """

    status: int
    content_type: str
    content_encoding: str
    body: bytes


class ConnectionPool:
    """Sends one request at a time on each connection, from any thread. It follows no redirect and asks no proxy."""

    def __init__(self, url: str, *, tls: ssl.SSLContext, timeout_seconds: float, max_bytes: int) -> None:
        """Prepare; nothing connects yet.

        Args:
            url: URL of the server, with a path that requests begin with.
            tls: For https.
            timeout_seconds: Time limit of a request, from its begin to its last byte.
            max_bytes: Largest answer.
        """
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._host_header = parts.netloc.rpartition("@")[2]
        self._path, self._tls = parts.path, tls if parts.scheme == "https" else None
        self._timeout_seconds, self._max_bytes = timeout_seconds, max_bytes
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def ask(self, path: str, body: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
        """Send a request that may be repeated, and read its answer.

        Raises:
            TimeoutError: The answer did not come in time.
            AnswerTooLargeError: It is larger than `max_bytes`.
            OSError: The server does not answer.
            http.client.HTTPException: It does not speak HTTP, or the answer ends early.
        """
        deadline = time.monotonic() + self._timeout_seconds
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            try:
                return self._exchange(connection, path, body, headers, deadline)
            except (http.client.RemoteDisconnected, ConnectionError):
                pass  # the server closed an idle connection: ask on a new one
        return self._exchange(self._new_connection(), path, body, headers, deadline)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _new_connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_seconds, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_seconds)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        deadline: float,
    ) -> ForwardedAnswer:
        kept = False
        try:
            if connection.sock is None:
                connection.connect()
            _limit_next_read(connection, deadline)
            connection.sock.sendall(self._request_head(path, headers, len(body)) + body)
            response = http.client.HTTPResponse(connection.sock, method="POST")
            response.begin()
            data = bytearray()
            while part := response.read1(READ_BYTES):
                data += part
                if len(data) > self._max_bytes:
                    raise AnswerTooLargeError
                _limit_next_read(connection, deadline)
            if response.length:  # `read1` reports an early end like the end of the body
                raise http.client.IncompleteRead(bytes(data), response.length)
            kept = not response.will_close
            response.close()  # `read1` leaves it open at the end of the body, and the connection with it
            return ForwardedAnswer(
                response.status,
                response.headers.get("Content-Type", ""),
                response.headers.get("Content-Encoding", ""),
                bytes(data),
            )
        finally:
            if kept:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _request_head(self, path: str, headers: Mapping[str, str], length: int) -> bytes:
        lines = [f"POST {self._path}{path} HTTP/1.1", f"Host: {self._host_header}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise http.client.HTTPException("a header of the request has a line break")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _limit_next_read(connection: http.client.HTTPConnection, deadline: float) -> None:
    """Let the next read take the rest of the time.

    Raises:
        TimeoutError: There is none left.
    """
    remaining_seconds = deadline - time.monotonic()
    if remaining_seconds <= 0:
        raise TimeoutError
    if connection.sock is not None:
        connection.sock.settimeout(remaining_seconds)
