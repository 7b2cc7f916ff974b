"""The HTTP server of a daemon: `/metrics`, `/-/healthy`, `/-/ready`, a landing page, and the service's own routes.

Each service makes one `WebServer`, starts it before its loops, and stops it last. Requests pass `connections`, then
`guard`, then Starlette's routes.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.to_thread
import structlog
import uvicorn
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from kernelcast.runtime import threads
from kernelcast.runtime.instruments import WithoutCreated, gauge
from kernelcast.runtime.settings.listen import format_address, parse_listen_address
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.threads import Worker
from kernelcast.runtime.web import landing
from kernelcast.runtime.web.bounded import BoundedEndpoint
from kernelcast.runtime.web.connections import Listener, OpenConnections
from kernelcast.runtime.web.counts import WebCounts
from kernelcast.runtime.web.guard import Guard
from kernelcast.runtime.web.patience import patient_protocol
from kernelcast.runtime.web.watched import WatchedConfig, WatchedContext
from kernelcast.wire.catalogue import runtime
from kernelcast.wire.errors import ConfigurationError, KernelcastError

Metrics = CollectorRegistry | Callable[[Request], Response]
Check = Callable[[], tuple[bool, str]]

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""Of a request: a notification of Alertmanager, or a query of a browser."""
MAX_HEADER_BYTES: Final = 64 * 1024
REQUEST_SECONDS: Final = 15.0
"""Time in which a client must send a request; Prometheus' requests come at once."""
UNREAD_SECONDS: Final = 60.0
"""Time in which a client must read more of its answer, of which the server keeps the rest until then."""
TICK_SECONDS: Final = 1.0
"""Period in which the loop renews the header `Date`, and reports progress."""
START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 5.0
_OPEN_REQUESTS_SECONDS: Final = 3
"""Of `STOP_SECONDS`, the time for open requests to end; the rest is for closing."""


def always() -> tuple[bool, str]:
    """The check of a service that is ready as soon as it answers."""
    return True, ""


