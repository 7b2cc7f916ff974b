"""Answers `POST /pages/api/queries` (`site` has the route): all queries of a page in one request.

Queries are equal between viewers for one scrape interval, and are then run once. The page sends a JSON list of queries,
and gets one part for each (`PART_HEADER`). A query that takes longer than `GATHER_SECONDS` has no part; the page asks
for it again, so that the other panels are drawn meanwhile.
"""

import asyncio
import json
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernelcast.bridge.browser.connections import ForwardedAnswer
from kernelcast.runtime.web.bodies import RefusedBodyError, read_body

PART_HEADER: Final = struct.Struct(">HHBI")
"""Header of a part; all parts of an answer lie end to end, and `static/` reads the same layout:

    number of the query in the list, 2 bytes | HTTP status, 2 | 1 for gzip, else 0, 1 | bytes of the body, 4 | the body

big-endian. The list is, for example, `["query?query=up&time=15", "query_range?query=up&start=0&end=15&step=15"]`."""
MAX_QUERIES: Final = 64
"""`static/ask.js` sends longer lists in several requests, so that one request cannot fill the queue to Prometheus."""
MAX_REQUEST_BYTES: Final = 256 * 1024
"""64 queries with PromQL of some 4 KiB each."""
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of answers that are shared; beyond it the oldest ones are dropped, and their queries run again when asked for."""
GATHER_SECONDS: Final = 0.5
"""Longest wait of an answer for all of its parts; most queries take some milliseconds."""


@dataclass(slots=True)
class _SharedQuery:
    """A query that runs or has run, shared by all viewers that ask for it.

    Attributes:
        expires_seconds: Until when its answer is used, by the monotonic clock; later the query runs again.
        task: Runs it.
        answer: The answer; None while it runs.
    """

    expires_seconds: float
    task: "asyncio.Task[ForwardedAnswer]"
    answer: ForwardedAnswer | None = None


class QueryBatch:
    """Runs lists of queries, and keeps the answers for a while. Only the event loop uses it, so it needs no lock.

    Pages ask for times that are multiples of the scrape interval, so viewers of one page ask equal queries.
    Invariant: `_queries` is in the order of expiry, because all answers are kept equally long.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[ForwardedAnswer]],
        keep_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            ask: Runs one query: `PrometheusProxy.ask` or `LocalPages.ask`.
            keep_seconds: How long an answer is used again: one scrape interval.
            clock: Monotonic seconds.
        """
        self._ask, self._keep_seconds, self._clock = ask, keep_seconds, clock
        self._queries: dict[str, _SharedQuery] = {}
        self.kept_bytes = 0

    async def answer(self, request: Request) -> Response:
        """Answer every query of a page."""
        if not request.headers.get("content-type", "").startswith("application/json"):
            return _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
        try:
            queries = json.loads(await read_body(request, MAX_REQUEST_BYTES, "ask for fewer queries"))
        except RefusedBodyError as refusal:
            return _refused(refusal.status, refusal.reason)
        except (ValueError, RecursionError):
            queries = None
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            return _refused(HTTPStatus.BAD_REQUEST, "the body must be a JSON list of strings")
        if not 0 < len(queries) <= MAX_QUERIES:
            return _refused(HTTPStatus.BAD_REQUEST, f"{len(queries)} queries; a request has 1 to {MAX_QUERIES}")
        asked = [self._shared_query(query) for query in queries]
        waiting = {one.task for one in asked if one.answer is None}
        if waiting:  # a viewer that leaves stops no query, as others may wait for it
            await asyncio.wait(waiting, timeout=GATHER_SECONDS)
            if not any(one.answer for one in asked):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        headers = {"content-type": "application/octet-stream", "cache-control": "no-store"}
        return Response(b"".join(_encoded_parts(asked)), headers=headers)

    def _shared_query(self, query: str) -> _SharedQuery:
        now = self._clock()
        known = self._queries.get(query)
        if known is not None and (known.expires_seconds > now or known.answer is None):
            return known
        if known is not None:
            self._drop(query)
        while (
            (oldest := next(iter(self._queries.items()), None))
            and oldest[1].expires_seconds <= now
            and oldest[1].answer
        ):
            self._drop(oldest[0])
        made = self._queries[query] = _SharedQuery(now + self._keep_seconds, asyncio.create_task(self._run(query)))
        return made

    async def _run(self, query: str) -> ForwardedAnswer:
        try:
            answer = await self._ask(query)
        except Exception as error:  # noqa: BLE001  a part without an answer would leave its viewers waiting
            structlog.stdlib.get_logger("bridge.pages").exception("a query failed")
            answer = ForwardedAnswer(500, "", "", json.dumps({"error": f"the bridge failed: {error!r}"}).encode())
        self._queries[query].answer = answer
        self.kept_bytes += len(answer.body)
        if answer.status != HTTPStatus.OK:
            self._drop(query)
        while self.kept_bytes > MAX_KEPT_BYTES:
            self._drop(next(key for key, one in self._queries.items() if one.answer is not None))
        return answer

    def _drop(self, query: str) -> None:
        answer = self._queries.pop(query).answer
        self.kept_bytes -= len(answer.body) if answer is not None else 0


def _refused(status: int, reason: str) -> Response:
    return JSONResponse({"status": "error", "error": reason}, status_code=status)


def _encoded_parts(asked: list[_SharedQuery]) -> Iterator[bytes]:
    for number, one in enumerate(asked):
        if one.answer is not None:
            body = one.answer.body
            yield PART_HEADER.pack(number, one.answer.status, one.answer.content_encoding == "gzip", len(body))
            yield body
