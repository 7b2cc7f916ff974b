"""The web configuration file as it is now: reads it again whenever it, or a certificate that it names, has changed.

`guard` asks for the configuration at each request, asyncio for the TLS context at each connection; both on the event
loop's thread.
"""

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from kernelcast.runtime.web.config import WebConfig, parse_web_config
from kernelcast.wire.errors import ConfigurationError

Stamp = tuple[int, int, int, int] | None
RETRY_SECONDS: Final = 5.0
"""Time after which a wrong configuration is read again, although no file has changed: the reason may have been that the
process had no file descriptor left, or that a network file system did not answer."""


class WatchedConfig:
    """A web configuration file and its certificates, as they are now.

    While one of them is wrong, `current` raises and no request is served: a mistake in the file must not let requests
    in without a login. `tls` uses the last context that worked, so that the handshake succeeds and the client reads the
    reason in the answer 500. For the event loop's thread.
    """

    def __init__(self, path: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read it for the first time.

        Args:
            path: The file.
            monotonic: A clock, in seconds.

        Raises:
            ConfigurationError: It is wrong.
        """
        self._path, self._monotonic = path, monotonic
        self._retry_at = 0.0
        self._log = structlog.stdlib.get_logger("web")
        self._error = ""
        self._files: tuple[Path, ...] = (path,)
        self._stamps: tuple[Stamp, ...] = ()
        self._config = WebConfig()
        self._context: ssl.SSLContext | None = None
        self._served_tls: bool | None = None
        self._read()
        self._served_tls = self.serves_tls

    @property
    def serves_tls(self) -> bool:
        """Whether connections are encrypted; it stays as it was at the start."""
        return self._context is not None

    def current(self) -> WebConfig:
        """The configuration.

        Raises:
            ConfigurationError: The file, or a file that it names, is wrong now.
        """
        self._read_again_if_needed()
        if self._error:
            raise ConfigurationError(self._error)
        return self._config

    def tls(self) -> ssl.SSLContext:
        """The TLS settings for the next connection: the newest that can be used.

        Raises:
            ConfigurationError: TLS was not configured at the start.
        """
        self._read_again_if_needed()
        if self._context is None:
            raise ConfigurationError(f"{self._path} has no tls_server_config")
        return self._context

    def _read_again_if_needed(self) -> None:
        retries = bool(self._error) and self._monotonic() >= self._retry_at
        if not retries and self._stamps == tuple(_stamp(path) for path in self._files):
            return
        try:
            self._read()
        except Exception as error:  # noqa: BLE001  of any kind: the old configuration must not let requests in
            self._error = str(error) or type(error).__name__
            self._retry_at = self._monotonic() + RETRY_SECONDS
            self._log.error("web configuration refused", reason=self._error)
        else:
            self._error = ""
            self._log.info("web configuration read again", path=str(self._path))

    def _read(self) -> None:
        """Read all files.

        A file is stamped before it is read: if it changes in between, its stamp differs and it is read again.
        """
        stamps = (_stamp(self._path), *(_stamp(path) for path in self._files[1:]))
        self._stamps = stamps
        config = parse_web_config(self._path)
        self._files = (self._path, *config.files)
        self._stamps = (stamps[0], *(_stamp(path) for path in config.files))
        context = config.tls_server_config.context() if config.tls_server_config is not None else None
        if self._served_tls is not None and self._served_tls != (context is not None):
            raise ConfigurationError(f"{self._path} turns TLS on or off; restart the service to do that")
        self._config, self._context = config, context


class WatchedContext(ssl.SSLContext):
    """Gives each new connection the TLS settings of that moment."""

    watched: WatchedConfig

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Wrap with the present TLS context. It must not raise: asyncio would leave the connection open for ever."""
        return self.watched.tls().wrap_bio(*arguments, **named)


def _stamp(path: Path) -> Stamp:
    """Return a value that differs after any change of a file: of its content, of its rights, or its replacement."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a path with a NUL
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
