"""Credentials of our commands stay with the server for which they are, also where it redirects to another one."""

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tests.support.http_double import Behaviour, answer_with, server

from kernelcast.cli.top.target import ServerCredentials, get
from kernelcast.predictor.prometheus import PrometheusClient

pytestmark = pytest.mark.service

SUCCESS = b'{"status": "success", "data": []}'


def noting(seen: list[str | None], redirect: str = "") -> Behaviour:
    """Note the credentials of each request, and answer, or redirect to another address."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        moved = redirect and not handler.path.endswith("/moved")
        (answer_with(302, SUCCESS, {"Location": redirect}) if moved else answer_with(200, SUCCESS))(handler)

    return behave


def test_a_redirect_to_another_server_has_no_credentials(password: Path) -> None:
    seen: list[str | None] = []
    with server(noting(seen)) as other, server(noting([], other)) as first:
        ask_both(first, password)
    assert seen == [None, None]


def test_a_redirect_on_the_same_server_has_them(password: Path) -> None:
    seen: list[str | None] = []
    with server(noting(seen, "/moved")) as url:
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
