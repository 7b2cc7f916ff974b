"""`/metrics`: the store's series, then the process's own metrics, in the format that the scraper prefers.

While a format is being compiled, a scrape would wait for numba's compiler lock, on a thread that its client's time-out
does not free. So it gets a format that is compiled already; if there is none, only the process's own metrics, which
need no compiled code. They show more than an error would (`kernelcast_bridge_ready` is 0, `up` is 1), and no series is
lost: a bridge that is compiling has read nothing yet.

A bridge whose partitions may have been assigned to another member, as after a suspension, also answers with its own
metrics only. With a 503 Prometheus would mark the same series stale, and would not get the metrics that show the
reason.
"""

import time
from collections.abc import Callable
from uuid import uuid4

from prometheus_client import CollectorRegistry
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from kernelcast.bridge.expose.bodies import Bodies, Body, BodyKey, VersionedSnapshots, empty_body
from kernelcast.bridge.expose.negotiate import Coding, Format, Negotiated, negotiate, negotiate_coding
from kernelcast.bridge.expose.own import OwnMetrics
from kernelcast.bridge.pages.view import NAMES, SHARD, view_of
from kernelcast.wire.errors import RequestError


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
            registry: The process's own metrics; none of their names is in the store.
            observe: Called with the duration in seconds and the size in bytes of every encoding.
            created: Whether OpenMetrics has `_created` lines.
            clock: Seconds.
            compiled: Whether a format can be written without being compiled first.
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
        format_, coding = _negotiated(request, self._compiled)
        headers = {"vary": "accept, accept-encoding", "content-type": format_.content_type}
        wanted = BodyKey(format_.format, coding, view)
        if not self._compiled(format_.format) or self._hidden():
            return self._page(wanted, empty_body(coding), headers)
        tag = self._tag(wanted, self._store.version)  # read once: the version may rise meanwhile
        if not view.includes_process_metrics and tag in _tags(request):
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
        """Return the entity tag of a page without the process's own metrics, which differ each time."""
        return f'"{self._process_id}-{version}-{wanted.format.value}-{wanted.coding.value}"'


def _negotiated(request: HttpRequest, usable: Callable[[Format], bool]) -> tuple[Negotiated, Coding]:
    accepted = ",".join(request.headers.getlist("accept"))
    codings = ",".join(request.headers.getlist("accept-encoding"))
    return negotiate(accepted, usable), negotiate_coding(codings)


def _tags(request: HttpRequest) -> frozenset[str]:
    given = ",".join(request.headers.getlist("if-none-match"))
    return frozenset(tag.strip().removeprefix("W/") for tag in given.split(","))
