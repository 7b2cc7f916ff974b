"""Writes a page in protobuf for `formats`: io.prometheus.client.MetricFamily messages, each with its length before it.

Exponential histograms become native ones, exactly; their classic buckets are written as well, for a Prometheus that
accepts protobuf but no native histograms.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from kernelcast.bridge.expose.protobuf_metrics import max_bytes, write_metrics
from kernelcast.bridge.layouts.page import EncodedExemplars, PageLayout, PageValues
from kernelcast.bridge.tables.columns import HAS_SUM, INTEGER, NOT_A_HISTOGRAM, Int64Array, UInt8Array
from kernelcast.bridge.tables.exponential import classic_bucket_counts
from kernelcast.columnar.encoding.fields import varint

SMALL_BYTES: Final = 64 * 1024
"""Pieces below this size are joined, because each piece of a response costs a system call."""
LARGE_BYTES: Final = 1024 * 1024
"""Small pieces are joined until they have this many bytes."""


def encode(
    page: PageLayout, values: PageValues, exemplars: EncodedExemplars, series_per_chunk: int
) -> Iterator[bytes | memoryview]:
    """Yield all series, in pieces.

    A family's length stands before it, so the pieces of one that does not fit into a chunk come when all are written.
    """
    small: list[bytes | memoryview] = []
    waiting = 0
    for piece in _pieces(page, values, exemplars, series_per_chunk):
        if len(piece) < SMALL_BYTES and waiting < LARGE_BYTES:
            small.append(piece)
            waiting += len(piece)
            continue
        if small:
            yield b"".join(small)
            small.clear()
            waiting = 0
        yield piece
    if small:
        yield b"".join(small)


def _pieces(
    page: PageLayout, values: PageValues, exemplars: EncodedExemplars, series_per_chunk: int
) -> Iterator[bytes | memoryview]:
    headers, header_ends = page.headers.data, page.headers.indptr.tolist()
    starts = page.starts.tolist()
    total = starts[-1]
    pending: list[memoryview] = []
    for begin in range(0, total, series_per_chunk):
        end = min(begin + series_per_chunk, total)
        body, first, ends = _chunk(page, values, exemplars, begin, end)
        at = 0
        for family, stop in enumerate(ends, first):
            pending.append(body[at:stop])
            at = stop
            if starts[family + 1] <= end:
                header = headers[header_ends[family] : header_ends[family + 1]].tobytes()
                yield varint(len(header) + sum(len(piece) for piece in pending)) + header
                yield from pending
                pending.clear()


def _chunk(
    page: PageLayout, values: PageValues, exemplars: EncodedExemplars, begin: int, end: int
) -> tuple[memoryview, int, list[int]]:
    """Encode the series from begin to end; returns the bytes, the first family, and the end of each family's bytes."""
    first_family, last_family = (np.searchsorted(page.starts, [begin, end - 1], side="right") - 1).tolist()
    first_exemplar, last_exemplar = np.searchsorted(exemplars.position, [begin, end]).tolist()
    exemplar_ends = exemplars.encoded.indptr
    flags = values.flags[begin:end]
    histogram = values.schema[begin:end] != NOT_A_HISTOGRAM
    whole = (flags & INTEGER != 0) & ~histogram
    numbers = np.where(whole, values.integer[begin:end].astype(np.float64), values.value[begin:end])
    # Absent cannot be said here, and 0 would be a wrong sum.
    numbers[histogram & (flags & HAS_SUM == 0)] = np.nan
    counts = classic_bucket_counts(values.schema, values.block, values.buckets, begin, end)
    most = max_bytes(page, values, begin, end) + 2 * int(exemplar_ends[last_exemplar] - exemplar_ends[first_exemplar])
    out: UInt8Array = np.empty(most, np.uint8)
    ends: Int64Array = np.zeros(last_family - first_family + 1, np.int64)
    derived = (numbers.view(np.uint8), counts, values.buckets.view(np.uint8), values.bounds.view(np.uint8))
    write_metrics(
        page, values, exemplars, (begin, end, first_family, first_exemplar, last_exemplar), derived, (out, ends)
    )
    return out[: ends[-1]].data, first_family, ends.tolist()
