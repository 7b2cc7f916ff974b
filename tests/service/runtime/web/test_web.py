"""The web server, asked over a real socket on loopback."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import bcrypt
import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from structlog.testing import capture_logs
from tests.support.runtime.certificates import self_signed
from tests.support.runtime.web_clients import guarded, rewrite
from tests.support.waiting import LONGEST_SECONDS, Stopwatch

from kernelcast.runtime import threads
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.threads import Worker
from kernelcast.runtime.web.server import MAX_BODY_BYTES, MAX_HEADER_BYTES, WebServer, _listener
from kernelcast.wire.errors import ConfigurationError

LOCAL = WebSettings(listen_address="127.0.0.1:0")
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


async def echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


def status(_request: Request) -> Response:
    """The present activity.

    Not on the landing page.
    """
    return PlainTextResponse("fine")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def server(registry: CollectorRegistry) -> Iterator[WebServer]:
    Counter("kernelcast_things_total", "Things", registry=registry).inc(3)
    routes = [Route("/echo", echo, methods=["POST"]), Route("/status", status)]
    with WebServer(LOCAL, title="bridge", metrics=registry, routes=routes) as running:
        yield running


def test_metrics_are_exposed_in_the_format_that_was_asked_for(server: WebServer) -> None:
    text = httpx.get(f"{server.url}/metrics")
    openmetrics = httpx.get(f"{server.url}/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})

    assert text.headers["content-type"].startswith("text/plain; version=")
    assert "kernelcast_things_total 3.0" in text.text
    assert "_created" not in text.text
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


def test_promtool_finds_nothing_wrong_with_a_daemons_own_metrics(server: WebServer) -> None:
    text = httpx.get(f"{server.url}/metrics").text

    try:
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("promtool is not installed")
    assert (done.returncode, done.stderr) == (0, "")


def announced(address: str, config: Path | None = None) -> tuple[str, list[str]]:
    """The address that the log names, and its warnings."""
    settings = WebSettings(listen_address=address, config_file=config)
    with capture_logs() as lines, WebServer(settings, title="bridge", metrics=CollectorRegistry()) as server:
        port = server.address.rpartition(":")[2]
    (listening,) = [line["address"] for line in lines if line["event"] == "listening"]
    warned = [
        f"{line['event']} {line['address']}: {line['remedy']}" for line in lines if line["log_level"] == "warning"
    ]
    return listening.replace(port, "PORT"), [line.replace(port, "PORT") for line in warned]


@pytest.mark.parametrize(("address", "bound"), [(":0", "[::]:PORT"), ("0.0.0.0:0", "0.0.0.0:PORT")])
def test_the_log_names_the_address_that_is_bound_and_warns_where_it_is_open(
    address: str, bound: str, tmp_path: Path
) -> None:
    remedy = "set web.config_file (TLS, users), or web.listen_address to 127.0.0.1:PORT for this machine alone"
    assert announced(address) == (bound, [f"open to other machines without TLS and users {bound}: {remedy}"])
    users = tmp_path / "web.yml"
    users.write_text(f"basic_auth_users: {{prometheus: {HASH}}}\n")
    assert announced(address, users) == (bound, [])


def test_an_address_of_this_machine_alone_needs_no_users() -> None:
    assert announced("127.0.0.1:0") == ("127.0.0.1:PORT", [])


def test_requests_are_counted_by_route_strange_paths_together(server: WebServer, registry: CollectorRegistry) -> None:
    for path in ("/status", "/status", "/nowhere/1", "/nowhere/2"):
        httpx.get(server.url + path)

    name = "kernelcast_http_requests_total"
    assert registry.get_sample_value(name, {"handler": "/status", "code": "200"}) == 2
    assert registry.get_sample_value(name, {"handler": "other", "code": "404"}) == 2


def test_the_landing_page_links_to_everything(server: WebServer) -> None:
    page = httpx.get(server.url)

    assert "<h1>kernelcast bridge</h1>" in page.text
    assert ">ready</span>." in page.text
    assert "<td>The present activity</td>" in page.text
    for path in ("/metrics", "/-/healthy", "/-/ready", "/status"):
        assert f'href="{path}"' in page.text
    assert "/echo" not in page.text


def test_readiness_follows_the_check_and_says_why_not() -> None:
    state = (False, "catching up: 5 messages behind")
    with WebServer(LOCAL, title="bridge", metrics=CollectorRegistry(), ready=lambda: state) as server:
        before = httpx.get(f"{server.url}/-/ready")
        landing = httpx.get(server.url)
        alive = httpx.get(f"{server.url}/-/healthy")
        state = (True, "")
        after = httpx.get(f"{server.url}/-/ready")

    assert (before.status_code, before.text) == (503, "not ready: catching up: 5 messages behind\n")
    assert ">not ready: catching up: 5 messages behind</span>." in landing.text
    assert alive.status_code == after.status_code == 200


def test_a_service_can_answer_metrics_itself_without_blocking_the_rest() -> None:
    asked, go_on = Event(), Event()

    def slow(_request: Request) -> Response:
        asked.set()
        go_on.wait(LONGEST_SECONDS)
        return PlainTextResponse("own 1\n")

    with WebServer(LOCAL, title="bridge", metrics=slow) as server, ThreadPoolExecutor() as pool:
        scrape = pool.submit(httpx.get, f"{server.url}/metrics")
        assert asked.wait(LONGEST_SECONDS)
        healthy = httpx.get(f"{server.url}/-/healthy")
        go_on.set()

        assert healthy.status_code == 200
        assert scrape.result(LONGEST_SECONDS).text == "own 1\n"


def test_a_body_over_the_limit_is_refused_announced_or_not(server: WebServer) -> None:
    announced = httpx.post(f"{server.url}/echo", content=bytes(MAX_BODY_BYTES + 1))
    streamed = httpx.post(f"{server.url}/echo", content=(bytes(2**20) for _ in range(9)))
    within = httpx.post(f"{server.url}/echo", content=bytes(MAX_BODY_BYTES))

    assert (announced.status_code, streamed.status_code) == (413, 413)
    assert within.text == str(MAX_BODY_BYTES)


def test_endless_headers_are_refused(server: WebServer) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=LONGEST_SECONDS) as client:
        client.sendall(b"GET /status HTTP/1.1\r\nx: " + b"y" * (MAX_HEADER_BYTES + 1))
        answer = client.recv(1024)

    assert answer.startswith(b"HTTP/1.1 400")


def test_a_request_with_two_lengths_is_answered_and_its_connection_closed(server: WebServer) -> None:
    host, _, port = server.address.rpartition(":")
    chunked = b"POST /echo HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n"
    received = b""
    with socket.create_connection((host, int(port)), timeout=LONGEST_SECONDS) as client:
        client.sendall(chunked + b"GET /status HTTP/1.1\r\nhost: h\r\n\r\n")
        while more := client.recv(4096):
            received += more

    assert received.startswith(b"HTTP/1.1 200")
    assert received.count(b"HTTP/1.1") == 1
    assert b"connection: close" in received.lower()


def test_stopping_closes_the_port_within_its_time(registry: CollectorRegistry) -> None:
    server = WebServer(LOCAL, title="bridge", metrics=registry).start()
    host, _, port = server.address.rpartition(":")
    idle = socket.create_connection((host, int(port)))

    with Stopwatch() as took:
        server.stop()

    assert took.seconds < 5
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)))
    idle.close()


def test_a_port_in_use_is_a_configuration_error_that_names_the_flag(server: WebServer) -> None:
    second = WebServer(WebSettings(listen_address=server.address), title="b", metrics=CollectorRegistry())

    with pytest.raises(ConfigurationError, match=r"cannot be bound: .* choose another with --web\.listen-address"):
        second.start()


@pytest.mark.parametrize("host", ["bridge..example", "ü" * 70, "no-such-host.invalid"])
def test_a_host_that_is_no_address_of_this_machine_is_a_configuration_error(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be bound: .* choose another with --web\.listen-address"):
        WebServer(WebSettings(listen_address=f"{host}:0"), title="b", metrics=CollectorRegistry()).start()


@pytest.mark.parametrize("address", [":0", "[::1]:0", "localhost:0"])
def test_every_form_of_address_is_served(address: str) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with WebServer(WebSettings(listen_address=address), title="b", metrics=CollectorRegistry()) as server:
        assert httpx.get(f"{server.url}/-/healthy").status_code == 200


def test_users_need_their_password_and_headers_are_sent(tmp_path: Path) -> None:
    text = f"basic_auth_users: {{prometheus: '{HASH}'}}\nhttp_server_config: {{headers: {{X-Frame-Options: deny}}}}\n"
    with guarded(tmp_path, text) as server:
        url = f"{server.url}/metrics"
        logins = [
            None,
            ("prometheus", "wrong"),
            ("unknown", "secret"),
            ("prometheus", "s" * 80),
            ("prometheus", "secret"),
        ]
        answers = [httpx.get(url, auth=login) for login in (*logins, logins[-1])]
        malformed = httpx.get(url, headers={"authorization": "Basic !!!"})

    assert [answer.status_code for answer in answers] == [401, 401, 401, 401, 200, 200]
    assert malformed.status_code == 401
    assert answers[0].headers["www-authenticate"].startswith("Basic")
    assert {answer.headers["x-frame-options"] for answer in answers} == {"deny"}


def test_a_rate_limit_holds_for_everything_but_the_probes_and_changes_with_the_file(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    with guarded(tmp_path, "rate_limit: {interval: 1h, burst: 3}", registry) as server:
        answers = [httpx.get(f"{server.url}/metrics") for _ in range(5)]
        probes = [httpx.get(f"{server.url}{path}").status_code for path in ("/-/healthy", "/-/ready")]
        rewrite(tmp_path / "web.yml", "rate_limit: {interval: 0}")
        after = httpx.get(f"{server.url}/metrics").status_code

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert (probes, after) == ([200, 200], 200)
    assert registry.get_sample_value("kernelcast_http_refused_requests_total", {"reason": "rate_limit"}) == 2


def test_a_check_that_fails_is_a_no_with_its_reason() -> None:
    def ready() -> tuple[bool, str]:
        raise RuntimeError("dictionary changed size during iteration")

    with WebServer(LOCAL, title="bridge", metrics=CollectorRegistry(), ready=ready) as server:
        answer, landing = httpx.get(f"{server.url}/-/ready"), httpx.get(server.url)

    assert (answer.status_code, landing.status_code) == (503, 200)
    assert "dictionary changed size" in answer.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_an_error_has_ended_makes_the_process_unhealthy(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_failed", {})
    assert httpx.get(f"{server.url}/-/healthy").status_code == 200

    worker = Worker("reader", int, "x")
    worker.start()
    worker.join(LONGEST_SECONDS)

    answer = httpx.get(f"{server.url}/-/healthy")
    assert answer.status_code == 503
    assert "the thread reader ended by an error: ValueError" in answer.text
    assert "the thread reader ended by an error" in httpx.get(server.url).text


def test_the_file_is_read_again_when_it_changes_and_a_broken_one_shuts_the_door(tmp_path: Path) -> None:
    with guarded(tmp_path, "") as server:
        codes = [httpx.get(server.url).status_code]
        for text in ("basic_auth_users: {prometheus: not-a-hash}", f"basic_auth_users: {{p: '{HASH}'}}", ""):
            rewrite(tmp_path / "web.yml", text)
            codes.append(httpx.get(server.url).status_code)

    assert codes == [200, 500, 401, 200]


def test_tls_is_served_and_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    first, _ = self_signed(tmp_path, "server")
    old = first.read_text()
    with guarded(tmp_path, "tls_server_config: {cert_file: server.crt, key_file: server.key}") as server:
        assert server.url.startswith("https://")
        trusting_old = ssl.create_default_context(cadata=old)
        before = httpx.get(server.url, verify=trusting_old).status_code
        self_signed(tmp_path, "server")
        after = httpx.get(server.url, verify=ssl.create_default_context(cadata=first.read_text())).status_code
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url, verify=trusting_old)

    assert (before, after) == (200, 200)


def test_without_the_right_client_certificate_there_is_no_answer(tmp_path: Path) -> None:
    self_signed(tmp_path, "server")
    client, client_key = self_signed(tmp_path, "client")
    text = (
        "tls_server_config: {cert_file: server.crt, key_file: server.key, client_ca_file: client.crt, "
        "client_auth_type: RequireAndVerifyClientCert}"
    )
    with guarded(tmp_path, text) as server:
        stranger = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
        friend = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
        friend.load_cert_chain(client, client_key)

        assert httpx.get(server.url, verify=friend).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url, verify=stranger)


HALF_REQUESTS = [b"", b"GET /status HTTP/1.1\r\n", b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"]


def impatient(*routes: Route) -> WebServer:
    server = WebServer(LOCAL, title="bridge", metrics=CollectorRegistry(), routes=routes)
    server.request_seconds = 0.2
    return server


@pytest.mark.parametrize("beginning", HALF_REQUESTS)
def test_a_client_that_never_finishes_its_request_loses_its_connection(beginning: bytes) -> None:
    with impatient(Route("/echo", echo, methods=["POST"])) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=LONGEST_SECONDS) as client:
            client.sendall(beginning)
            assert client.recv(100) == b""


@pytest.mark.parametrize("address", ["127.0.0.1:0", ":0", "[::1]:0"])
def test_a_connection_is_recognised_by_its_addresses_of_any_family(address: str) -> None:
    """Else its first deadline would cut off an answer that takes longer."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")

    async def slowly(_request: Request) -> Response:
        await asyncio.sleep(0.5)
        return PlainTextResponse("done")

    settings, routes = WebSettings(listen_address=address), [Route("/slowly", slowly)]
    server = WebServer(settings, title="b", metrics=CollectorRegistry(), routes=routes)
    server.request_seconds = 0.2
    with server:
        assert httpx.get(f"{server.url}/slowly").text == "done"


def test_a_slow_answer_is_not_cut_off_and_a_connection_serves_several_requests() -> None:
    def slowly(_request: Request) -> Response:
        Event().wait(0.6)
        return PlainTextResponse("done")

    with impatient(Route("/slowly", slowly)) as server, httpx.Client() as client:
        assert [client.get(f"{server.url}/slowly").text for _ in range(2)] == ["done", "done"]


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_the_body_of_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(host: str) -> None:
    with _listener(host, 0) as listener:
        address = ("127.0.0.1", listener.getsockname()[1])
        with socket.create_connection(address), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
