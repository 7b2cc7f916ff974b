"""The client of Prometheus' range queries, against a local HTTP double."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
import typer
from tests.support.dripping_server import dripping
from tests.support.ports import free_ports

from kernelcast.predictor import explain_command
from kernelcast.predictor.prometheus import PrometheusClient, TimeRange, refuse_future
from kernelcast.wire.errors import ConfigurationError, PrometheusError

pytestmark = pytest.mark.service

START = 1_700_000_000.0
Fields = dict[str, list[str]]
Answer = tuple[int, bytes]


def success(data: Any) -> Answer:
    return 200, json.dumps({"status": "success", "data": data}).encode()


def refused(code: int, reason: str) -> Answer:
    return code, json.dumps({"status": "error", "errorType": "bad_data", "error": reason}).encode()


@contextmanager
def double(respond: Callable[[str, Fields], Answer], headers: list[Mapping[str, str]] | None = None) -> Iterator[str]:
    """A server that calls `respond` with path and form of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            if headers is not None:
                headers.append(dict(self.headers))
            code, body = respond(self.path, form)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join(5)


def clock(_path: str, form: Fields) -> Answer:
    """Like Prometheus' `time()` for two series, of which the second has values in the first 100 seconds alone."""
    start, end, step = (float(form[name][0]) for name in ("start", "end", "step"))
    moments = [start + step * number for number in range(int((end - start) / step + 1e-9) + 1)]
    if len(moments) > 11_000:
        return refused(400, "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query")
    early = [moment for moment in moments if moment < START + 100]
    kinds = [("always", moments), ("early", early)]
    return success(
        {
            "resultType": "matrix",
            "result": [
                {"metric": {"job": job}, "values": [[moment, str(moment)] for moment in found]}
                for job, found in kinds
                if found
            ],
        }
    )


def test_a_long_range_is_read_in_pages_that_prometheus_accepts() -> None:
    requests: list[Fields] = []

    def counted(path: str, form: Fields) -> Answer:
        requests.append(form)
        return clock(path, form)

    with double(counted) as url:
        always, early = PrometheusClient(url).query_range("x", TimeRange(START, START + 30_000, 1.0))

    assert len(requests) == 3
    assert always.labels == (("job", "always"),)
    assert np.array_equal(always.seconds, START + np.arange(30_001))
    assert np.array_equal(always.values, always.seconds)
    assert np.array_equal(early.seconds, START + np.arange(100))


@pytest.mark.parametrize("step", [0.1, 1 / 3, 7.0])
def test_pages_meet_without_a_gap_or_a_repetition(step: float) -> None:
    whole = TimeRange(START, START + 1000.0, step)
    moments = [
        page.start_seconds + round(step, 3) * number for page in whole.pages(17) for number in range(page.points)
    ]

    assert len(moments) == whole.points
    assert np.allclose(np.diff(moments), round(step, 3), atol=1e-6)
    assert whole.end_seconds - step < moments[-1] <= whole.end_seconds + 1e-6


def test_values_that_are_no_finite_numbers_are_kept() -> None:
    values = [[START, "NaN"], [START + 1, "+Inf"], [START + 2, "-Inf"], [START + 3, "1e-7"]]
    with double(lambda *_: success({"resultType": "matrix", "result": [{"metric": {}, "values": values}]})) as url:
        (one,) = PrometheusClient(url).query_range("x", TimeRange(START, START + 3, 1.0))

    assert np.array_equal(one.values, [np.nan, np.inf, -np.inf, 1e-7], equal_nan=True)


def test_nothing_found_is_an_empty_list() -> None:
    with double(lambda *_: success({"resultType": "matrix", "result": []})) as url:
        assert PrometheusClient(url).query_range("absent", TimeRange(START, START, 1.0)) == []


def test_label_sets_of_series_are_read_for_several_matchers() -> None:
    seen: list[tuple[str, Fields]] = []

    def respond(path: str, form: Fields) -> Answer:
        seen.append((path, form))
        return success([{"__name__": "up", "job": "b"}, {"__name__": "up", "job": "a"}])

    with double(respond) as url:
        found = PrometheusClient(f"{url}/prometheus/").series(["up", "down"], start_seconds=1, end_seconds=2)

    assert found == [(("__name__", "up"), ("job", "a")), (("__name__", "up"), ("job", "b"))]
    assert seen == [("/prometheus/api/v1/series", {"match[]": ["up", "down"], "start": ["1.000"], "end": ["2.000"]})]


