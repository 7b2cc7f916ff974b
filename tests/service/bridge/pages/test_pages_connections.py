"""The connections of the served pages to their Prometheus, against a small real server."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.runtime.certificates import self_signed
from tests.support.waiting import Stopwatch, eventually

from kernelcast.bridge.browser.connections import AnswerTooLargeError, ConnectionPool

PEERS: list[int] = []


class Prometheus(BaseHTTPRequestHandler):
    """Answers by the path: at once, never, without an end, with half of its bytes, or with a redirect."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        PEERS.append(self.client_address[1])
        if self.path.endswith("slow"):
            time.sleep(2)
        self.send_response(307 if self.path.endswith("elsewhere") else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Location", "http://127.0.0.1:1/")
        size = 1_000_000 if self.path.endswith("large") else 2
        self.send_header("Content-Length", str(2 * size if self.path.endswith("half") else size))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the client has seen enough
            self.wfile.write(b"{}" * (size // 2))
        self.close_connection = self.path.endswith(("last", "half"))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def connections(timeout_seconds: float = 5.0) -> Iterator[ConnectionPool]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Prometheus) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/prefix"
        made = ConnectionPool(url, tls=ssl.create_default_context(), timeout_seconds=timeout_seconds, max_bytes=1000)
        try:
            yield made
        finally:
            made.close()
            server.shutdown()


def test_queries_share_a_connection_and_one_that_was_closed_is_replaced() -> None:
    PEERS.clear()
    with connections() as made:
        bodies = [made.ask(path, b"query=up", {}).body for path in ("/a", "/b", "/last", "/c")]
    assert bodies == [b"{}"] * 4
    assert PEERS[0] == PEERS[1] == PEERS[2] != PEERS[3]


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    with connections() as made:
        with pytest.raises(AnswerTooLargeError):
            made.ask("/large", b"", {})
        assert made.ask("/a", b"", {}).status == 200, "the connection in the middle of an answer is not used again"


def test_an_answer_that_ends_early_is_an_error() -> None:
    with connections() as made, pytest.raises(IncompleteRead, match="2 more expected"):
        made.ask("/half", b"", {})


def test_a_slow_server_is_given_up_in_time() -> None:
    with connections(timeout_seconds=0.2) as made:
        with Stopwatch() as took, pytest.raises(TimeoutError):
            made.ask("/slow", b"", {})
        assert took.seconds < 1.5


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    with connections() as made:
        assert made.ask("/elsewhere", b"", {}).status == 307


def test_a_line_break_in_a_header_adds_no_header() -> None:
    with connections() as made, pytest.raises(HTTPException, match="line break"):
        made.ask("/a", b"query=up", {"Authorization": "Bearer a\nX-Role: admin"})


def test_a_kept_connection_that_fails_late_and_a_handshake_that_hangs_share_one_time_limit(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "prometheus")
    offered = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    offered.load_cert_chain(certificate, key)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

    def serve(listener: socket.socket) -> None:
        connected, _ = listener.accept()
        with offered.wrap_socket(connected, server_side=True) as first:
            first.recv(1000)
            first.sendall(answer)
            first.recv(1000)
            time.sleep(0.8)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        tls = ssl.create_default_context(cafile=str(certificate))
        made = ConnectionPool(url, tls=tls, timeout_seconds=1.0, max_bytes=1000)
        assert made.ask("/a", b"", {}).body == b"{}"
        with Stopwatch() as took, pytest.raises(TimeoutError):
            made.ask("/b", b"", {})
        made.close()
    assert took.seconds < 1.4


def test_requests_that_wait_end_when_the_connections_are_closed() -> None:
    failures: list[BaseException] = []

    def ask(made: ConnectionPool) -> None:
        try:
            made.ask("/slow", b"", {})
        except OSError as error:
            failures.append(error)

    with connections(timeout_seconds=100.0) as made:
        made.ask("/a", b"", {})
        asking = [threading.Thread(target=ask, args=(made,)) for _ in range(2)]
        before = len(PEERS)
        for one in asking:
            one.start()
        eventually(lambda: len(PEERS) == before + 2)
        with Stopwatch() as took:
            made.close()
            for one in asking:
                one.join()
        ask(made)
    assert took.seconds < 1.0
    assert len(failures) == 3
    assert str(failures[2]) == "the connections are closed, as the bridge stops"
