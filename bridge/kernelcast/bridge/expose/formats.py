"""Encodes a snapshot in one of the three formats, in pieces, for `Bodies`; other threads can run between two pieces."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from kernelcast.bridge.expose import protobuf
from kernelcast.bridge.expose.compress import Piece
from kernelcast.bridge.expose.negotiate import Format
from kernelcast.bridge.expose.render import render
from kernelcast.bridge.layouts import exemplars
from kernelcast.bridge.layouts.headers import SPLIT_HISTOGRAM_KIND, split_histogram
from kernelcast.bridge.layouts.layout import StoreSnapshot
from kernelcast.bridge.layouts.page import NO_EXEMPLARS, EncodedExemplars, PackedTexts, PageLayout, PageValues

SERIES_PER_CHUNK: Final = 32_768
"""Series per piece. Other threads can run between pieces: `render` formats floats with orjson, which holds the GIL for
about 2 ms a piece."""


def encode(snapshot: StoreSnapshot, format: Format, *, created: bool = False) -> Iterator[Piece]:  # noqa: A002  its name
    """Yield the encoded series of a snapshot, in pieces; OpenMetrics lacks the final `# EOF`.

    Args:
        snapshot: The series.
        format: The format in which they are encoded.
        created: Whether OpenMetrics has `_created` lines. Protobuf always has start times, text never has them.
    """
    if format is Format.PROTOBUF:
        return protobuf_pieces(snapshot)
    return text(snapshot) if format is Format.TEXT else openmetrics(snapshot, created=created)


def text(snapshot: StoreSnapshot) -> Iterator[memoryview]:
    """Encode in text 0.0.4, which has no exemplars; bounds are written as exporters in Go write them (`le="5"`)."""
    page, values = snapshot.layout.text, snapshot.values._replace(bound_texts=PackedTexts.of(snapshot.plain_bounds))
    return _lines(page, values, NO_EXEMPLARS, 0, int(page.starts[-1]))


def openmetrics(snapshot: StoreSnapshot, *, created: bool = False) -> Iterator[Piece]:
    """Encode in OpenMetrics 1.0, without the final `# EOF`.

    A counter below 0, or a histogram without a sum, is written although OpenMetrics does not allow it: Prometheus
    accepts it, and its series must not depend on the negotiated format.

    A histogram `x` is split if another family has the name `x_created`: it is written as three families, its buckets,
    sums and counts. All its lines are collected for this, so its pieces may have more than SERIES_PER_CHUNK series.
    """
    layout = snapshot.layout
    page = layout.openmetrics_created if created else layout.openmetrics
    encoded = exemplars.encode_all(page, snapshot.values, snapshot.exemplars(), exemplars.openmetrics)
    begin = 0
    for i in np.flatnonzero(page.kinds == SPLIT_HISTOGRAM_KIND).tolist():
        first, last = int(page.starts[i]), int(page.starts[i + 1])
        yield from _lines(page, snapshot.values, encoded, begin, first)
        yield from split_histogram(layout.families[i], b"".join(_lines(page, snapshot.values, encoded, first, last)))
        begin = last
    yield from _lines(page, snapshot.values, encoded, begin, int(page.starts[-1]))


def protobuf_pieces(snapshot: StoreSnapshot) -> Iterator[Piece]:
    """Encode in protobuf."""
    page = snapshot.layout.protobuf
    encoded = exemplars.encode_all(page, snapshot.values, snapshot.exemplars(), exemplars.protobuf)
    return protobuf.encode(page, snapshot.values, encoded, SERIES_PER_CHUNK)


def _lines(
    page: PageLayout, values: PageValues, encoded: EncodedExemplars, begin: int, end: int
) -> Iterator[memoryview]:
    """Yield the lines of the series from index `begin` up to `end`, in pieces."""
    for first in range(begin, end, SERIES_PER_CHUNK):
        yield render(page, values, encoded, first, min(first + SERIES_PER_CHUNK, end))
