"""Requests of our commands to servers with credentials."""

import ssl
import urllib.parse
import urllib.request
from http.client import HTTPResponse
from typing import Any


class SameServerCredentials(urllib.request.HTTPRedirectHandler):
    """Follows redirects; another server, such as that of a login page, does not get the credentials."""

    def redirect_request(self, req: urllib.request.Request, *answer: Any) -> urllib.request.Request | None:
        """Return the next request, without `Authorization` if scheme, host or port differ."""
        following = super().redirect_request(req, *answer)
        if following is not None and _server(following) != _server(req):
            following.remove_header("Authorization")
        return following


def open_url(
    request: urllib.request.Request, timeout_seconds: float, context: ssl.SSLContext | None = None
) -> HTTPResponse:
    """Send a request, as `urlopen` does, and keep its credentials from other servers.

    Args:
        request: Of HTTP or HTTPS; the caller has checked it.
        timeout_seconds: Longest wait for one operation of the socket.
        context: Of TLS; None for the system's certificates.

    Raises:
        OSError: No answer.
        urllib.error.HTTPError: The answer is an error.
        http.client.HTTPException: The server does not speak HTTP, or the answer is cut.
    """
    secure = urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(secure, SameServerCredentials())
    answer: HTTPResponse = opener.open(request, timeout=timeout_seconds)
    return answer


def _server(request: urllib.request.Request) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(request.full_url)
    return parts.scheme, parts.netloc
