"""Who may talk to the web server: TLS, users and headers from a watched file, and limits on what a request may send."""

import asyncio
import base64
import binascii
import hmac
import os
import ssl
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import bcrypt
import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelcast.runtime.web_config import WebConfig, read_web_config
from kernelcast.wire.errors import ConfigurationError

_CACHED_LOGINS: Final = 100
_UNKNOWN_USER_HASH: Final = bcrypt.hashpw(os.urandom(16), bcrypt.gensalt(10))
"""Compared for users who do not exist, so that the time of an answer does not tell who does."""

_TOO_LARGE_CODE: Final = 413
_TOO_LARGE: Final = "the request is too large\n"
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="kernelcast"'}


class WatchedConfig:
    """A web configuration file that is read again whenever it, or a certificate it names, changes.

    While it is wrong, `current` and `tls` raise, so nobody is served: an administrator who breaks the file must not
    thereby open the door.
    """

    def __init__(self, path: Path) -> None:
        """Read it for the first time.

        Raises:
            ConfigurationError: It is wrong.
        """
        self._path = path
        self._log = structlog.stdlib.get_logger("web")
        self._failure: ConfigurationError | None = None
        self._config = read_web_config(path)
        self._context = self._new_context()
        self._stamps = self._stamp()
        self.serves_tls = self._context is not None

    def current(self) -> WebConfig:
        """What the file says now.

        Raises:
            ConfigurationError: It is wrong now.
        """
        stamps = self._stamp()
        if stamps != self._stamps:
            self._stamps = stamps
            self._read_again()
        if self._failure is not None:
            raise self._failure
        return self._config

    def tls(self) -> ssl.SSLContext:
        """What TLS needs now.

        Raises:
            ConfigurationError: The file is wrong now.
        """
        self.current()
        if self._context is None:
            raise ConfigurationError(f"{self._path} has no tls_server_config")
        return self._context

    def _read_again(self) -> None:
        try:
            self._read()
        except ConfigurationError as error:
            self._failure = error
            self._log.error("web configuration refused", reason=str(error))
        else:
            self._failure = None
            self._log.info("web configuration read again", path=str(self._path))
        self._stamps = self._stamp()

    def _read(self) -> None:
        self._config = read_web_config(self._path)
        self._context = self._new_context()
        if (self._context is not None) != self.serves_tls:
            raise ConfigurationError(f"{self._path} turns TLS on or off; restart the service to do that")

    def _new_context(self) -> ssl.SSLContext | None:
        tls = self._config.tls_server_config
        return tls.context() if tls is not None else None

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        tls = self._config.tls_server_config
        more = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls is not None else ()
        return tuple(_file_stamp(path) for path in (self._path, *more) if path is not None)


class WatchedContext(ssl.SSLContext):
    """Gives each new connection the TLS settings of that moment."""

    watched: WatchedConfig

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """As `SSLContext.wrap_bio`; asyncio closes the connection if the file is wrong."""
        return self.watched.tls().wrap_bio(*arguments, **named)


class Guard:
    """ASGI middleware: refuses strangers and large bodies, adds the configured headers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        watched: WatchedConfig | None,
        max_body_bytes: int,
        on_response: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._watched = watched
        self._max_body_bytes = max_body_bytes
        self._on_response = on_response
        self._logins = Logins()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._on_response(scope["path"], message["status"])
            await send(message)

        await self._guarded(scope, receive, counted)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._watched is not None:
            try:
                config = self._watched.current()
            except ConfigurationError:
                refusal = PlainTextResponse("the web configuration is invalid; the log says why\n", status_code=500)
                await refusal(scope, receive, send)
                return
            send = _with_headers(send, config.http_server_config.headers)
            users = config.basic_auth_users
            if users and not await self._logins.allow(users, headers.get("authorization", "")):
                await PlainTextResponse("Unauthorized\n", status_code=401, headers=_CHALLENGE)(scope, receive, send)
                return
        announced = headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > self._max_body_bytes:
            await self._drain(receive)
            await PlainTextResponse(_TOO_LARGE, status_code=_TOO_LARGE_CODE)(scope, receive, send)
            return
        await self._app(scope, self._limited(receive), send)

    async def _drain(self, receive: Receive) -> None:
        """Read some more of a body that is refused: a client whose connection breaks while it sends sees no answer."""
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


class Logins:
    """Basic authentication against bcrypt hashes; comparisons are remembered, as bcrypt is slow on purpose."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, bool] = OrderedDict()
        self._secret = os.urandom(32)
        self._one_at_a_time = asyncio.Semaphore(1)

    async def allow(self, users: dict[str, str], authorization: str) -> bool:
        """Whether an `Authorization` header names a user with the right password."""
        credentials = _credentials(authorization)
        if credentials is None:
            return False
        user, password = credentials
        hashed = users.get(user, "").replace("$2y$", "$2b$", 1).encode() or _UNKNOWN_USER_HASH
        digest = hmac.digest(self._secret, b"\0".join((user.encode(), hashed, password)), "sha256")
        if digest not in self._known:
            async with self._one_at_a_time:
                right = await asyncio.to_thread(_matches, password, hashed)
            self._known[digest] = right and user in users
            while len(self._known) > _CACHED_LOGINS:
                self._known.popitem(last=False)
        return self._known[digest]


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, separator, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if separator else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:
        # Longer than 72 bytes, which bcrypt cannot tell from their beginning.
        return False


def _with_headers(send: Send, headers: dict[str, str]) -> Send:
    if not headers:
        return send

    async def extended(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return extended


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
