"""A snapshot in each format, in pieces that leave other threads room between them."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from kernelcast.bridge.expose import protobuf
from kernelcast.bridge.expose.compress import Piece
from kernelcast.bridge.expose.negotiate import Format
from kernelcast.bridge.expose.render import render
from kernelcast.bridge.pages import exemplars
from kernelcast.bridge.pages.headers import SPLIT_HISTOGRAM_KIND, split_histogram
from kernelcast.bridge.pages.layout import StoreSnapshot
from kernelcast.bridge.pages.page import NO_MARKS, Marks, PackedTexts, PageLayout, PageValues

SERIES_PER_CHUNK: Final = 32_768
"""Between chunks, other threads get the interpreter; orjson holds it for about 2 ms a chunk."""


def encode(snapshot: StoreSnapshot, format: Format, *, created: bool = False) -> Iterator[Piece]:  # noqa: A002  its name
    """The series of a snapshot.

    Args:
        snapshot: The series.
        format: How to write them.
        created: Whether OpenMetrics has `_created` lines; protobuf always says since when, and text never does.
    """
    if format is Format.PROTOBUF:
        return protobuf_pieces(snapshot)
    return text(snapshot) if format is Format.TEXT else openmetrics(snapshot, created=created)


def text(snapshot: StoreSnapshot) -> Iterator[memoryview]:
    """In text 0.0.4, which has no exemplars."""
    page, values = snapshot.layout.text, snapshot.values._replace(bound_texts=PackedTexts.of(snapshot.plain_bounds))
    return _lines(page, values, NO_MARKS, 0, int(page.starts[-1]))


def openmetrics(snapshot: StoreSnapshot, *, created: bool = False) -> Iterator[Piece]:
    """In OpenMetrics 1.0, up to its `# EOF`.

    A counter below 0, or a histogram without a sum, is shown though OpenMetrics has no place for it: Prometheus takes
    it, and its series must not depend on the format that a scrape agreed on.
    """
    layout = snapshot.layout
    page = layout.openmetrics_created if created else layout.openmetrics
    marks = exemplars.marks(page, snapshot.values, snapshot.exemplars(), exemplars.openmetrics)
    begin = 0
    for i in np.flatnonzero(page.kinds == SPLIT_HISTOGRAM_KIND).tolist():
        first, last = int(page.starts[i]), int(page.starts[i + 1])
        yield from _lines(page, snapshot.values, marks, begin, first)
        yield from split_histogram(layout.families[i], b"".join(_lines(page, snapshot.values, marks, first, last)))
        begin = last
    yield from _lines(page, snapshot.values, marks, begin, int(page.starts[-1]))


def protobuf_pieces(snapshot: StoreSnapshot) -> Iterator[Piece]:
    """In protobuf."""
    page = snapshot.layout.protobuf
    marks = exemplars.marks(page, snapshot.values, snapshot.exemplars(), exemplars.protobuf)
    return protobuf.encode(page, snapshot.values, marks, SERIES_PER_CHUNK)


def _lines(page: PageLayout, values: PageValues, marks: Marks, begin: int, end: int) -> Iterator[memoryview]:
    """The lines of the series from begin to end."""
    for first in range(begin, end, SERIES_PER_CHUNK):
        yield render(page, values, marks, first, min(first + SERIES_PER_CHUNK, end))
