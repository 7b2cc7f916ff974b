"""Forwards the pages' queries to one Prometheus: two paths, known parameters, bounded in time, size and number.

The answer goes through as it comes, compressed where Prometheus compresses it, so a query costs the bridge little.
"""

import asyncio
import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPException
from typing import Final
from urllib.parse import quote_plus, unquote_plus

from starlette.requests import Request
from starlette.responses import Response

from kernelcast.bridge.browser.connections import AnswerTooLargeError, ConnectionPool, ForwardedAnswer
from kernelcast.bridge.browser.credentials import SecretFile, client_context
from kernelcast.bridge.browser.settings import PagesSettings

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "query": ("query", "time"),
    "query_range": ("query", "start", "end", "step"),
}
"""The paths below `/api/v1` that are forwarded, with the parameters of each."""
MAX_QUERY_CHARACTERS: Final = 16_384
"""Several times the longest query of a generated dashboard."""
MAX_POINTS: Final = 1_500
"""Points of each series in one answer; a page asks for 240."""
MAX_WAITING: Final = 512
"""Queries that wait for their turn: those of all pages that are opened at one time."""
MAX_KEPT_TEXTS: Final = 512
"""The pages have some 440 queries."""
MAX_KEPT_CHARACTERS: Final = 8192
"""Longest text whose decoded form is cached; longer ones are rare, and would fill the cache."""
LARGE_ANSWER: Final = "the answer is larger than pages.max_response_bytes allows; choose fewer series or a shorter time"
_NUMBER: Final = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?")
_HEADERS: Final = {"User-Agent": "kernelcast-bridge", "Content-Type": "application/x-www-form-urlencoded"}


