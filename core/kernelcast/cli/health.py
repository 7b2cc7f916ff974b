"""`kernelcast health URL…`: asks a daemon's probe, for containers whose engine cannot do it itself.

A container engine runs it every few seconds and reads its exit code. So it imports little besides the standard library.
"""

import contextlib
import http.client
import ssl
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from kernelcast.runtime.web.requests import is_this_machine, open_url
from kernelcast.wire.options import OptionParser

READY: Final = "/-/ready"
"""Path that is asked where the address has none."""
TIMEOUT_SECONDS: Final = 5.0
MAX_TIMEOUT_SECONDS: Final = 86_400.0
_MAX_BYTES: Final = 4096
_UNHEALTHY: Final = 1
_USAGE: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Ask, print the daemon's answer, and return the exit code: 0 where it is 200, 1 otherwise, 2 for usage."""
    parser = OptionParser(
        prog="kernelcast health",
        description="Exit with 0 if a daemon says that it works.",
        epilog="example: kernelcast health https://localhost:19401 --username scraper --password-file password",
    )
    parser.add_argument(
        "urls",
        metavar="URL",
        nargs="+",
        help=f"such as http://localhost:19401, at {READY}; the first that answers decides",
    )
    parser.add_argument("--username", default="", help="where the web configuration has users")
    parser.add_argument("--password-file", type=Path, metavar="FILE")
    parser.add_argument("--ca-file", metavar="FILE", help="authority of its certificate; unused on this machine")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_SECONDS, metavar="SECONDS")
    try:
        options = parser.parse_args(list(arguments))
        _check_timeout(options.timeout)
        requests = [_request(url, options.username, options.password_file) for url in options.urls]
        endpoints = [(request, _context(request.host, options.ca_file)) for request in requests]
    except SystemExit as error:
        return int(error.code or 0)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"kernelcast: {error}\n")
        return _USAGE
    answers = (_ask(request, context, options.timeout) for request, context in endpoints)
    return next((code for code in answers if code is not None), _UNHEALTHY)


def _check_timeout(seconds: float) -> None:
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"--timeout is {seconds:g}; it must be above 0, at most {MAX_TIMEOUT_SECONDS:g}")


def _request(url: str, username: str, password_file: Path | None) -> urllib.request.Request:
    """Make a request.

    Raises:
        ValueError: Not an address of HTTP or HTTPS, or the password is no text.
        OSError: The password cannot be read.
    """
    if not _is_address(url):
        raise ValueError(f"URL is {url!r}; it must be like http://localhost:19401/-/ready")
    parts = urlsplit(url)
    if parts.path in ("", "/"):
        url = urlunsplit(parts._replace(path=READY))
    request = urllib.request.Request(url)  # noqa: S310  checked above
    if username:
        try:
            password = password_file.read_text(encoding="utf-8").strip() if password_file else ""
        except UnicodeDecodeError as error:
            raise ValueError(f"--password-file {password_file} is no text in UTF-8: {error.reason}") from None
        request.add_header("Authorization", f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}")
    return request


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    return f"{parts.path}{parts.query}".isascii() and not any(letter.isspace() for letter in url)


def _context(authority: str, ca_file: str | None) -> ssl.SSLContext:
    """Make the check of certificates; none on this machine, as they are for its public name.

    Raises:
        ValueError: The file has no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # it names no file
        raise ValueError(f"--ca-file {ca_file} cannot be used: {error}; give a PEM file") from None
    if is_this_machine(authority):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _ask(request: urllib.request.Request, context: ssl.SSLContext, timeout_seconds: float) -> int | None:
    """The exit code that a server's answer means; None without an answer. Both are printed."""
    code: int | None = 0
    try:
        with open_url(request, timeout_seconds, context, whole_seconds=timeout_seconds, with_proxy=False) as answer:
            text = answer.read(_MAX_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            text, code = _body(error) or str(error).encode(), _UNHEALTHY
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # a label of the host that no name can have
        reason = getattr(error, "reason", error)
        remedy = "; check that the daemon runs, and its web.listen_address"
        text, code = f"{request.full_url} does not answer: {reason}{remedy}".encode(), None
    sys.stdout.write(f"{text.decode(errors='replace').strip()}\n")
    return code


def _body(refusal: urllib.error.HTTPError) -> bytes:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return refusal.read(_MAX_BYTES)
    return b""
