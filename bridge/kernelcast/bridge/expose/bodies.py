"""Cache of encoded pages for `Exposition`: one per format, compression and view, shared by all requests for it."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakValueDictionary

from kernelcast.bridge.expose.compress import PageCompressor, Piece
from kernelcast.bridge.expose.formats import encode
from kernelcast.bridge.expose.negotiate import Coding, Format
from kernelcast.bridge.layouts.layout import SnapshotSource
from kernelcast.bridge.layouts.view import SeriesView

MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Largest size of all bodies that are kept between scrapes: a million series are 150 MB in plain text, and a tenth of
that compressed. A larger body is freed as soon as its last reader has finished."""
MAX_KEPT: Final = 64
"""Bodies that are kept; a site with more shards encodes some of them again for each scrape."""
SENT_BYTES: Final = 256 * 1024
"""Size of one write: the memory that a slow reader's connection holds beside the shared body."""


class VersionedSnapshots(SnapshotSource, Protocol):
    """A store with a version, so that a cached page is known to be valid: `SeriesStore`."""

    @property
    def version(self) -> int:
        """Rises with every change of the exposed series."""


@dataclass(frozen=True, slots=True)
class BodyKey:
    """Key of a body; equal requests share one body."""

    format: Format
    coding: Coding
    view: SeriesView


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Body:
    """The series of one page, encoded; never changed, so any thread may send it.

    Attributes:
        version: The store's version.
        snapshot_seconds: When the snapshot was taken, by the clock of `Bodies`.
        compressor: Compression of the page, which also ends it.
        pieces: The encoded bytes.
        length: Number of bytes.
    """

    version: int
    snapshot_seconds: float
    compressor: PageCompressor
    pieces: tuple[Piece, ...]
    length: int

    async def slices(self, end: Piece) -> AsyncIterator[Piece]:
        """Yield the body, then the end of its page, in slices that are not copied."""
        for piece in (*self.pieces, end):
            view = memoryview(piece)
            for begin in range(0, len(view), SENT_BYTES):
                yield view[begin : begin + SENT_BYTES]


def empty_body(coding: Coding) -> Body:
    """A page without series."""
    compressor = PageCompressor(coding)
    pieces = _non_empty(compressor.pieces(()))
    return Body(-1, 0.0, compressor, pieces, sum(len(piece) for piece in pieces))


@dataclass(slots=True)
class Bodies:
    """Encodes bodies, one at a time, and caches them. Any thread may use it; a lock separates the encodings.

    `_kept` has the bodies that stay between scrapes, by last use, and `_in_use` those that a response still sends.

    Attributes:
        source: The store of the series.
        observe: Called with the duration in seconds and the bytes of every encoding.
        created: Whether OpenMetrics has `_created` lines.
        clock: Seconds.
    """

    source: VersionedSnapshots
    observe: Callable[[float, int], None]
    created: bool = False
    clock: Callable[[], float] = time.perf_counter
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[BodyKey, Body] = field(default_factory=dict)
    _in_use: WeakValueDictionary[BodyKey, Body] = field(default_factory=WeakValueDictionary)

    def body(self, request: BodyKey) -> Body:
        """Return a cached body that is still valid, or was started after the request; else a new one."""
        requested_seconds = self.clock()
        with self._lock:
            known = self._in_use.get(request)
            if known is not None and (
                known.version == self.source.version or known.snapshot_seconds > requested_seconds
            ):
                return known
            body = self._encode(request)
            self._in_use[request] = body
            self._keep(request, body)
            return body

    def _encode(self, request: BodyKey) -> Body:
        began = self.clock()
        snapshot = self.source.snapshot(request.view)
        compressor = PageCompressor(request.coding)
        pieces = _non_empty(compressor.pieces(encode(snapshot, request.format, created=self.created)))
        body = Body(snapshot.version, began, compressor, pieces, sum(len(piece) for piece in pieces))
        self.observe(self.clock() - began, body.length)
        return body

    def _keep(self, request: BodyKey, body: Body) -> None:
        self._kept.pop(request, None)
        for other in [other for other, kept in self._kept.items() if kept.version != body.version]:
            del self._kept[other]
        self._kept[request] = body
        length = sum(kept.length for kept in self._kept.values())
        while length > MAX_KEPT_BYTES or len(self._kept) > MAX_KEPT:
            length -= self._kept.pop(next(iter(self._kept))).length


def _non_empty(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    return tuple(piece for piece in pieces if len(piece))
