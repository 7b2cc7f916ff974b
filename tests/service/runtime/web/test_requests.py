"""Credentials of our commands stay with the server for which they are, also where it redirects to another one."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kernelcast.cli.top.target import ServerCredentials, get
from kernelcast.predictor.prometheus import PrometheusClient

pytestmark = pytest.mark.service

SUCCESS = b'{"status": "success", "data": []}'


@contextmanager
def server(seen: list[str | None], redirect: str = "") -> Iterator[str]:
    """A server that notes the credentials of each request, and answers, or redirects to another address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(self.headers["Authorization"])
            moved = redirect and not self.path.endswith("/moved")
            self.send_response(302 if moved else 200)
            if moved:
                self.send_header("Location", redirect)
            self.send_header("Content-Length", str(len(SUCCESS)))
            self.end_headers()
            self.wfile.write(SUCCESS)

        do_POST = do_GET  # noqa: N815  name of http.server

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join(5)


def test_a_redirect_to_another_server_has_no_credentials(password: Path) -> None:
    seen: list[str | None] = []
    with server(seen) as other, server([], f"{other}/login") as first:
        ask_both(first, password)
    assert seen == [None, None]


def test_a_redirect_on_the_same_server_has_them(password: Path) -> None:
    seen: list[str | None] = []
    with server(seen, "/moved") as url:
        ask_both(url, password)
    assert len(seen) == 4
    assert all(seen)


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("secret\n")
    return path


def ask_both(url: str, password: Path) -> None:
    get(f"{url}/metrics", ServerCredentials("ops", password))
    PrometheusClient(url.replace("://", "://ops:secret@")).series(["up"], start_seconds=0, end_seconds=1)
