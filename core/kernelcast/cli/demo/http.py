"""HTTP requests to the demo's own endpoints on loopback; a service that does not answer is None, not an exception."""

import http.client
import json
import urllib.parse
import urllib.request
from typing import Any, Final

from kernelcast.runtime.web.requests import open_url

TIMEOUT_SECONDS: Final = 5.0


def fetch(url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
    """The body at a URL, or None where there is no 2xx answer in time."""
    try:
        with open_url(urllib.request.Request(url), timeout_seconds) as answer:  # noqa: S310  http:// on loopback
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return None


def answers(url: str) -> bool:
    """Whether a URL answers 2xx now."""
    return fetch(url, 1.0) is not None


def query(prometheus_url: str, expression: str) -> float | None:
    """Return the value of an expression in Prometheus; None unless it is exactly one."""
    body = fetch(f"{prometheus_url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    result: list[Any] = json.loads(body)["data"]["result"] if body else []
    return float(result[0]["value"][1]) if len(result) == 1 else None
