"""Pages of engines over HTTP: redirects, sizes and answers that never end."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernelcast.exporter.scrape import fetch as fetching
from kernelcast.exporter.scrape.fetch import MAX_PAGE_BYTES, fetch
from kernelcast.wire.errors import PageError

pytestmark = pytest.mark.service


class Server(BaseHTTPRequestHandler):
    """Answers by the path."""

    def do_GET(self) -> None:
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/metrics")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if self.path == "/large":
            self.wfile.write(b"#" * (MAX_PAGE_BYTES + 1))
        elif self.path == "/dripping":
            ended = threading.Event()
            try:
                while not ended.wait(0.05):
                    self.wfile.write(b"#")
            except OSError:
                return
        else:
            self.wfile.write(b"vllm:num_requests_running 3\n")

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_is_read(url: str) -> None:
    assert fetch(f"{url}/metrics") == "vllm:num_requests_running 3\n"


@pytest.mark.parametrize(
    ("path", "why"), [("/redirect", "no redirect"), ("/large", "larger than"), ("/dripping", "TimeoutError")]
)
def test_redirects_large_pages_and_endless_ones_are_refused(
    url: str, path: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "WHOLE_SECONDS", 1.0 if path == "/dripping" else 60.0)
    with pytest.raises(PageError, match=why):
        fetch(f"{url}{path}")