def test_user_and_password_of_the_address_are_sent_and_never_shown() -> None:
    headers: list[Mapping[str, str]] = []
    with double(lambda *_: refused(401, "unknown user"), headers) as url:
        client = PrometheusClient(url.replace("//", "//ann:s%40fe@"))
        with pytest.raises(PrometheusError, match="status 401: unknown user") as error:
            client.query_range("x", TimeRange(START, START, 1.0))

    assert headers[0]["Authorization"] == "Basic YW5uOnNAZmU="
    assert "s@fe" not in str(error.value)
    assert "s%40fe" not in str(error.value)
    assert error.value.status == 401


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refused(400, "parse error: unclosed left parenthesis"), "status 400: parse error: unclosed left parenthesis"),
        ((502, b"<html>bad gateway</html>"), "status 502: <html>bad gateway"),
        ((500, b""), "status 500: no reason was given"),
        ((200, b"<html>\n a page</html>"), 'is no Prometheus: it answered "<html> a page</html>"; correct the address'),
        ((404, b"<p>\n" * 200), 'is no Prometheus: it answered status 404 and "(<p> ){20}";'),
        ((501, b""), "is no Prometheus: it answered status 501 and nothing;"),
        (success({"resultType": "scalar"}), "answered without result"),
        (
            success({"result": [{"metric": {"a": "b"}, "histograms": [[1, {}]]}]}),
            "native histograms .*histogram_quantile",
        ),
        (success({"result": [7]}), "answered with a series that cannot be read"),
        (success({"result": [{"values": [[1, "2"]]}]}), "answered with a series that cannot be read"),
        (success({"result": [{"metric": {}, "values": [[1]]}]}), "answered with a series that cannot be read"),
        (success({"result": [{"metric": {}, "values": [[1, "many"]]}]}), "answered with a series that cannot be read"),
        (success({"result": [{"metric": {}, "values": [[None, "2"]]}]}), "answered with a series that cannot be read"),
    ],
)
def test_a_refusal_says_why(answer: Answer, message: str) -> None:
    with double(lambda *_: answer) as url, pytest.raises(PrometheusError, match=message):
        PrometheusClient(url).query_range("x", TimeRange(START, START, 1.0))


def test_an_address_without_a_server_is_named() -> None:
    (port,) = free_ports(1)
    with pytest.raises(PrometheusError, match=rf"127.0.0.1:{port} cannot be reached: Connection refused; check"):
        PrometheusClient(f"http://127.0.0.1:{port}").query_range("x", TimeRange(START, START, 1.0))


def test_a_list_of_series_that_cannot_be_read_is_refused() -> None:
    with double(lambda *_: success(["up"])) as url, pytest.raises(PrometheusError, match="cannot be read"):
        PrometheusClient(url).series(["up"], start_seconds=1, end_seconds=2)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://host", "http://", "", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write it as http://HOST:PORT"):
        PrometheusClient(url)


@pytest.mark.parametrize(
    "query",
    [
        "up @ end()",
        "up @ 1700000000",
        "rate(up[5m] offset -5m)",
        "up offset  - 1h",
        "up OFFSET -1h",
        "up offset (-5m)",
        "up offset # of\n-5m",
    ],
)
def test_an_expression_that_may_read_the_future_is_refused(query: str) -> None:
    with pytest.raises(ConfigurationError, match="later than the moment that is judged; remove it"):
        refuse_future(query)


@pytest.mark.parametrize(
    "query", ["up offset 5m - 1", 'up{job="a@b"} - 5', "up{a='offset -5m'}", "up # @ offset -5m", "offset_total - 5"]
)
def test_an_expression_of_the_past_reaches_prometheus(query: str) -> None:
    asked: list[str] = []

    def answer(_path: str, form: Fields) -> Answer:
        asked.extend(form["query"])
        return success({"resultType": "matrix", "result": []})

    with double(answer) as url:
        PrometheusClient(url).query_range(query, TimeRange(START, START, 1.0))
    assert asked == [query]


@pytest.mark.parametrize(
    ("start", "end", "step", "message"),
    [
        (10.0, 0.0, 1.0, "the end 0 lies before the start 10"),
        (0.0, 1.0, 0.0, "the minimum is 0.001 s"),
        (0.0, 1e9, 1.0, "the limit is 5000000; choose a longer step"),
    ],
)
def test_a_range_that_cannot_be_is_refused(start: float, end: float, step: float, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TimeRange(start, end, step)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("200 OK", r"no whole answer within 0\.5 s; choose a shorter range"),
        ("503 Busy", "refused the query with status 503"),
    ],
)
def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_its_client(status: str, said: str) -> None:
    begun = time.monotonic()
    with dripping(f"HTTP/1.1 {status}\r\nContent-Length: 100\r\n\r\n".encode()) as url:
        client = PrometheusClient(url, whole_seconds=0.5)
        with pytest.raises(PrometheusError, match=said):
            client.query_range("up", TimeRange(START, START + 60, 15.0))
        assert time.monotonic() - begun < 2.0


def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_explain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain_command, "WHOLE_SECONDS", 0.5)
    begun = time.monotonic()
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n") as url, pytest.raises(typer.Exit):
        explain_command.explain("up", url)
    assert time.monotonic() - begun < 2.0
    assert "does not answer: no whole answer came in 0.5 s" in capsys.readouterr().err
