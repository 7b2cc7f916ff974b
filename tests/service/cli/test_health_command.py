"""`kernelcast health` asks real web servers of ours."""

import http.server
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dripping_server import dripping
from tests.support.runtime.certificates import self_signed

from kernelcast.cli.app import run
from kernelcast.cli.top import target
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.server import WebServer
from kernelcast.wire.errors import PageError

HASH = "$2b$10$KA7maWjKTztl6nZO84niv.J7n2I/xGjYN28WnEnULltB.nEkB/Sy6"
"""Of "change-me"."""


def server(*, ready: bool, config: Path | None = None) -> WebServer:
    settings = WebSettings(listen_address="127.0.0.1:0", config_file=config)
    return WebServer(settings, title="test", metrics=CollectorRegistry(), ready=lambda: (ready, "reading the past"))


@pytest.mark.parametrize(("ready", "code", "said"), [(True, 0, "ready"), (False, 1, "not ready: reading the past")])
def test_its_exit_code_is_the_daemons_answer(
    *, ready: bool, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(ready=ready) as web:
        assert run(["health", f"{web.url}/-/ready"]) == code
    assert capsys.readouterr().out.splitlines()[-1] == said


def test_the_first_daemon_that_answers_decides() -> None:
    with server(ready=False) as first, server(ready=True) as second:
        urls = [f"{web.url}/-/ready" for web in (first, second)]
        assert run(["health", "http://127.0.0.1:1/-/ready", urls[1], urls[0]]) == 0
        assert run(["health", *urls]) == 1


def test_it_takes_tls_and_a_user_of_this_machines_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = self_signed(tmp_path, "server")
    config, password = tmp_path / "web.yml", tmp_path / "password"
    password.write_text("change-me\n")
    config.write_text(
        f"tls_server_config: {{cert_file: {certificate}, key_file: {key}}}\nbasic_auth_users: {{probe: {HASH}}}\n"
    )
    with server(ready=True, config=config) as web:
        assert run(["health", f"{web.url}/-/ready"]) == 1, "a user is asked for"
        access = ["--username", "probe", "--password-file", str(password), "--timeout", "20"]
        assert run(["health", f"{web.url}/-/ready", *access]) == 0
    assert run(["health", f"{web.url}/-/ready"]) == 1
    assert "does not answer" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["file:///etc/passwd"], ["localhost:19401"]])
def test_without_an_address_of_http_it_is_a_usage_error(arguments: list[str]) -> None:
    assert run(["health", *arguments]) == 2


def test_what_does_not_speak_http_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        greeting = threads.submit(_greet, listener)
        assert run(["health", f"http://127.0.0.1:{listener.getsockname()[1]}/-/ready"]) == 1
        greeting.result()
    assert "does not answer" in capsys.readouterr().out


def _greet(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"], ids=["headers", "body"])
def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_it(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(target, "WHOLE_SECONDS", 0.5)
    with dripping(sent) as url:
        begun = time.monotonic()
        assert run(["health", url, "--timeout", "0.5"]) == 1
        assert "does not answer: no whole answer came in 0.5 s" in capsys.readouterr().out
        with pytest.raises(PageError, match=r"no answer within 5 s, or no whole one within 0\.5 s"):
            target.get(url, target.ServerCredentials())
        assert time.monotonic() - begun < 3.0


def test_another_server_does_not_get_its_password(tmp_path: Path) -> None:
    seen: list[str | None] = []
    (tmp_path / "password").write_text("change-me")

    class Redirects(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(302 if self.path == "/-/ready" else 200)
            self.send_header("Location", f"http://localhost:{self.headers['Host'].rpartition(':')[2]}/login")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Redirects) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        access = ["--username", "probe", "--password-file", str(tmp_path / "password")]
        assert run(["health", f"http://127.0.0.1:{other.server_address[1]}/", *access]) == 0
        other.shutdown()
    assert [bool(one) for one in seen] == [True, False]
