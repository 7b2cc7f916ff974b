"""A dcgm-exporter that is guarded is noticed, too: real servers on loopback."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.runtime.certificates import self_signed

from kernelcast.exporter.instruments import Instruments
from kernelcast.exporter.nvml import dcgm_watch
from kernelcast.exporter.nvml.dcgm_watch import DcgmWatch, DeviceMetrics
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.timed_http import TimeLimit
from kernelcast.wire.catalogue import exporter as rows

PAGE = b"DCGM_FI_DEV_SM_CLOCK{} 1"


@contextmanager
def server(code: int, body: bytes, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """A server that always answers so; its address without the scheme."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            http.socket = context.wrap_socket(http.socket, server_side=True)
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{http.server_port}/metrics"
        finally:
            http.shutdown()
            thread.join()


def noticed(url: str) -> bool:
    watch = DcgmWatch(url)
    watch.check()
    return watch.answers


def test_one_that_speaks_tls_under_a_certificate_of_its_own_is_noticed(tmp_path: Path) -> None:
    with server(200, PAGE, self_signed(tmp_path, "dcgm")) as address:
        assert noticed(f"https://{address}")


def test_one_that_asks_for_a_password_is_noticed() -> None:
    with server(401, b"Unauthorized") as address:
        assert noticed(f"http://{address}")


def test_tls_is_tried_where_plain_http_is_refused_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    page = dcgm_watch._page

    def answer(url: str, limit: TimeLimit) -> bytes:
        asked.append(url.partition(":")[0])
        return PAGE if url.startswith("https://") else page(url, limit)

    monkeypatch.setattr(dcgm_watch, "_page", answer)
    with server(400, b"Client sent an HTTP request to an HTTPS server.\n") as address:
        assert noticed(f"http://{address}")
    assert asked == ["http", "https"]


def test_a_proxy_that_refuses_the_address_is_no_dcgm_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answered 403 on every node without a dcgm-exporter, and no node wrote device metrics."""
    with server(403, b"denied") as proxy, socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
        unused.close()
        for variable in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(variable, f"http://{proxy.partition('/')[0]}")
        assert not noticed(f"http://127.0.0.1:{port}/metrics")


@pytest.mark.parametrize(
    ("listens_on", "url_host", "is_own"),
    [
        ("", "127.0.0.1", True),
        ("", "localhost", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("192.0.2.7", "127.0.0.1", False),
        ("192.0.2.7", "192.0.2.7", True),
        ("Node-7.example", "node-7.example", True),
        ("[2001:db8::1]", "[2001:DB8:0::1]", True),
        ("", "host.example", False),
    ],
)
def test_the_exporter_on_dcgm_exporters_port_does_not_take_itself_for_one(
    monkeypatch: pytest.MonkeyPatch, listens_on: str, url_host: str, *, is_own: bool
) -> None:
    monkeypatch.setattr(dcgm_watch, "_page", lambda _url, _limit: PAGE)
    asked = ExporterSettings(
        web=WebSettings(listen_address=f"{listens_on}:9400"), dcgm_exporter_url=f"http://{url_host}:9400/metrics"
    )
    with DeviceMetrics(asked, has_gpus=True) as metrics:
        assert metrics.off == ("" if is_own else "dcgm_exporter")


def test_another_server_is_none() -> None:
    with server(200, b"hello") as address:
        assert not noticed(f"http://{address}")
    with server(404, PAGE) as address:
        assert not noticed(f"http://{address}")


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: ", b""])
def test_a_server_that_answers_slowly_holds_the_daemon_for_the_time_limit_only(
    monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    """Each byte came within the time limit of the socket, so that the daemon's start waited for the whole answer."""
    monkeypatch.setattr(dcgm_watch, "DCGM_TIMEOUT_SECONDS", 0.3)
    given_up, sent = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(begin)
            for _ in range(30):
                connection.sendall(b"#")
                if given_up.wait(0.1):
                    return
            sent.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        assert not noticed(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        given_up.set()
        thread.join()
    assert not sent.is_set()


def test_a_proxy_that_refuses_local_addresses_is_no_dcgm_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(403, b"Forbidden") as proxy, server(200, b"hello") as address:
        monkeypatch.setenv("http_proxy", f"http://{proxy.partition('/')[0]}")
        monkeypatch.setenv("no_proxy", "")
        assert not noticed(f"http://{address}")


def test_the_reason_for_missing_device_metrics_is_exposed() -> None:
    registry = CollectorRegistry()
    counts = Instruments(registry)
    name = rows.DEVICE_METRICS_OFF.prometheus_name
    assert not counts.device_metrics(off="dcgm_exporter")
    assert registry.get_sample_value(name, {"reason": "dcgm_exporter"}) == 1
    assert counts.device_metrics(off="")
    assert registry.get_sample_value(name, {"reason": "dcgm_exporter"}) is None
