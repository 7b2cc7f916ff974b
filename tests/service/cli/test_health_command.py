"""`kernelcast health` asks real web servers of ours."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.runtime.certificates import self_signed

from kernelcast.cli.app import run
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.server import WebServer

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
