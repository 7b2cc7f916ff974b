"""All queries of a page in one request, and each of them asked once for all viewers."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.routing import Route
from tests.support.bridge.asgi_client import AsgiClient

from kernelcast.bridge.browser import batch
from kernelcast.bridge.browser.batch import MAX_QUERIES, MAX_REQUEST_BYTES, PART_HEADER, QueryBatch
from kernelcast.bridge.browser.connections import ForwardedAnswer

JSON = {"content-type": "application/json"}


class Prometheus:
    """Answers a query with its own text, once its gate is open; one that begins with "bad" with an error."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.gates: dict[str, asyncio.Event] = {}

    async def ask(self, query: str) -> ForwardedAnswer:
        self.asked[query] += 1
        if query in self.gates:
            await self.gates[query].wait()
        return ForwardedAnswer(502 if query.startswith("bad") else 200, "application/json", "gzip", query.encode())


class Page:
    """A page of viewers, with a clock of the test's."""

    def __init__(self, ask: Callable[[str], Awaitable[ForwardedAnswer]]) -> None:
        self.seconds = 0.0
        self.batch = QueryBatch(ask, 15.0, clock=lambda: self.seconds)
        self._client = AsgiClient([Route("/queries", self.batch.answer, methods=["POST"])])

    async def post(self, content: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        return await self._client.send("POST", "/queries", JSON if headers is None else headers, content)

    async def view(self, *queries: str) -> dict[str, tuple[int, bytes]]:
        """Status and body of each query that has a part."""
        answer = await self.post(json.dumps(queries).encode())
        assert answer.status_code == 200, answer.text
        found, rest = {}, answer.content
        while rest:
            number, status, packed, size = PART_HEADER.unpack_from(rest)
            assert packed == 1
            found[queries[number]] = status, rest[PART_HEADER.size : PART_HEADER.size + size]
            rest = rest[PART_HEADER.size + size :]
        return found


def test_every_query_of_a_page_has_a_part_with_its_own_status() -> None:
    page = Page(Prometheus().ask)
    found = asyncio.run(page.view("a", "bad", "b", "a"))
    assert found == {"a": (200, b"a"), "bad": (502, b"bad"), "b": (200, b"b")}


def test_viewers_of_the_same_page_cost_one_until_the_next_scrape() -> None:
    prometheus = Prometheus()
    page = Page(prometheus.ask)

    async def scenario() -> None:
        await asyncio.gather(*(page.view("a", "b") for _ in range(3)))
        assert prometheus.asked == {"a": 1, "b": 1}, "they ask at one time"
        page.seconds = 14.9
        assert await page.view("a") == {"a": (200, b"a")}
        assert prometheus.asked["a"] == 1
        page.seconds = 15.0
        await page.view("a")
        assert prometheus.asked == {"a": 2, "b": 1}

    asyncio.run(scenario())
    assert page.batch.kept_bytes == 1, "answers of an earlier interval are not kept"


def test_an_error_is_not_kept() -> None:
    prometheus = Prometheus()
    page = Page(prometheus.ask)
    for _ in range(2):
        assert asyncio.run(page.view("bad")) == {"bad": (502, b"bad")}
    assert (prometheus.asked["bad"], page.batch.kept_bytes) == (2, 0)


def test_a_slow_query_does_not_hold_up_the_others_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "GATHER_SECONDS", 0.01)
    prometheus = Prometheus()
    page = Page(prometheus.ask)

    async def scenario() -> None:
        gate = prometheus.gates["slow"] = asyncio.Event()
        assert await page.view("a", "slow") == {"a": (200, b"a")}
        rest = asyncio.create_task(page.view("slow"))
        page.seconds = 60.0
        await page.view("a")
        assert not rest.done(), "an answer without parts would be asked for again at once"
        gate.set()
        assert await rest == {"slow": (200, b"slow")}

    asyncio.run(scenario())
    assert prometheus.asked["slow"] == 1


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MAX_KEPT_BYTES", 10)
    prometheus = Prometheus()
    page = Page(prometheus.ask)
    asyncio.run(page.view("aaaa", "bbbb", "cccc", "d" * 11))
    assert page.batch.kept_bytes <= 10
    asyncio.run(page.view("aaaa"))
    assert prometheus.asked["aaaa"] == 2, "the oldest goes first"


def test_a_query_that_fails_in_the_bridge_has_an_answer_that_says_so() -> None:
    async def ask(_query: str) -> ForwardedAnswer:
        raise RuntimeError("out of order")

    page = Page(ask)
    answer = asyncio.run(page.post(b'["x"]'))
    assert PART_HEADER.unpack_from(answer.content)[1] == 500
    assert b"out of order" in answer.content


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b'["up"]', {"content-type": "text/plain"}, 415),
        (b"[", JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b'{"a": 1}', JSON, 400),
        (b'["up", 1]', JSON, 400),
        (b"[]", JSON, 400),
        (json.dumps(["up"] * (MAX_QUERIES + 1)).encode(), JSON, 400),
        (json.dumps(["x" * MAX_REQUEST_BYTES]).encode(), JSON, 413),
    ],
)
def test_a_request_beyond_the_bounds_asks_nothing(content: bytes, headers: dict[str, str], status: int) -> None:
    """A page of another site cannot send this type without our consent, which no browser gets."""
    prometheus = Prometheus()
    answer = asyncio.run(Page(prometheus.ask).post(content, headers))
    assert answer.status_code == status
    assert answer.json()["error"]
    assert not prometheus.asked


def test_a_request_without_an_end_is_not_read_beyond_its_bound() -> None:
    prometheus = Prometheus()
    sent = 0

    async def receive() -> dict[str, Any]:
        nonlocal sent
        sent += 65_536
        assert sent <= 2 * MAX_REQUEST_BYTES
        return {"type": "http.request", "body": b" " * 65_536, "more_body": True}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    answer = asyncio.run(QueryBatch(prometheus.ask, 15.0).answer(Request(scope, receive)))
    assert answer.status_code == 413
    assert not prometheus.asked
