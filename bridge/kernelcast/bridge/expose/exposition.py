"""`/metrics`: the store's series, then the process's own metrics, in the format that the scraper prefers."""

import time
from collections.abc import Callable
from uuid import uuid4

from prometheus_client import CollectorRegistry
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from kernelcast.bridge.expose.bodies import Bodies, Request, Source
from kernelcast.bridge.expose.negotiate import Coding, Negotiated, negotiate, negotiate_coding
from kernelcast.bridge.expose.own import OwnMetrics
from kernelcast.bridge.series.view import NAMES, SHARD, view_of
from kernelcast.wire.errors import RequestError


class Exposition:
    """Answers scrapes."""

    def __init__(
        self,
        store: Source,
        registry: CollectorRegistry,
        *,
        observe: Callable[[float, int], None],
        created: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Expose a store and the process's own metrics.

        Args:
            store: Where the series are.
            registry: The process's own metrics; none of their names is in the store.
            observe: Told the duration in seconds and the bytes of every encoding.
            created: Whether OpenMetrics has `_created` lines.
            clock: Seconds.
        """
        self._store = store
        self._bodies = Bodies(store, observe, created, clock)
        self._own = OwnMetrics(registry)
        self._run = uuid4().hex

    def answer(self, request: HttpRequest) -> Response:
        """Answer a scrape; with 400 and a reason, one that asks for what cannot be."""
        query = request.query_params
        try:
            view = view_of(query.getlist(SHARD), query.getlist(NAMES))
        except RequestError as error:
            return PlainTextResponse(f"{error}\n", status_code=400)
        format_, coding = _negotiated(request)
        headers = {"vary": "accept, accept-encoding", "content-type": format_.content_type}
        wanted = Request(format_.format, coding, view)
        if not view.speaks_for_the_process and self._tag(wanted, self._store.version) in _tags(request):
            return Response(status_code=304, headers={**headers, "etag": self._tag(wanted, self._store.version)})
        body = self._bodies.body(wanted)
        end = body.packing.end(self._own.page(format_.format, view))
        headers["content-length"] = str(body.length + len(end))
        if coding is not Coding.IDENTITY:
            headers["content-encoding"] = coding.value
        if not view.speaks_for_the_process:
            headers["etag"] = self._tag(wanted, body.version)
        return StreamingResponse(body.sent(end), headers=headers)

    def _tag(self, wanted: Request, version: int) -> str:
        """An entity tag; only of pages without the process's own metrics, which differ each time."""
        return f'"{self._run}-{version}-{wanted.format.value}-{wanted.coding.value}"'


def _negotiated(request: HttpRequest) -> tuple[Negotiated, Coding]:
    accepted = ",".join(request.headers.getlist("accept"))
    codings = ",".join(request.headers.getlist("accept-encoding"))
    return negotiate(accepted), negotiate_coding(codings)


def _tags(request: HttpRequest) -> frozenset[str]:
    given = ",".join(request.headers.getlist("if-none-match"))
    return frozenset(tag.strip().removeprefix("W/") for tag in given.split(","))
