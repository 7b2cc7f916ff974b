"""The web server's own metrics; `guard` and `connections` count in them, on the event loop's thread."""

from collections.abc import Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import runtime

REFUSALS: Final = ("waiting", "waited", "connections", "rate_limit", "logins", "login_queue")
CLOSED: Final = ("evicted", "refused")


class WebCounts:
    """Counts responses, refused requests and closed connections; does nothing before `start`."""

    def __init__(self, paths: Collection[str] = ()) -> None:
        """Prepare; `paths` are the routes that are counted separately."""
        self.paths = paths
        self._responses: Counter | None = None
        self._refused: Counter | None = None
        self._closed: Counter | None = None

    def start(self, registry: CollectorRegistry) -> None:
        """Create the counters, at 0."""
        self._responses = counter(runtime.HTTP_REQUESTS, registry)
        self._refused = counter(runtime.HTTP_REFUSED_REQUESTS, registry)
        self._closed = counter(runtime.HTTP_CLOSED_CONNECTIONS, registry)
        for reason in REFUSALS:
            self._refused.labels(reason)
        for reason in CLOSED:
            self._closed.labels(reason)

    def response(self, path: str, status: int) -> None:
        """Count a response by its route; unknown paths are counted together, because clients choose them."""
        if self._responses is not None:
            self._responses.labels(path if path in self.paths else "other", str(status)).inc()

    def refused(self, reason: str) -> None:
        """Count a request that was refused because of a limit or missing rights."""
        if self._refused is not None:
            self._refused.labels(reason).inc()

    def closed(self, reason: str) -> None:
        """Count a connection that was closed because the server was full."""
        if self._closed is not None:
            self._closed.labels(reason).inc()
