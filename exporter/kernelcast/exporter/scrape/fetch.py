"""Gets a page over HTTP: no redirect, no proxy, no credentials; size and time have a limit."""

import http.client
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from kernelcast.runtime.timed_http import TimeLimit
from kernelcast.wire.errors import PageError

SILENCE_SECONDS: Final = 2.0
WHOLE_SECONDS: Final = 5.0
MAX_PAGE_BYTES: Final = 4 * 2**20
"""An engine's page has some hundred KB."""


@dataclass(frozen=True, slots=True)
class PageTarget:
    """A page to read.

    Attributes:
        url: Its address.
        labels: What is known of who serves it: pod and namespace.
    """

    url: str
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def address(self) -> str:
        """Host and port, and the path before `/metrics`: a server with two pages has two addresses."""
        parts = urlsplit(self.url)
        return parts.netloc + parts.path.removesuffix("/metrics")

    @property
    def port(self) -> int:
        """The port that it listens on."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)


Fetch = Callable[[str], str]


def fetch(url: str) -> str:
    """The text at a URL.

    Raises:
        PageError: It does not answer 200 in time, or the page is too large.
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = TimeLimit(WHOLE_SECONDS).apply(kind(parts.hostname or "", parts.port, timeout=SILENCE_SECONDS))
    try:
        connection.request("GET", parts.path or "/", headers={"Accept": "text/plain;version=0.0.4"})
        with connection.getresponse() as answer:
            body = answer.read(MAX_PAGE_BYTES + 1) if answer.status == http.client.OK else b""
            status = answer.status
    except (OSError, http.client.HTTPException) as error:
        raise PageError(f"{url} does not answer: {type(error).__name__}: {error}") from None
    finally:
        connection.close()
    if status != http.client.OK:
        raise PageError(f"{url} answered {status}; no redirect is followed")
    if len(body) > MAX_PAGE_BYTES:
        raise PageError(f"{url} is larger than {MAX_PAGE_BYTES} bytes")
    return body.decode("utf-8", "replace")
