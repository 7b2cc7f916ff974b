"""Connections to the one configured Prometheus, kept open between queries; `PrometheusProxy` asks through them.

A query through httpx costs 2.5 ms of processor time, through http.client 0.3 ms; three open pages ask about 100 times
in a scrape interval. http.client reads answers; a request is written here, head and body in one packet.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
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
        self._tls = tls if parts.scheme == "https" else None
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._tls is not None else 80)
        self._host_header, self._path = parts.netloc.rpartition("@")[2], parts.path
        self._timeout_seconds, self._max_bytes = timeout_seconds, max_bytes
        self._idle: list[socket.socket] = []
        self._used: set[socket.socket] = set()
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, path: str, body: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
        """Send a request that may be repeated, and read its answer.

        Raises:
            TimeoutError: The answer did not come in time.
            AnswerTooLargeError: It is larger than `max_bytes`.
            OSError: The server does not answer, or the pool was closed.
            http.client.HTTPException: It does not speak HTTP, or the answer ends early.
        """
        deadline = time.monotonic() + self._timeout_seconds
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._exchange(kept, path, body, headers, deadline)
            except (http.client.RemoteDisconnected, ConnectionError):
                pass  # the server closed an idle connection: ask on a new one
        return self._exchange(self._connected(deadline), path, body, headers, deadline)

    def close(self) -> None:
        """Close the idle connections, and end the requests on the others and all later ones with an error."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            for used in self._used:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(used, socket.SHUT_RDWR)  # that of TLS is for its own thread

    def _connected(self, deadline: float) -> socket.socket:
        """Connect to the first address that answers, within the rest of the time."""
        failure = OSError(f"{self._host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM):
            made = socket.socket(family, kind, protocol)
            try:
                with self._using(made):
                    _limit_next_wait(made, deadline)
                    made.connect(address)
                    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made if self._tls is None else self._encrypted(self._tls, made, deadline)
            except OSError as error:
                made.close()
                failure = error
        try:
            raise failure
        finally:
            del failure  # its traceback has this frame

    def _encrypted(self, tls: ssl.SSLContext, plain: socket.socket, deadline: float) -> socket.socket:
        made = tls.wrap_socket(plain, server_hostname=self._host, do_handshake_on_connect=False)
        try:
            with self._using(made):
                _limit_next_wait(made, deadline)
                made.do_handshake()
        except BaseException:
            made.close()
            raise
        return made

    @contextlib.contextmanager
    def _using(self, one: socket.socket) -> Iterator[None]:
        """Have `close` shut this socket down while the block runs."""
        with self._lock:
            if self._closed:
                raise ConnectionError("the connections are closed, as the bridge stops")
            self._used.add(one)
        try:
            yield
        finally:
            with self._lock:
                self._used.discard(one)

    def _exchange(
        self, one: socket.socket, path: str, body: bytes, headers: Mapping[str, str], deadline: float
    ) -> ForwardedAnswer:
        kept = False
        try:
            with self._using(one):
                _limit_next_wait(one, deadline)
                one.sendall(self._request_head(path, headers, len(body)) + body)
                with http.client.HTTPResponse(one, method="POST") as response:
                    data = self._read(response, one, deadline)
                kept = not response.will_close
            return ForwardedAnswer(
                response.status,
                response.headers.get("Content-Type", ""),
                response.headers.get("Content-Encoding", ""),
                data,
            )
        finally:
            with self._lock:
                kept = kept and not self._closed
                if kept:
                    self._idle.append(one)
            if not kept:
                one.close()

    def _read(self, response: http.client.HTTPResponse, one: socket.socket, deadline: float) -> bytes:
        response.begin()
        data = bytearray()
        while part := response.read1(READ_BYTES):
            data += part
            if len(data) > self._max_bytes:
                raise AnswerTooLargeError
            _limit_next_wait(one, deadline)
        if response.length:  # `read1` reports an early end like the end of the body
            raise http.client.IncompleteRead(bytes(data), response.length)
        return bytes(data)

    def _request_head(self, path: str, headers: Mapping[str, str], length: int) -> bytes:
        lines = [f"POST {self._path}{path} HTTP/1.1", f"Host: {self._host_header}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise http.client.HTTPException("a header of the request has a line break")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _limit_next_wait(one: socket.socket, deadline: float) -> None:
    """Let the next wait for the server take the rest of the time.

    Raises:
        TimeoutError: There is none left.
    """
    remaining_seconds = deadline - time.monotonic()
    if remaining_seconds <= 0:
        raise TimeoutError
    one.settimeout(remaining_seconds)
