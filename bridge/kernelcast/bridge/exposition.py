"""`/metrics`: the store's series, then the process's own metrics; encoded once per content, shared by scrapers."""

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kernelcast.bridge.layout import Snapshot
from kernelcast.bridge.render import render
from kernelcast.runtime.instruments import WithoutCreated

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SERIES_PER_CHUNK: Final = 32_768
"""Between chunks, other threads get the interpreter; orjson holds it for about 2 ms a chunk."""
GZIP_LEVEL: Final = 1
GZIP_WINDOW: Final = 31
LARGEST_CACHED_BYTES: Final = 32 * 1024 * 1024
"""A larger body is not kept between scrapes: a million series are 150 MB in plain text, and a tenth of that in gzip."""

Chunk = bytes | memoryview


class Source(Protocol):
    """The part of a store that is needed here."""

    version: int

    def snapshot(self) -> Snapshot:
        """Everything that is exposed, at one moment."""


@dataclass(frozen=True, slots=True)
class Body:
    """The series of one page, encoded.

    Attributes:
        version: The store's version.
        chunks: The bytes.
        length: How many.
    """

    version: int
    chunks: tuple[Chunk, ...]
    length: int

    @classmethod
    def of(cls, version: int, chunks: Sequence[Chunk]) -> "Body":
        """Put chunks together."""
        return cls(version, tuple(chunks), sum(len(chunk) for chunk in chunks))


def text(snapshot: Snapshot) -> Iterator[memoryview]:
    """The series in text 0.0.4, in chunks."""
    total = int(snapshot.page.starts[-1])
    for begin in range(0, total, SERIES_PER_CHUNK):
        yield render(snapshot.page, snapshot.values, begin, min(begin + SERIES_PER_CHUNK, total))


def gzipped(chunks: Iterator[memoryview]) -> Iterator[bytes]:
    """One gzip member, compressed as the chunks come; zlib lets other threads run."""
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for item in header.split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            weight = parameters.replace(" ", "").lower()
            return not (weight.startswith("q=") and weight[2:].strip("0.") == "")
    return False


class Exposition:
    """Answers scrapes; one is encoded at a time, and those that wait share it if nothing has changed meanwhile."""

    def __init__(
        self,
        store: Source,
        registry: CollectorRegistry,
        *,
        observe: Callable[[float, int], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Expose a store and the process's own metrics.

        Args:
            store: Where the series are.
            registry: The process's own metrics; none of their names is in the store.
            observe: Told the duration in seconds and the bytes of every encoding.
            clock: Seconds.
        """
        self._store = store
        self._own = WithoutCreated(registry)
        self._observe = observe
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: dict[bool, Body] = {}

    def answer(self, request: Request) -> Response:
        """Answer a scrape."""
        compress = accepts_gzip(request.headers.get("accept-encoding", ""))
        body = self._body(compress=compress)
        own = generate_latest(self._own)
        if compress:
            own = zlib.compress(own, GZIP_LEVEL, GZIP_WINDOW)
        headers = {
            "content-type": CONTENT_TYPE,
            "content-length": str(body.length + len(own)),
            "vary": "accept-encoding",
        }
        if compress:
            headers["content-encoding"] = "gzip"
        return StreamingResponse((bytes(chunk) for chunk in (*body.chunks, own)), headers=headers)

    def _body(self, *, compress: bool) -> Body:
        with self._lock:
            cached = self._cached.get(compress)
            if cached is not None and cached.version == self._store.version:
                return cached
            self._cached.pop(compress, None)
            began = self._clock()
            snapshot = self._store.snapshot()
            chunks = text(snapshot)
            body = Body.of(snapshot.version, list(gzipped(chunks) if compress else chunks))
            self._observe(self._clock() - began, body.length)
            if body.length <= LARGEST_CACHED_BYTES:
                self._cached[compress] = body
            return body