class RefusedQueryError(Exception):
    """A query that is not forwarded.

    Attributes:
        status: HTTP status of the answer.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


Ask = Callable[[str, bytes, Mapping[str, str]], ForwardedAnswer]


class PrometheusProxy:
    """Forwards queries; the event loop decides, threads wait for Prometheus."""

    def __init__(self, settings: PagesSettings, *, ask: Ask | None = None) -> None:
        """Prepare to forward; nothing connects yet.

        Args:
            settings: Where Prometheus is, and the limits.
            ask: Replaces the network in tests.

        Raises:
            ConfigurationError: A certificate cannot be used.
        """
        self._settings = settings
        basic = settings.basic_auth
        files = (settings.bearer_token_file, basic.password_file if basic is not None else None)
        self._token, self._password = (SecretFile(path) if path is not None else None for path in files)
        self._connections = ConnectionPool(
            settings.prometheus_url,
            tls=client_context(settings.tls),
            timeout_seconds=settings.timeout_seconds,
            max_bytes=settings.max_response_bytes,
        )
        self._ask: Ask = ask or self._connections.ask
        self._free_queries = asyncio.Semaphore(settings.concurrent_queries)
        # A query through anyio's threads costs 0.1 ms of processor time more.
        self._threads = ThreadPoolExecutor(settings.concurrent_queries, "pages")
        self._waiting = 0

    def close(self) -> None:
        """Close the connections; queries that wait for Prometheus end with an error, so that a stop need not wait."""
        self._connections.close()

    async def answer(self, request: Request) -> Response:
        """Answer one query with what Prometheus answers, or with the reason why it could not be asked."""
        packed = "gzip" in request.headers.get("accept-encoding", "")
        answer = await self.ask(f"{request.path_params['kind']}?{request.url.query}", "gzip" if packed else "identity")
        headers = {"content-type": answer.content_type, "cache-control": "no-store"}
        if answer.content_encoding:
            headers["content-encoding"] = answer.content_encoding
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers["retry-after"] = "2"
        return Response(answer.body, status_code=answer.status, headers=headers)

    async def ask(self, query: str, coding: str = "gzip") -> ForwardedAnswer:
        """Ask Prometheus `kind?parameters`; the answer says why, where it could not be asked."""
        path, _, text = query.partition("?")
        try:
            return await self._forward_in_turn(path, checked(path, parameters_in(text)), coding)
        except RefusedQueryError as refusal:
            body = json.dumps({"status": "error", "error": str(refusal)}).encode()
            return ForwardedAnswer(refusal.status, "application/json", "", body)

    async def _forward_in_turn(self, path: str, parameters: Mapping[str, str], coding: str) -> ForwardedAnswer:
        if self._waiting >= MAX_WAITING:
            raise RefusedQueryError(503, f"{MAX_WAITING} queries wait for Prometheus already; try again in 2 s")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await self._free_queries.acquire()
            try:
                running = asyncio.get_running_loop()
                return await running.run_in_executor(self._threads, self._forward, path, parameters, coding)
            finally:
                self._free_queries.release()
        except TimeoutError:
            raise RefusedQueryError(
                504, f"Prometheus did not answer within {self._settings.timeout_seconds:g} s (pages.timeout_seconds)"
            ) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", "") or str(error) or type(error).__name__
            raise RefusedQueryError(502, f"Prometheus does not answer: {reason[:300]}") from None
        finally:
            self._waiting -= 1

    def _forward(self, path: str, parameters: Mapping[str, str], coding: str) -> ForwardedAnswer:
        forwarded = {**parameters, "timeout": f"{self._settings.timeout_seconds:g}s"}
        body = "&".join(f"{name}={_encoded(value)}" for name, value in forwarded.items()).encode()
        try:
            headers = {**_HEADERS, "Accept-Encoding": coding, **self._credentials()}
        except OSError as error:
            raise RefusedQueryError(502, f"credentials cannot be read: {error}") from None
        try:
            answer = self._ask(f"/api/v1/{path}", body, headers)
        except AnswerTooLargeError:
            raise RefusedQueryError(502, f"{LARGE_ANSWER} ({self._settings.max_response_bytes} bytes)") from None
        if "json" not in answer.content_type:
            raise RefusedQueryError(502, f"Prometheus answered {answer.status}, not with JSON; is the URL right?")
        return answer

    def _credentials(self) -> dict[str, str]:
        if self._token is not None:
            return {"Authorization": f"Bearer {self._token.read_token()}"}
        basic = self._settings.basic_auth
        if basic is None:
            return {}
        password = self._password.read() if self._password is not None else basic.password
        return {"Authorization": f"Basic {b64encode(f'{basic.username}:{password}'.encode()).decode()}"}


def parameters_in(text: str) -> list[tuple[str, str]]:
    """The parameters of a query string, as `parse_qsl` with blank values returns them."""
    parts = (part.partition("=") for part in text.split("&") if part)
    return [(_decoded(name), _decoded(value)) for name, _, value in parts]


def _cached(change: Callable[[str], str]) -> Callable[[str], str]:
    """A function of a text that keeps its answers: a page asks the same queries again at each refresh."""
    cached = lru_cache(MAX_KEPT_TEXTS)(change)
    return lambda text: cached(text) if len(text) <= MAX_KEPT_CHARACTERS else change(text)


_decoded: Final = _cached(unquote_plus)
_encoded: Final = _cached(quote_plus)


def checked(path: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The parameters of a query that may be forwarded.

    Raises:
        RefusedQueryError: The path is not forwarded, or a parameter is unknown, missing, repeated or out of its bounds.
    """
    if path not in PARAMETERS:
        raise RefusedQueryError(404, f"{path} is not forwarded; {' and '.join(PARAMETERS)} are")
    names = [name for name, _ in pairs]
    if sorted(names) != sorted(PARAMETERS[path]):
        raise RefusedQueryError(
            400, f"parameters are {', '.join(names) or 'none'}; {path} needs {', '.join(PARAMETERS[path])}"
        )
    parameters = dict(pairs)
    if len(parameters["query"]) > MAX_QUERY_CHARACTERS:
        raise RefusedQueryError(
            400, f"the query has {len(parameters['query'])} characters; at most {MAX_QUERY_CHARACTERS} are forwarded"
        )
    for name in PARAMETERS[path][1:]:
        if not _NUMBER.fullmatch(parameters[name]):
            raise RefusedQueryError(400, f"{name} is {parameters[name][:40]!r}; it must be a number of seconds")
    if path == "query_range":
        _check_points(*(float(parameters[name]) for name in ("start", "end", "step")))
    return parameters


def _check_points(start: float, end: float, step: float) -> None:
    if step <= 0 or end < start:
        raise RefusedQueryError(
            400, f"start {start:g}, end {end:g}, step {step:g}: end must not be before start, and step must be above 0"
        )
    points = math.floor((end - start) / step) + 1
    if points > MAX_POINTS:
        raise RefusedQueryError(400, f"the range has {points} points; at most {MAX_POINTS} are forwarded; raise step")
