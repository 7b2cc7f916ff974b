"""Requests of our commands to servers, with credentials where they need them.

`kernelcast health` imports it, so it needs the standard library alone.
"""

import ipaddress
import math
import ssl
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPResponse
from typing import Any

from kernelcast.runtime.timed_http import TimedHandler, TimeLimit


class SameServerCredentials(urllib.request.HTTPRedirectHandler):
    """Follows redirects; another server, such as that of a login page, does not get the credentials."""

    def redirect_request(self, req: urllib.request.Request, *answer: Any) -> urllib.request.Request | None:
        """Return the next request, without credentials and tenant if scheme, host or port differ."""
        following = super().redirect_request(req, *answer)
        if following is not None and _server(following) != _server(req):
            for name in ("Authorization", "X-scope-orgid"):  # urllib writes names so
                following.remove_header(name)
        return following


def open_url(
    request: urllib.request.Request,
    timeout_seconds: float,
    context: ssl.SSLContext | None = None,
    *,
    whole_seconds: float = math.inf,
    with_proxy: bool = True,
) -> HTTPResponse:
    """Send a request, as `urlopen` does; other servers do not get its credentials, nor a proxy one to this machine.

    Args:
        request: Of HTTP or HTTPS; the caller has checked it.
        timeout_seconds: Longest wait for one operation of the socket.
        context: Of TLS; None for the system's certificates.
        whole_seconds: Longest wait for the whole answer; its `read` raises TimeoutError then.
        with_proxy: Whether the environment's proxy is used, for another machine.

    Raises:
        OSError: No answer.
        urllib.error.HTTPError: The answer is an error.
        http.client.HTTPException: The server does not speak HTTP, or the answer is cut.
    """
    timed = TimedHandler(TimeLimit(whole_seconds), context)
    handlers: list[urllib.request.BaseHandler] = [timed, SameServerCredentials()]
    if not with_proxy or is_this_machine(request.host):
        handlers.append(urllib.request.ProxyHandler({}))  # without it, `http_proxy` counts unless `no_proxy` does, too
    opener = urllib.request.build_opener(*handlers)
    answer: HTTPResponse = opener.open(request, timeout=timeout_seconds)
    return answer


def failure(error: Exception) -> str:
    """Why a request failed, in the words of the operating system where it has some.

    >>> failure(urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")))
    'Connection refused'
    """
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)


def beginning(text: bytes) -> str:
    """The first 80 characters of an answer, in one line, for a message.

    >>> beginning(b"<html>   <p>Not found")
    '<html> <p>Not found'
    """
    return " ".join(text.decode("utf-8", "replace").split())[:80]


def is_this_machine(authority: str) -> bool:
    """Whether `HOST:PORT` is an address of the loopback interface."""
    try:
        host = urllib.parse.urlsplit(f"//{authority}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _server(request: urllib.request.Request) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(request.full_url)
    return parts.scheme, parts.netloc