class WebServer:
    """Serves on a thread of its own, from `start()` to `stop()`; also a context manager.

    Attributes:
        address: `HOST:PORT` for clients on this machine, once started; the log has the one as bound.
        progressed: Called once a second by the loop that answers requests; must not block; set it before `start()`.
        request_seconds: Time in which a client must send a request; then its connection is closed.
        unread_seconds: The same for a client that reads nothing of its answer; Linux only.
        connections: The open connections, with their limit.
        scrapes: Runs `/metrics`, and limits the number of waiting requests.
    """

    def __init__(  # noqa: PLR0913  parts, most of them optional
        self,
        settings: WebSettings,
        *,
        title: str,
        metrics: Metrics,
        routes: Sequence[BaseRoute] = (),
        healthy: Check = always,
        ready: Check = always,
        facts: landing.Facts = landing.no_facts,
        front: landing.Front = landing.Front(),  # noqa: B008  it is frozen
    ) -> None:
        """Prepare to serve.

        Args:
            settings: Address to listen on, and the web configuration file.
            title: The service's name without ours, for the landing page and `kernelcast_build_info`.
            metrics: A registry, or a function that answers `/metrics`; called on a few threads at a time.
            routes: The service's own, with endpoints that are coroutines, as synchronous ones share 40 threads; the
                landing page shows the first line of an endpoint's docstring; no routes out of the schema.
            healthy: Whether the process works, and the reason if not; called on the event loop, so it must not wait
                for a lock. A thread that an error has ended is reported without it.
            ready: The same of whether it is of use yet.
            facts: Facts of now for the landing page; called on a thread.
            front: What else it shows.

        Raises:
            ConfigurationError: The web configuration file is wrong.
        """
        self._settings, self._title = settings, title
        self._watched = WatchedConfig(settings.config_file) if settings.config_file is not None else None
        self._healthy, self._ready, self._facts, self._front = _with_threads(healthy), ready, facts, front
        self._facts_thread = anyio.CapacityLimiter(1)
        self._pages = {
            "/metrics": "What Prometheus scrapes",
            "/-/healthy": "Whether the process works",
            "/-/ready": "Whether it is of use yet, and why not",
            **{route.path: _about(route) for route in routes if isinstance(route, Route) and _is_page(route)},
        }
        self._server: _Server | None = None
        self._thread: Worker | None = None
        self.address = ""
        self._bound = ("", 0)
        self.progressed: Callable[[], None] = lambda: None
        self.request_seconds, self.unread_seconds = REQUEST_SECONDS, UNREAD_SECONDS
        self._counts = WebCounts()
        self.connections = OpenConnections(count=self._counts.closed)
        self.scrapes = BoundedEndpoint(_metrics_endpoint(metrics), self._counts.refused)
        self._app = self._guarded([*self._own_routes(), *routes])
        if isinstance(metrics, CollectorRegistry):
            self.measure(metrics)

    def measure(self, registry: CollectorRegistry) -> None:
        """Put the process's own metrics into a registry; done already where `metrics` is one."""
        self._counts.start(registry)
        gauge(runtime.BUILD_INFO, registry).labels(self._title, _version()).set(1)
        ProcessCollector(registry=registry)

    @property
    def url(self) -> str:
        """URL for clients on this machine, without a path."""
        scheme = "https" if self._watched is not None and self._watched.serves_tls else "http"
        return f"{scheme}://{self.address}"

    def start(self) -> Self:
        """Bind, then serve; returns once requests are answered.

        Raises:
            ConfigurationError: The address cannot be bound.
            KernelcastError: It does not answer within 10 s.
        """
        self.connections.opening_seconds = self.request_seconds
        listener = Listener.of(self._bind(), self.connections)
        self._server = _Server(self._uvicorn_config(), self.connections, self.progressed)
        self._thread = Worker("web", self._server.run, [listener])
        self._thread.start()
        if not self._server.up.wait(START_SECONDS):
            self.stop()
            raise KernelcastError(f"the web server on {self.address} did not start within {START_SECONDS:g} s")
        self._announce()
        return self

    def _announce(self) -> None:
        """Log the address as bound, and a warning where other machines reach it without TLS and without a login."""
        log, encrypted = structlog.stdlib.get_logger("web"), self.url.startswith("https")
        bound = format_address(self._bound[0], self._bound[1])
        log.info("listening", address=bound, tls=encrypted)
        users = self._watched is not None and self._watched.current().basic_auth_users
        if not encrypted and not users and not ipaddress.ip_address(self._bound[0]).is_loopback:
            log.warning(
                "open to other machines without TLS and users",
                address=bound,
                remedy="set web.config_file (TLS, users), or web.listen_address to "
                f"127.0.0.1:{self._bound[1]} for this machine alone",
            )

    def stop(self) -> None:
        """Finish open requests, at most 5 seconds, and close."""
        if self._server is None or self._thread is None:
            return
        self._server.end()
        self._thread.join(STOP_SECONDS)
        self._server.force_exit = True
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _uvicorn_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._app,
            loop="asyncio",
            http=patient_protocol(self.request_seconds, self.connections),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=_OPEN_REQUESTS_SECONDS,
            ssl_context_factory=self._tls if self._watched is not None and self._watched.serves_tls else None,
        )

    def _tls(self, _config: uvicorn.Config, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        if self._watched is None:
            raise ConfigurationError("TLS needs a web configuration file")
        context = WatchedContext(ssl.PROTOCOL_TLS_SERVER)
        context.watched = self._watched
        return context

    def _own_routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._landing),
            Route("/metrics", self.scrapes.answer),
            Route("/-/healthy", _check_endpoint(self._healthy, "healthy")),
            Route("/-/ready", _check_endpoint(self._ready, "ready")),
        ]

    def _guarded(self, routes: Sequence[BaseRoute]) -> Guard:
        self._counts.paths = {route.path for route in routes if isinstance(route, Route)}
        return Guard(
            Starlette(routes=routes),
            watched=self._watched,
            max_body_bytes=MAX_BODY_BYTES,
            full=lambda: self.connections.full,
            counts=self._counts,
        )

    def _bind(self) -> socket.socket:
        host, _ = parse_listen_address(self._settings.listen_address)
        listener = bind(self._settings.listen_address, unread_seconds=self.unread_seconds)
        self._bound = listener.getsockname()[:2]
        self.address = format_address(host or "127.0.0.1", self._bound[1])
        return listener

    async def _landing(self, _request: Request) -> Response:
        (facts, body), troubles = await anyio.to_thread.run_sync(self._facts_and_body, limiter=self._facts_thread), []
        for check in (self._healthy, self._ready):
            good, reason = _outcome(check)
            if not good and reason not in troubles:
                troubles.append(reason)
        css = f"{landing.STYLE}{self._front.style}"
        text = landing.page(
            title=f"kernelcast {self._title}",
            version=_version(),
            state=f"not ready: {troubles[0]}" if troubles else "ready",
            wrong=troubles,
            facts=facts,
            pages=self._pages,
            body=body,
            css=css,
        )
        return HTMLResponse(text, headers={**landing.headers(css), "cache-control": "no-store"})

    def _facts_and_body(self) -> tuple[Sequence[landing.Fact], str]:
        """The service's facts and its part of the page, on a thread: they may wait for a lock."""
        facts: list[landing.Fact] = []
        body = ""
        try:
            facts.extend(self._facts())
            body = self._front.body()
        except Exception as error:  # noqa: BLE001  whatever it is, the rest of the page is of use
            structlog.stdlib.get_logger("web").warning("the facts of the landing page failed", error=repr(error))
            facts.append(landing.Fact("Facts", f"cannot be read: {error!r}", wrong=True))
        return facts, body


