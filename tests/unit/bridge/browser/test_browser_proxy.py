"""The pages' way to Prometheus: two paths, known parameters, bounds on size, time and number."""

import asyncio
import gzip
import json
import threading
from base64 import b64encode
from collections.abc import Mapping
from http.client import BadStatusLine
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Route
from tests.support.bridge.asgi_client import AsgiClient

from kernelcast.bridge.browser import prometheus
from kernelcast.bridge.browser.connections import AnswerTooLargeError, ForwardedAnswer
from kernelcast.bridge.browser.prometheus import Ask, PrometheusProxy, RefusedQueryError, checked
from kernelcast.bridge.browser.settings import BasicAuth, PagesSettings

ANSWER = {"status": "success", "data": {"resultType": "vector", "result": []}}
BODY = json.dumps(ANSWER).encode()
GOOD = ForwardedAnswer(200, "application/json", "", BODY)


def page(ask: Ask, **settings: Any) -> AsgiClient:
    """A page whose bridge asks a Prometheus of the test's."""
    chosen = PagesSettings(prometheus_url="http://prometheus:9090/prefix", **settings)
    return AsgiClient([Route("/{kind}", PrometheusProxy(chosen, ask=ask).answer)])


def refusing(error: Exception) -> Ask:
    """A Prometheus that does not answer."""

    def ask(_path: str, _body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
        raise error

    return ask


def test_a_query_reaches_prometheus_and_its_answer_comes_back() -> None:
    asked: list[tuple[str, bytes]] = []

    def ask(path: str, body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
        asked.append((path, body))
        return GOOD

    answer = page(ask).get("/query?query=up&time=12.5")
    assert (answer.status_code, answer.json()) == (200, ANSWER)
    ((path, body),) = asked
    assert path == "/api/v1/query"
    assert parse_qs(body.decode()) == {"query": ["up"], "time": ["12.5"], "timeout": ["10s"]}


@pytest.mark.parametrize("token", ["s3cr€t".encode(), b"\xff", b"two\nlines"])
def test_a_token_that_no_header_can_hold_is_named_as_the_reason(tmp_path: Path, token: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(token)
    answer = page(lambda *_: GOOD, bearer_token_file=file).get("/query?query=up&time=1")
    assert answer.status_code == 502
    assert str(file) in answer.json()["error"]


def test_a_token_that_cannot_be_read_is_named_as_the_reason(tmp_path: Path) -> None:
    answer = page(lambda *_: GOOD, bearer_token_file=tmp_path / "token").get("/query?query=up&time=1")
    assert answer.status_code == 502
    assert "credentials cannot be read" in answer.json()["error"]
    assert "token" in answer.json()["error"]


@pytest.mark.parametrize("kind", ["series", "admin", "labels", "query_exemplars"])
def test_no_other_path_is_forwarded(kind: str) -> None:
    with pytest.raises(RefusedQueryError, match="is not forwarded"):
        checked(kind, [("query", "up"), ("time", "1")])


@pytest.mark.parametrize(
    "given",
    [
        [("query", "up")],
        [("query", "up"), ("time", "1"), ("timeout", "1h")],
        [("query", "up"), ("query", "down"), ("time", "1")],
        [("query", "up"), ("time", "now")],
        [("query", "up"), ("time", "1e9")],
        [("query", "x" * 16_385), ("time", "1")],
    ],
)
def test_a_query_with_other_parameters_is_refused(given: list[tuple[str, str]]) -> None:
    with pytest.raises(RefusedQueryError) as refused:
        checked("query", given)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("start", "end", "step"), [("0", "1500", "1"), ("10", "5", "1"), ("0", "10", "0"), ("0", "10", "-1")]
)
def test_a_range_has_at_most_1500_points(start: str, end: str, step: str) -> None:
    with pytest.raises(RefusedQueryError):
        checked("query_range", [("query", "up"), ("start", start), ("end", end), ("step", step)])
    assert checked("query_range", [("query", "up"), ("start", "0"), ("end", "1499"), ("step", "1")])


def test_a_prometheus_that_is_away_is_a_reason_not_an_empty_answer() -> None:
    answer = page(refusing(ConnectionRefusedError(111, "Connection refused"))).get("/query?query=up&time=1")
    assert answer.status_code == 502
    assert answer.json() == {"status": "error", "error": "Prometheus does not answer: Connection refused"}


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (AnswerTooLargeError(), 502, "larger than pages.max_response_bytes"),
        (TimeoutError(), 504, "pages.timeout_seconds"),
        (BadStatusLine("x"), 502, "does not answer"),
    ],
)
def test_a_query_without_an_answer_says_why(error: Exception, status: int, words: str) -> None:
    answer = page(refusing(error)).get("/query?query=up&time=1")
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_queries_beyond_the_places_wait_and_beyond_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_WAITING", 3)
    running, gate, lock = [0, 0], threading.Event(), threading.Lock()

    def ask(_path: str, _body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
        with lock:
            running[0] += 1
            running[1] = max(running)
        gate.wait(10)
        with lock:
            running[0] -= 1
        return GOOD

    async def scenario() -> list[httpx.Response]:
        client = page(ask, concurrent_queries=2)
        asked = [asyncio.create_task(client.send("GET", "/query?query=up&time=1")) for _ in range(5)]
        refused, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result().status_code for task in refused} == {503}
        gate.set()
        return list(await asyncio.gather(*asked))

    answers = asyncio.run(scenario())
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503]
    assert running[1] <= 2
    assert answers[-1].headers["retry-after"] == "2"


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_an_answer_goes_through_as_it_is_in_a_coding_that_the_client_takes(coding: str) -> None:
    def ask(_path: str, _body: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
        assert headers["Accept-Encoding"] == coding
        return ForwardedAnswer(200, "application/json", "gzip", gzip.compress(BODY)) if coding == "gzip" else GOOD

    assert page(ask).get("/query?query=up&time=1", {"accept-encoding": coding}).json() == ANSWER


def test_another_server_at_the_address_is_named_as_such() -> None:
    answer = page(lambda *_: ForwardedAnswer(200, "text/html", "", b"<html>")).get("/query?query=up&time=1")
    assert answer.status_code == 502
    assert "not with JSON" in answer.json()["error"]


def test_an_error_of_prometheus_comes_through() -> None:
    body = json.dumps({"status": "error", "error": "1:1: parse error"}).encode()
    answer = page(lambda *_: ForwardedAnswer(400, "application/json", "", body)).get("/query?query=(&time=1")
    assert (answer.status_code, answer.json()["error"]) == (400, "1:1: parse error")


def test_the_credentials_of_the_page_stay_here_and_ours_go_to_prometheus(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")

    def ask(_path: str, _body: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
        assert headers["Authorization"] == f"Basic {b64encode(b'pages:secret').decode()}"
        assert not {name.lower() for name in headers} & {"cookie", "host"}
        return GOOD

    basic = BasicAuth(username="pages", password_file=tmp_path / "password")
    given = {"authorization": "Basic dXNlcjpwYWdl", "cookie": "a=b"}
    assert page(ask, basic_auth=basic).get("/query?query=up&time=1", given).status_code == 200


@pytest.mark.parametrize("url", ["ftp://x", "http://user:pw@x", "x:9090", "http://x/?a=1", "http://x:99999"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"it must|its port"):
        PagesSettings(prometheus_url=url)


TEXTS = st.text(st.sampled_from('aé=&+% {}"$~,/\n'), max_size=20)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4), st.text("ab=&+%20;", max_size=20))
def test_parameters_are_read_as_those_of_a_form(pairs: list[tuple[str, str]], raw: str) -> None:
    """Texts are decoded once and kept, also those with odd escapes."""
    for text in (urlencode(pairs), raw):
        for _ in range(2):
            assert prometheus.parameters_in(text) == parse_qsl(text, keep_blank_values=True)


def test_a_query_that_is_asked_again_is_forwarded_as_before() -> None:
    asked: list[bytes] = []

    def ask(_path: str, body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
        asked.append(body)
        return ForwardedAnswer(200, "application/json", "", b"{}")

    expr = 'sum by (é) (rate({__name__=~"a+b|c&d"}[5m])) % 7'
    long = "x" * 10_000
    proxy = PrometheusProxy(PagesSettings(prometheus_url="http://prometheus:9090"), ask=ask)

    async def twice() -> None:
        for query in (expr, expr, long, long):
            await proxy.ask("query?" + urlencode({"query": query, "time": "1.5"}))

    asyncio.run(twice())
    for query, bodies in ((expr, asked[:2]), (long, asked[2:])):
        assert bodies == [urlencode({"query": query, "time": "1.5", "timeout": "10s"}).encode()] * 2
