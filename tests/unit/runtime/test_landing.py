"""The landing page: state, age of the data, faults, links."""

import asyncio
from collections.abc import Sequence

import httpx
from prometheus_client import CollectorRegistry

from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.landing import Fact, ago
from kernelcast.runtime.web.server import WebServer


def page(
    facts: Sequence[Fact] = (), *, ready: tuple[bool, str] = (True, ""), healthy: tuple[bool, str] = (True, "")
) -> str:
    server = WebServer(
        WebSettings(listen_address="127.0.0.1:0"),
        title="bridge",
        metrics=CollectorRegistry(),
        ready=lambda: ready,
        healthy=lambda: healthy,
        facts=lambda: facts,
    )

    async def ask() -> str:
        transport = httpx.ASGITransport(app=server._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bridge") as client:
            answer = await client.get("/")
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            return answer.text

    return asyncio.run(ask())


def test_the_state_and_the_facts_are_shown_with_their_age() -> None:
    text = page([Fact("Newest sample", ago(3))])
    assert "ready" in text
    assert "<td>Newest sample</td><td>3 s ago</td>" in text
    assert "Wrong now" not in text
    assert '<a href="/metrics">' in text


def test_what_is_wrong_is_named_first() -> None:
    text = page([Fact("Silent producers", "node7", wrong=True), Fact("Series", "5")], ready=(False, "it is compiling"))
    assert text.index("Wrong now") < text.index("<h2>This service</h2>")
    wrong = text[text.index("Wrong now") : text.index("<h2>This service</h2>")]
    assert "it is compiling" in wrong
    assert "Silent producers: node7" in wrong
    assert "Series" not in wrong


def test_a_service_that_is_not_healthy_is_not_called_ready() -> None:
    text = page(healthy=(False, "no interval for 60 s"))
    assert "not ready: no interval for 60 s" in text


def test_names_are_text() -> None:
    text = page([Fact("Silent producers", "<script>alert(1)</script>", wrong=True)])
    assert "<script>" not in text
    assert text.count("&lt;script&gt;") == 2


def test_facts_that_cannot_be_read_do_not_take_the_page_with_them() -> None:
    class Broken(Sequence[Fact]):
        def __len__(self) -> int:
            raise RuntimeError("a table changed")

        def __getitem__(self, _index: object) -> Fact:  # type: ignore[override]
            raise RuntimeError("a table changed")

    server = WebServer(
        WebSettings(listen_address="127.0.0.1:0"),
        title="bridge",
        metrics=CollectorRegistry(),
        facts=lambda: list(Broken()),
    )

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=server._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bridge") as client:
            return await client.get("/")

    answer = asyncio.run(ask())
    assert answer.status_code == 200
    assert "a table changed" in answer.text


def test_ages_are_in_words() -> None:
    assert [ago(seconds) for seconds in (-1, 5, 300, 9000)] == ["0 s ago", "5 s ago", "5 min ago", "2 h ago"]
