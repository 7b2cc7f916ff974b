"""Requests of our commands: a proxy of the environment does not get those to this machine."""

import http.client
import urllib.request
from contextlib import suppress

import pytest

from kernelcast.cli.demo.http import answers
from kernelcast.cli.top.target import ServerCredentials, get
from kernelcast.runtime.web.requests import open_url
from kernelcast.wire.errors import PageError


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that are connected to, where the environment names a proxy."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    hosts: list[str] = []

    def connect(self: http.client.HTTPConnection) -> None:
        hosts.append(self.host)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    return hosts


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_the_demo_and_top_ask_no_proxy_for_this_machine(host: str, connected: list[str]) -> None:
    url = f"http://{host}:19401/-/ready"
    assert not answers(url)
    with suppress(PageError):
        get(url, ServerCredentials())
    assert connected == [host.strip("[]")] * 2


def test_another_machine_is_reached_through_the_proxy(connected: list[str]) -> None:
    with pytest.raises(OSError, match="refused"):
        open_url(urllib.request.Request("http://prometheus.example/"), 5.0)
    assert connected == ["proxy.example"]
