"""Requests to a Prometheus: credentials, certificates, tenant, proxy, throttling and slow answers, on loopback."""

import base64
import http.server
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.runtime.certificates import self_signed

from kernelcast.predictor.access import HttpAccess
from kernelcast.predictor.prometheus import PrometheusClient
from kernelcast.wire.errors import ConfigurationError, PrometheusError

pytestmark = pytest.mark.service

ANSWER = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'


class Api:
    """A query API that keeps the headers of its requests."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.headers: list[dict[str, str]] = []
        self.status, self.answer_headers = 200, dict[str, str]()
        self.before: Callable[[], None] = lambda: None
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                api.headers.append(dict(self.headers))
                api.before()
                self.send_response(api.status)
                for name, value in api.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(ANSWER)))
                self.end_headers()
                self.wfile.write(ANSWER)

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}"


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Api]:
    api = Api(context)
    thread = threading.Thread(target=api.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.server.shutdown()
        api.server.server_close()
        thread.join()


def ask(api: Api, access: HttpAccess, **limits: float) -> None:
    PrometheusClient(api.url, access=access, **limits).query("up", at_seconds=0.0)  # type: ignore[arg-type]


def test_a_token_a_password_and_a_tenant_are_sent_and_files_are_read_for_each_request(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    with serving() as api:
        for content in ("first", "second"):
            token.write_text(f"{content}\n")
            ask(api, HttpAccess(bearer_token_file=token))
        password.write_text("pa:ss\n")
        ask(api, HttpAccess(user="ann", password_file=password, tenant="team"))
    assert [headers["Authorization"] for headers in api.headers[:2]] == ["Bearer first", "Bearer second"]
    assert base64.b64decode(api.headers[2]["Authorization"].removeprefix("Basic ")) == b"ann:pa:ss"
    assert api.headers[2]["X-Scope-Orgid"] == "team"


def test_a_client_with_its_certificate_and_the_authority_of_the_server_is_let_in(tmp_path: Path) -> None:
    server_certificate, server_key = self_signed(tmp_path, "server")
    own, key = self_signed(tmp_path, "client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_certificate, server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(own)
    with serving(context) as api:
        ask(api, HttpAccess(ca_file=server_certificate, cert_file=own, key_file=key))
        assert len(api.headers) == 1
        with pytest.raises(PrometheusError, match="no TLS that we can verify"):
            ask(api, HttpAccess(cert_file=own, key_file=key))
        with pytest.raises(PrometheusError):
            ask(api, HttpAccess(ca_file=server_certificate))
    assert len(api.headers) == 1


@pytest.mark.parametrize("name", ["ca_file", "bearer_token_file", "cert_file"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    with serving() as api, pytest.raises(ConfigurationError, match=rf"predictor\.prometheus\.{name} is .*absent"):
        ask(api, HttpAccess(**{name: tmp_path / "absent"}))  # type: ignore[arg-type]


def test_a_refusal_names_the_settings_for_credentials_and_throttling_the_time_to_wait() -> None:
    with serving() as api:
        api.status = 401
        with pytest.raises(PrometheusError, match="give credentials: bearer_token_file") as refused:
            ask(api, HttpAccess())
        assert refused.value.status == 401
        api.status, api.answer_headers = 429, {"Retry-After": "17"}
        with pytest.raises(PrometheusError) as throttled:
            ask(api, HttpAccess())
    assert throttled.value.retry_after_seconds == 17.0


def test_the_proxy_of_the_environment_is_used_only_if_the_settings_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    client = PrometheusClient(
        "http://prometheus.invalid:9090", access=HttpAccess(with_proxy=False), timeout_seconds=5, whole_seconds=5
    )
    with pytest.raises(PrometheusError, match=r"(?i)name|resolution|address"):
        client.query("up", at_seconds=0.0)
    client = PrometheusClient("http://prometheus.invalid:9090", access=HttpAccess(with_proxy=True), timeout_seconds=5)
    with pytest.raises(PrometheusError, match="refused"):
        client.query("up", at_seconds=0.0)


def test_an_answer_that_takes_ten_seconds_is_waited_for() -> None:
    with serving() as api:
        api.before = lambda: time.sleep(10)
        began = time.monotonic()
        ask(api, HttpAccess())
        assert time.monotonic() - began > 9
