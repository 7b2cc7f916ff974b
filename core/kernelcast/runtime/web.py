"""The HTTP side of a daemon: `/metrics`, `/-/healthy`, `/-/ready`, a landing page, and the service's own routes."""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from kernelcast.runtime.listen import format_address, parse_listen_address
from kernelcast.runtime.settings import WebSettings
from kernelcast.wire.errors import ConfigurationError, KernelcastError

Metrics = CollectorRegistry | Callable[[Request], Response]
Check = Callable[[], tuple[bool, str]]

STOP_SECONDS: Final = 5.0


def always() -> tuple[bool, str]:
    """The check of a service that is ready as soon as it answers."""
    return True, ""


class WebServer:
    """Serves on a thread of its own, from `start()` to `stop()`."""

    def __init__(
        self,
        settings: WebSettings,
        *,
        title: str,
        metrics: Metrics,
        routes: Sequence[BaseRoute] = (),
        healthy: Check = always,
        ready: Check = always,
    ) -> None:
        self._settings = settings
        self._title = title
        self._app = Starlette(
            routes=[
                Route("/", self._landing),
                Route("/metrics", _metrics_endpoint(metrics)),
                Route("/-/healthy", _check_endpoint(healthy, "healthy")),
                Route("/-/ready", _check_endpoint(ready, "ready")),
                *routes,
            ]
        )
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.address = ""

    @property
    def url(self) -> str:
        """Where a client on this machine reaches it."""
        return f"http://{self.address}"

    def start(self) -> "WebServer":
        """Bind, then serve; returns when requests are answered.

        Raises:
            ConfigurationError: The address cannot be bound.
        """
        listener = self._bind()
        config = uvicorn.Config(self._app, log_config=None, access_log=False, lifespan="off", server_header=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="web", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + STOP_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if not self._server.started:
            raise KernelcastError(f"the web server on {self.address} did not start")
        return self

    def stop(self) -> None:
        """Finish open requests, at most 5 seconds, and close."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(STOP_SECONDS)

    def _bind(self) -> socket.socket:
        host, port = parse_listen_address(self._settings.listen_address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise ConfigurationError(
                f"web.listen_address {self._settings.listen_address} cannot be used: {error.strerror}"
            ) from None
        bound = listener.getsockname()
        self.address = format_address(host or "127.0.0.1", bound[1])
        return listener

    def _landing(self, _request: Request) -> Response:
        return HTMLResponse(f"<h1>{self._title}</h1><a href='/metrics'>Metrics</a>")

    def __enter__(self) -> "WebServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _metrics_endpoint(metrics: Metrics) -> Callable[[Request], Response]:
    if not isinstance(metrics, CollectorRegistry):
        return metrics

    def expose(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics), headers={"content-type": content_type})

    return expose


def _check_endpoint(check: Check, word: str) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        good, reason = check()
        if good:
            return PlainTextResponse(f"{word}\n")
        return PlainTextResponse(f"not {word}: {reason}\n", status_code=503)

    return answer
