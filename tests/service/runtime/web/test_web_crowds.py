"""The web server under crowds and attacks: scrapes that wait, connections that send nothing, wrong passwords."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import bcrypt
import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from tests.support.runtime.certificates import self_signed
from tests.support.runtime.web_clients import (
    ATTACKER,
    CROWD,
    LOCAL,
    basic,
    crowd,
    get,
    guarded,
    half_open,
    many_files,
    open_files,
)
from tests.support.waiting import LONGEST_SECONDS, Stopwatch, eventually, wait_for

from kernelcast.runtime.web import connections
from kernelcast.runtime.web.server import WebServer

pytestmark = pytest.mark.slow

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
WHOLE_SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    with many_files():
        yield


class Compiler:
    """Answers `/metrics` once it may go on, as a scrape that waits for a lock."""

    def __init__(self) -> None:
        self.go_on = Event()

    def answer(self, _request: Request) -> Response:
        self.go_on.wait(LONGEST_SECONDS)
        return PlainTextResponse("own 1\n")


def patient(server: WebServer) -> WebServer:
    """A server without time limits for clients: of a test about places, on a machine that may be busy."""
    server.request_seconds = server.scrapes.longest_wait_seconds = LONGEST_SECONDS
    return server


def refused(registry: CollectorRegistry, reason: str) -> float | None:
    return registry.get_sample_value("kernelcast_http_refused_requests_total", {"reason": reason})


def closed(registry: CollectorRegistry, reason: str) -> float | None:
    return registry.get_sample_value("kernelcast_http_closed_connections_total", {"reason": reason})


def test_probes_and_the_landing_page_answer_while_scrapes_wait() -> None:
    compiler = Compiler()
    made = patient(WebServer(LOCAL, title="bridge", metrics=compiler.answer))
    with made as server, half_open(server, 60, data=WHOLE_SCRAPE):
        answers = [get(server, path, seconds=3) for path in ("/-/healthy", "/-/ready", "/")]
        compiler.go_on.set()

    assert answers == [200, 200, 200]


def test_scrapes_beyond_the_bound_are_refused_and_counted_and_the_rest_is_answered() -> None:
    compiler, registry = Compiler(), CollectorRegistry()
    server = patient(WebServer(LOCAL, title="bridge", metrics=compiler.answer))
    server.measure(registry)
    server.scrapes.max_waiting = 10
    with server, half_open(server, server.scrapes.threads + 10, data=WHOLE_SCRAPE):
        eventually(lambda: server.scrapes._waiting == 10)
        answers = crowd(server, "/metrics", number=5)
        compiler.go_on.set()
        eventually(lambda: server.scrapes._waiting == 0)
        assert get(server, "/metrics") == 200

    assert answers == {503: 5}
    assert refused(registry, "waiting") == 5


def test_a_scrape_that_has_waited_too_long_is_refused_with_the_reason() -> None:
    compiler, registry = Compiler(), CollectorRegistry()
    server = WebServer(LOCAL, title="bridge", metrics=compiler.answer)
    server.measure(registry)
    server.scrapes.longest_wait_seconds = 0.1
    with server, half_open(server, server.scrapes.threads, data=WHOLE_SCRAPE):
        eventually(server.scrapes._running.locked)
        answer = get(server, "/metrics")
        compiler.go_on.set()

    assert answer == 503
    assert refused(registry, "waited") == 1


def test_a_client_that_does_not_read_its_answer_loses_its_connection() -> None:
    def answer(_request: Request) -> Response:
        return Response(bytes(32 * 1024 * 1024))

    server = patient(WebServer(LOCAL, title="bridge", metrics=answer))
    server.unread_seconds = 1.0
    with server, half_open(server, 3, data=WHOLE_SCRAPE):
        eventually(lambda: len(server.connections) == 3)
        assert wait_for(lambda: len(server.connections) == 0)


def test_a_crowd_of_scrapers_behind_one_address_is_answered() -> None:
    def answer(_request: Request) -> Response:
        time.sleep(0.002)
        return PlainTextResponse("own 1\n")

    with patient(WebServer(LOCAL, title="bridge", metrics=answer)) as server:
        assert crowd(server, "/metrics") == {200: CROWD}


@pytest.mark.parametrize("data", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Half: "])
def test_half_open_connections_keep_neither_probes_nor_scrapers_out(data: bytes) -> None:
    registry = CollectorRegistry()
    made = patient(WebServer(LOCAL, title="bridge", metrics=registry))
    with made as server, half_open(server, 600, data=data):
        for path in ("/-/healthy", "/-/ready", "/metrics"):
            assert get(server, path) == 200, path
            eventually(lambda: len(server.connections) < server.connections.limit)
        assert closed(registry, "evicted") == 600 + 1 - 512


def test_a_crowd_is_answered_beside_connections_that_send_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # The crowd's requests are on their way however long this machine takes to send them.
    monkeypatch.setattr(connections, "GRACE_SECONDS", LONGEST_SECONDS)
    registry = CollectorRegistry()
    made = patient(WebServer(LOCAL, title="bridge", metrics=registry))
    with made as server, half_open(server, 600):
        eventually(lambda: closed(registry, "evicted") == 600 - 512)
        for silent in server.connections._open.values():
            assert silent.waiting_since is not None
            silent.waiting_since -= LONGEST_SECONDS
        assert crowd(server, "/metrics") == {200: CROWD}
        assert get(server, "/-/healthy") == 200
        assert closed(registry, "refused") == 0


def test_a_flood_from_the_crowds_own_address_costs_the_crowd_nothing() -> None:
    made = patient(WebServer(LOCAL, title="bridge", metrics=CollectorRegistry()))
    with made as server, half_open(server, 600, source="127.0.0.1"):
        assert crowd(server, "/metrics") == {200: CROWD}


def test_probes_are_answered_when_every_place_is_taken_by_a_request_that_waits() -> None:
    compiler, registry = Compiler(), CollectorRegistry()
    server = patient(WebServer(LOCAL, title="bridge", metrics=compiler.answer))
    server.measure(registry)
    server.connections.limit, server.connections.reserve = 20, 4
    with server, half_open(server, 20, data=WHOLE_SCRAPE):
        eventually(lambda: sum(one.waiting_since is None for one in server.connections._open.values()) == 20)
        answers = [get(server, path) for path in ("/-/healthy", "/metrics", "/-/ready")]
        with half_open(server, 4, data=b""):
            assert get(server, "/-/healthy") == 200
        compiler.go_on.set()

    assert answers == [200, 503, 200]
    assert refused(registry, "connections") == 1


def test_unfinished_handshakes_are_connections_too(tmp_path: Path) -> None:
    self_signed(tmp_path, "server")
    registry = CollectorRegistry()
    server = patient(guarded(tmp_path, "tls_server_config: {cert_file: server.crt, key_file: server.key}", registry))
    server.connections.limit = 50
    before = open_files()
    with server:
        with half_open(server, 300, data=b"\x16\x03\x01"):
            eventually(lambda: closed(registry, "evicted") == 250)
            eventually(lambda: not server.connections._closing)
            assert len(server.connections) == 50
            assert open_files() - before < 300 + 50 + 20
        eventually(lambda: len(server.connections) == 0)
    assert open_files() <= before


def test_unfinished_handshakes_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    self_signed(tmp_path, "server")
    before = open_files()
    server = guarded(tmp_path, "tls_server_config: {cert_file: server.crt, key_file: server.key}").start()
    with half_open(server, 5, data=b"\x16\x03\x01"):
        eventually(lambda: len(server.connections) == 5)
        with Stopwatch() as took:
            server.stop()
        assert len(server.connections) == 0
        assert took.seconds < 2
    assert open_files() <= before


def test_a_handshake_that_is_never_finished_ends_with_the_time_for_a_request(tmp_path: Path) -> None:
    self_signed(tmp_path, "server")
    server = guarded(tmp_path, "tls_server_config: {cert_file: server.crt, key_file: server.key}")
    server.request_seconds = 0.2
    with server, half_open(server, 3, data=b"\x16\x03\x01"):
        eventually(lambda: len(server.connections) == 3)
        assert wait_for(lambda: len(server.connections) == 0)
        assert get(server, "/metrics") == 0, "a request without TLS is not answered, and the server goes on"
        eventually(lambda: len(server.connections) == 0)


def test_wrong_passwords_neither_delay_the_right_one_nor_lock_the_crowd_out(tmp_path: Path) -> None:
    slow = bcrypt.hashpw(b"secret", bcrypt.gensalt(8)).decode()
    registry = CollectorRegistry()
    with patient(guarded(tmp_path, f"basic_auth_users: {{prometheus: '{slow}'}}", registry)) as server:
        right = basic("prometheus", "secret")
        assert get(server, "/metrics", headers=right) == 200
        wrong = [get(server, "/metrics", headers=basic("prometheus", f"wrong{i}"), source=ATTACKER) for i in range(160)]
        answered = crowd(server, "/metrics", headers=right)
        with Stopwatch() as took:
            assert get(server, "/metrics", headers=right) == 200
        hashed = wrong.count(401)

    assert answered == {200: CROWD}
    assert took.seconds < 1
    assert set(wrong) == {401, 429}
    assert 10 <= hashed < 100
    assert refused(registry, "logins") == wrong.count(429)


def test_a_crowd_whose_password_is_not_known_yet_is_let_in_beside_an_attack_from_its_own_address(
    tmp_path: Path,
) -> None:
    with patient(guarded(tmp_path, f"basic_auth_users: {{prometheus: '{HASH}'}}")) as server:

        async def both() -> tuple[object, object]:
            guesses = asyncio.to_thread(
                lambda: [get(server, "/metrics", headers=basic("prometheus", f"w{i}")) for i in range(5)]
            )
            return await asyncio.gather(
                guesses, asyncio.to_thread(crowd, server, "/metrics", headers=basic("prometheus", "secret"))
            )

        guesses, answered = asyncio.run(both())

    assert answered == {200: CROWD}
    assert guesses == [401] * 5
