"""The command `kernelcast explain SERIES`: asks a running predictor over HTTP."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from typing import Annotated, Final

import typer

from kernelcast.runtime.command import command
from kernelcast.runtime.web.requests import beginning, failure, open_url
from kernelcast.wire.errors import ConfigurationError, KernelcastError

PATH: Final = "/api/v1/explain"
TIMEOUT_SECONDS: Final = 10.0
"""Longest silence."""
WHOLE_SECONDS: Final = 60.0
"""Time for a whole answer."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Largest answer that is read; one about a series has some kilobytes."""

Series = Annotated[str, typer.Argument(metavar="SERIES", help='METRIC{label="value"}, as Prometheus shows it.')]
Url = Annotated[str, typer.Option("--url", metavar="URL", help="The predictor's web server.")]


@command
def explain(series: Series, url: Url = "http://127.0.0.1:19402") -> None:
    """Show history, limit, forecast, decision and reason of one series, as JSON."""
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"--url is {url!r}; it must begin with http:// or https://; correct it")
    full = f"{url.rstrip('/')}{PATH}?{urllib.parse.urlencode({'series': series})}"
    try:
        request = urllib.request.Request(full)  # noqa: S310  checked above
        with open_url(request, TIMEOUT_SECONDS, whole_seconds=WHOLE_SECONDS) as answer:
            text = answer.read(MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        reason = b""
        with error, suppress(OSError, http.client.HTTPException):
            reason = error.read(65_536)
        shown = reason.decode(errors="replace") or f"status {error.code}"
        raise KernelcastError(f"the predictor refused: {shown}") from error
    except ValueError as error:
        raise ConfigurationError(f"--url is {url!r}: {error}; write it as http://HOST:PORT") from error
    except (OSError, http.client.HTTPException) as error:
        raise KernelcastError(f"{url} does not answer: {failure(error)}; is the predictor running there?") from error
    try:
        explained = json.loads(text)["series"]
    except (ValueError, KeyError, TypeError):
        raise KernelcastError(f'{url} is no predictor: it answered "{beginning(text)}"; check --url') from None
    if not explained:
        raise KernelcastError(f"the predictor at {url} has no series {series}; it may read other partitions")
    typer.echo(json.dumps(explained, indent=2))
