"""`/metrics`: the series read from Kafka (the store), then the process's own metrics, in the scraper's format.

While numba compiles the writer of a format, a scrape in that format would wait for the compiler's lock. So the scraper
gets another format that is compiled already. At the start none is compiled: the scraper gets only the process's own
metrics, which need no compiled code. They show more than an error would (`kernelcast_bridge_ready` is 0, `up` is 1).

After a suspension another member of the consumer group may have the bridge's partitions. Until that is known, the
bridge also answers with its own metrics only. A 503 would hide the metrics that show the reason.
"""

import time
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from prometheus_client import CollectorRegistry
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from kernelcast.bridge.expose.bodies import Bodies, Body, BodyKey, VersionedSnapshots, empty_body
from kernelcast.bridge.expose.negotiate import Coding, Format, Negotiated, negotiate, negotiate_coding
from kernelcast.bridge.expose.own import OwnMetrics
from kernelcast.bridge.layouts.view import NAMES, SHARD, view_of
from kernelcast.wire.errors import RequestError

ANY_TAG: Final = "*"


class Exposition:
    """Answers scrapes; the threads of the web server call it."""

    def __init__(  # noqa: PLR0913  parts, most of them optional
        self,
        store: VersionedSnapshots,
        registry: CollectorRegistry,
        *,
        observe: Callable[[float, int], None],
        created: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        compiled: Callable[[Format], bool] = lambda _: True,
        hidden: Callable[[], bool] = lambda: False,
    ) -> None:
        """Expose a store and the process's own metrics.

        Args:
            store: The series.
            registry: The process's own metrics; none of their names is in the store, as a name occurs once on a page.
            observe: Called with the duration in seconds and the size in bytes of each body that is made.
            created: Whether OpenMetrics is written with `_created` lines.
            clock: Seconds.
            compiled: Whether the writer of a format is compiled.
            hidden: Whether the store's series must not be exposed now.
        """
        self._store = store
        self._bodies = Bodies(store, observe, created, clock)
        self._own = OwnMetrics(registry)
        self._compiled, self._hidden = compiled, hidden
        self._process_id = uuid4().hex

    def answer(self, request: HttpRequest) -> Response:
        """Answer a scrape; an invalid one gets 400 and the reason."""
        query = request.query_params
        try:
            view = view_of(query.getlist(SHARD), query.getlist(NAMES))
        except RequestError as error:
            return PlainTextResponse(f"{error}\n", status_code=400)
        negotiated, coding = _negotiated(request, self._compiled)
        headers = {"vary": "accept, accept-encoding", "content-type": negotiated.content_type}
        wanted = BodyKey(negotiated.format, coding, view)
        if not self._compiled(negotiated.format) or self._hidden():
            return self._page(wanted, empty_body(coding), headers)
        tag = self._tag(wanted, self._store.version)  # it may rise before the body is made
        if not view.includes_process_metrics and not _tags(request).isdisjoint({tag, ANY_TAG}):
            return Response(status_code=304, headers={**headers, "etag": tag})
        body = self._bodies.body(wanted)
        if self._hidden():  # the process may have been suspended meanwhile
            return self._page(wanted, empty_body(coding), headers)
        if not view.includes_process_metrics:
            headers["etag"] = self._tag(wanted, body.version)
        return self._page(wanted, body, headers)

    def _page(self, wanted: BodyKey, body: Body, headers: dict[str, str]) -> Response:
        """Return the series, followed by the process's own metrics."""
        end = body.compressor.finish(self._own.page(wanted.format, wanted.view))
        headers["content-length"] = str(body.length + len(end))
        if wanted.coding is not Coding.IDENTITY:
            headers["content-encoding"] = wanted.coding.value
        return StreamingResponse(body.slices(end), headers=headers)

    def _tag(self, wanted: BodyKey, version: int) -> str:
        """Return the entity tag of a page without the process's own metrics; with them every page differs.

        A view has an address of its own, so the tag need not name it.
        """
        return f'"{self._process_id}-{version}-{wanted.format.value}-{wanted.coding.value}"'


def _negotiated(request: HttpRequest, usable: Callable[[Format], bool]) -> tuple[Negotiated, Coding]:
    accepted = ",".join(request.headers.getlist("accept"))
    codings = ",".join(request.headers.getlist("accept-encoding"))
    return negotiate(accepted, usable), negotiate_coding(codings)


def _tags(request: HttpRequest) -> frozenset[str]:
    """Return the entity tags of the pages that the client has, or ANY_TAG."""
    tags = ",".join(request.headers.getlist("if-none-match"))
    return frozenset(tag.strip().removeprefix("W/") for tag in tags.split(","))