class _Server(uvicorn.Server):
    """uvicorn's server with an event that is set once it has started, so that callers need not poll."""

    def __init__(self, config: uvicorn.Config, connections: OpenConnections, progressed: Callable[[], None]) -> None:
        super().__init__(config)
        self._connections = connections
        self._progressed = progressed
        self.up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.up.set()

    async def main_loop(self) -> None:
        """Wake once a second, for the header `Date`; uvicorn's own loop wakes ten times, on every GPU node."""
        while not await self.on_tick(0):
            self._progressed()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), TICK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything; uvicorn knows a connection from the end of its handshake on."""
        self._connections.close_opening()
        await super().shutdown(sockets)

    def end(self) -> None:
        """Have the loop end now; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)


def _with_threads(healthy: Check) -> Check:
    """A check that fails as well once an error has ended one of the process's threads."""

    def check() -> tuple[bool, str]:
        reason = threads.failure()
        return (False, reason) if reason else healthy()

    return check


def bind(address: str, *, unread_seconds: float = UNREAD_SECONDS) -> socket.socket:
    """Bind a listening socket.

    Args:
        address: `HOST:PORT`, or `:PORT` for every interface.
        unread_seconds: Time in which a client must read more of its answer; Linux only.

    Raises:
        ConfigurationError: The address is in use, or is none of this machine.
    """
    host, port = parse_listen_address(address)
    try:
        return _listener(host, port, unread_seconds=unread_seconds)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label of the name is empty or too long
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(
            f"web.listen_address is {address}; it cannot be bound: {reason}; choose another with --web.listen-address"
        ) from None


def _listener(host: str, port: int, *, unread_seconds: float = UNREAD_SECONDS) -> socket.socket:
    """A bound socket; every interface, IPv4 and IPv6 alike, where no host is given.

    asyncio sets TCP_NODELAY only where a socket names its protocol, as this one does not; connections inherit it.
    Without it the body of an answer waits 40 ms for the acknowledgement of its head.
    """
    if not host and socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        family = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]  # noqa: S104 - asked for by `:PORT`
        listener = socket.create_server((host, port), family=family)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Bounds the time without an acknowledgement, and that with a window of zero: a client that does not read.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unread_seconds * 1000))
    return listener


def _metrics_endpoint(metrics: Metrics) -> Callable[[Request], Response]:
    if not isinstance(metrics, CollectorRegistry):
        return metrics
    registry: Any = WithoutCreated(metrics)

    def expose(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return expose


def _check_endpoint(check: Check, word: str) -> Callable[[Request], Awaitable[Response]]:
    """Answers a probe on the event loop: it needs no thread, so nothing that waits for one can hold it up."""

    async def answer(_request: Request) -> Response:
        good, reason = _outcome(check)
        if good:
            return PlainTextResponse(f"{word}\n")
        return PlainTextResponse(f"not {word}: {reason}\n", status_code=503)

    return answer


def _outcome(check: Check) -> tuple[bool, str]:
    """Run a check; an exception, as when another thread changes its data, gives False and the reason."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  whatever it is, the probe needs an answer
        structlog.stdlib.get_logger("web").warning("a check failed", error=repr(error))
        return False, f"the check failed: {error!r}"


def _about(route: Route) -> str:
    """The first sentence of what its endpoint says of itself."""
    return (route.endpoint.__doc__ or "").strip().partition("\n")[0].rstrip(".").replace("`", "")


def _is_page(route: Route) -> bool:
    return "GET" in (route.methods or set()) and "{" not in route.path and route.include_in_schema


def _version() -> str:
    try:
        return version("kernelcast")
    except PackageNotFoundError:
        return "unknown"
