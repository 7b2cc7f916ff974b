"""HTTP to one receiver: connection, certificates, credentials; one attempt per call, without retries."""

import contextlib
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpcore
import httpx

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.push.answer import PushAnswer, RetryDecision, decide
from kernelcast.bridge.push.backoff import retry_after_seconds
from kernelcast.bridge.push.settings import PushSettings, TlsSettings
from kernelcast.wire.errors import ConfigurationError

LONGEST_RESPONSE_BYTES: Final = 64 * 1024
"""Bytes of a response that are read: error texts and OTLP's partial success are short."""
PART_BYTES: Final = 64 * 1024
"""Bytes of a request between two looks at its time limit."""
SHOWN_CHARACTERS: Final = 300
"""Characters of a response in logs and in the status of a destination."""
USER_AGENT: Final = "kernelcast-bridge"


class SecretFile:
    """A file with one secret, read again whenever it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_status: tuple[int, int, int] | None = None
        self._secret = ""

    def read(self) -> str:
        """The secret as it is now, without white space around it.

        Raises:
            OSError: The file cannot be read, or is not UTF-8.
        """
        status = self._path.stat()
        file_status = (status.st_mtime_ns, status.st_size, status.st_ino)
        if file_status != self._file_status:
            try:
                self._secret = self._path.read_text("utf-8").strip()
            except UnicodeDecodeError:
                raise OSError(f"{self._path} is not UTF-8; write the secret as text") from None
            self._file_status = file_status
        return self._secret

    def read_token(self) -> str:
        """The secret as it is now, for a header.

        Raises:
            OSError: The file cannot be read, or no header can hold its text.
        """
        token = self.read()
        if not token or not token.isascii() or not token.isprintable():
            raise OSError(f"{self._path} holds no token: a token is one line of ASCII characters; write it again")
        return token


class Receiver:
    """Sends requests to one URL; for one thread."""

    def __init__(self, settings: PushSettings, *, clock: Clock, transport: httpx.BaseTransport | None = None) -> None:
        """Prepare to send; nothing connects yet.

        Args:
            settings: The destination.
            clock: For `Retry-After` dates.
            transport: Replaces the network in tests.

        Raises:
            ConfigurationError: A certificate cannot be used.
        """
        self._url = settings.url
        self._clock = clock
        self._timeout_seconds = settings.timeout_seconds
        self._basic = settings.basic_auth
        files = (settings.bearer_token_file, self._basic.password_file if self._basic else None)
        self._token, self._password = (SecretFile(path) if path is not None else None for path in files)
        self._network = _LimitedNetwork()
        self._client = httpx.Client(
            headers={"User-Agent": USER_AGENT, **settings.headers},
            transport=transport or _transport(client_context(settings.tls, "push"), self._network),
            trust_env=False,  # a proxy of the environment is no choice of this destination's
        )

    def post(self, body: bytes, headers: Mapping[str, str]) -> PushAnswer:
        """Send a request once and understand the answer; whatever goes wrong is an answer, too."""
        try:
            auth = self._auth()
            bearer = {"Authorization": f"Bearer {self._token.read_token()}"} if self._token is not None else {}
        except OSError as error:
            return PushAnswer(RetryDecision.AGAIN, "configuration", f"credentials cannot be read: {error}")
        limit = self._network.limit = _TimeLimit(self._clock, self._timeout_seconds)
        try:
            with self._client.stream(
                "POST",
                self._url,
                content=_parts(body, limit),
                headers={**headers, **bearer, "Content-Length": str(len(body))},
                auth=auth,
                extensions={"timeout": limit},
            ) as response:
                return self._parsed(response, limit)
        except httpx.HTTPError as error:
            return PushAnswer(RetryDecision.AGAIN, "network", f"{type(error).__name__}: {error}")
        except (httpx.InvalidURL, ValueError) as error:  # the resolver may reject a host with UnicodeError
            return PushAnswer(RetryDecision.AGAIN, "configuration", f"the request cannot be made: {error}; look at url")

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _auth(self) -> tuple[str, str] | None:
        if self._basic is None:
            return None
        return self._basic.username, self._password.read() if self._password is not None else self._basic.password

    def _parsed(self, response: httpx.Response, limit: "_TimeLimit") -> PushAnswer:
        body = b""
        with contextlib.suppress(httpx.HTTPError):  # late, cut or garbled: the status has come in time, and decides
            for part in response.iter_bytes():
                body += part[: LONGEST_RESPONSE_BYTES - len(body)]
                if len(body) == LONGEST_RESPONSE_BYTES or limit.is_over:
                    break
        text = body[:4096].decode("utf-8", "replace")
        decision, cause = decide(response.status_code, text)
        return PushAnswer(
            decision,
            cause,
            f"HTTP {response.status_code}: {text[:SHOWN_CHARACTERS].strip()}",
            retry_after_seconds(response.headers.get("retry-after"), self._clock.now_ns() / 1e9),
            headers={name.lower(): value for name, value in response.headers.items()},
            body=body,
        )


class _TimeLimit:
    """Time limit of one request, in the place of httpx' timeouts: each step (connect, write, read) has its rest."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._deadline = clock, clock.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() > self._deadline

    def get(self, _step: str, _default: float | None = None) -> float:
        """Return the seconds that are left; more than 0, which would mean not to wait at all."""
        return max(0.001, self._deadline - self._clock.monotonic())


class _LimitedNetwork(httpcore.SyncBackend):
    """Connections of which each single read has the rest of the present request's time.

    httpcore takes a step's timeout once, and reads the head of an answer with it as often as the receiver sends a byte.
    """

    limit: _TimeLimit | None = None

    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        """Connect, as httpcore does."""
        return _LimitedStream(super().connect_tcp(*arguments, **options), self)


class _LimitedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, network: _LimitedNetwork) -> None:
        self._stream, self._network = stream, network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        limit = self._network.limit
        if limit is not None and limit.is_over:
            raise httpcore.ReadTimeout("no whole answer within timeout_seconds")
        return self._stream.read(max_bytes, timeout if limit is None else limit.get("read"))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _LimitedStream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._network)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _transport(context: ssl.SSLContext, network: httpcore.NetworkBackend) -> httpx.BaseTransport:
    transport = httpx.HTTPTransport(verify=context, trust_env=False)
    # httpx has no parameter for the network; its default pool has the same settings.
    transport._pool = httpcore.ConnectionPool(ssl_context=context, keepalive_expiry=5.0, network_backend=network)  # noqa: SLF001
    return transport


def _parts(body: bytes, limit: _TimeLimit) -> Iterator[bytes]:
    for start in range(0, len(body), PART_BYTES):
        if limit.is_over:
            raise httpx.WriteTimeout(f"{start} of {len(body)} bytes were sent within timeout_seconds")
        yield body[start : start + PART_BYTES]


def client_context(tls: TlsSettings, setting: str) -> ssl.SSLContext:
    """The TLS context of a client.

    Args:
        tls: Its certificates.
        setting: Name of the setting they come from, for the error.

    Raises:
        ConfigurationError: A certificate cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file is not None else None)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{setting}: certificates cannot be used (ca_file {tls.ca_file}, cert_file {tls.cert_file}, key_file "
            f"{tls.key_file}): {error}; give PEM files that this process may read"
        ) from None
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
