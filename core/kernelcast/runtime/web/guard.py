"""Decides which requests the web server serves: web configuration, connections, rate, users, and size limits.

It is the ASGI middleware around all routes, on the event loop's thread.
"""

from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelcast.runtime.token_bucket import TokenBucket
from kernelcast.runtime.web.config import RateLimit, WebConfig
from kernelcast.runtime.web.connections import origin_of
from kernelcast.runtime.web.counts import WebCounts
from kernelcast.runtime.web.logins import LoginResult, Logins
from kernelcast.runtime.web.watched import WatchedConfig
from kernelcast.wire.errors import ConfigurationError

PROBES: Final = frozenset({"/-/healthy", "/-/ready"})
"""Exempt from the limits of connections and requests: an orchestrator that gets no answer kills the process."""
_HAS_TWO_LENGTHS: Final = frozenset({b"transfer-encoding", b"content-length"})
"""Headers that contradict each other: a proxy may see another end of the request than we do, so the connection is
closed after the answer (RFC 9112, section 6.1)."""
_TOO_LARGE_CODE: Final = 413
_TOO_LARGE: Final = "the request is too large\n"
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="kernelcast"'}
_RETRY: Final = {"Retry-After": "1"}
_INVALID: Final = "the web configuration is invalid; the log says why\n"
_FULL: Final = "the server has all the connections that it may have; try again in 1 s\n"
_RATE: Final = "rate_limit of the web configuration is reached; try again later\n"
_LOGINS: Final = {
    LoginResult.ADDRESS_LIMIT: (
        429,
        "too many logins of your address wait or have failed; try again in 1 s\n",
        "logins",
    ),
    LoginResult.QUEUE_LIMIT: (503, "too many logins wait; try again in 1 s\n", "login_queue"),
}


class Guard:
    """ASGI middleware: refuses requests that may not or cannot be served, and adds the configured headers.

    For the event loop's thread. In order, a request needs: room among the connections, a valid web configuration, a
    token of the rate limit, a login, and a body that is not too large.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        watched: WatchedConfig | None,
        max_body_bytes: int,
        full: Callable[[], bool],
        counts: WebCounts,
    ) -> None:
        """Guard an application.

        Args:
            app: Serves the requests that are not refused.
            watched: The web configuration; None demands no login.
            max_body_bytes: The largest body.
            full: Whether the limit of connections is reached, so that only probes are served.
            counts: Counts responses and refusals.
        """
        self._app = app
        self._watched = watched
        self._max_body_bytes = max_body_bytes
        self._full, self._counts = full, counts
        self._logins = Logins()
        self._rate = RateLimit()
        self._bucket: TokenBucket | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        closes = {name for name, _ in scope["headers"]} >= _HAS_TWO_LENGTHS

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._counts.response(scope["path"], message["status"])
                if closes:
                    MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        await self._guarded(scope, receive, counted)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._connection_refusal(scope)
        if refusal is None and self._watched is not None:
            try:
                config = self._watched.current()
            except ConfigurationError:
                refusal = PlainTextResponse(_INVALID, status_code=500)
            else:
                send = _with_headers(send, config.http_server_config.headers)
                refusal = self._rate_refusal(scope, config.rate_limit) or await self._login_refusal(scope, config)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced) > self._max_body_bytes:
            await self._drain(receive)
            await PlainTextResponse(_TOO_LARGE, status_code=_TOO_LARGE_CODE)(scope, receive, send)
            return
        await self._app(scope, self._limited(receive), send)

    def _connection_refusal(self, scope: Scope) -> Response | None:
        if scope["path"] in PROBES or not self._full():
            return None
        self._counts.refused("connections")
        return PlainTextResponse(_FULL, status_code=503, headers={**_RETRY, "Connection": "close"})

    def _rate_refusal(self, scope: Scope, rate: RateLimit) -> Response | None:
        if rate != self._rate:
            self._rate = rate
            self._bucket = TokenBucket(rate.interval, rate.burst) if rate.interval else None
        if self._bucket is None or scope["path"] in PROBES or self._bucket.take():
            return None
        self._counts.refused("rate_limit")
        return PlainTextResponse(_RATE, status_code=429, headers=_RETRY)

    async def _login_refusal(self, scope: Scope, config: WebConfig) -> Response | None:
        """The refusal of a request that does not name a user with the right password."""
        if not config.basic_auth_users:
            return None
        authorization = Headers(scope=scope).get("authorization", "")
        origin = origin_of(scope.get("client"))
        result = await self._logins.check(config.basic_auth_users, authorization, address=origin)
        if result is LoginResult.RIGHT:
            return None
        if result is LoginResult.WRONG:
            return PlainTextResponse("Unauthorized\n", status_code=401, headers=_CHALLENGE)
        status, text, reason = _LOGINS[result]
        self._counts.refused(reason)
        return PlainTextResponse(text, status_code=status, headers=_RETRY)

    async def _drain(self, receive: Receive) -> None:
        """Read more of a refused body: a client whose connection breaks while it sends does not read the answer."""
        drained_bytes, more = 0, True
        while more and drained_bytes <= self._max_body_bytes:
            message = await receive()
            drained_bytes += len(message.get("body", b""))
            more = message.get("more_body", False)

    def _limited(self, receive: Receive) -> Receive:
        total_bytes = 0

        async def limited() -> Message:
            nonlocal total_bytes
            message = await receive()
            total_bytes += len(message.get("body", b""))
            if total_bytes > self._max_body_bytes:
                await self._drain(receive)
                raise HTTPException(_TOO_LARGE_CODE, _TOO_LARGE)
            return message

        return limited


def _with_headers(send: Send, headers: dict[str, str]) -> Send:
    if not headers:
        return send

    async def extended(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return extended
