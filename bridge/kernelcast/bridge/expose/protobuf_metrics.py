"""Compiled functions that write series as io.prometheus.client.Metric messages, for `protobuf`.

OTLP's bucket i of scale s covers (base**i, base**(i + 1)], which is Prometheus' bucket i + 1 of schema s. Schemas below
-4 do not exist in Prometheus: such a histogram has its classic buckets alone.

All functions write to `out` from index `at` on and return the index after the last byte; `max_bytes` has bounded the
size before. No function allocates, and only `out` changes.

Sources: prometheus/client_model, io/prometheus/client/metrics.proto; opentelemetry-specification,
compatibility/prometheus_and_openmetrics.md, section "Exponential Histograms".
"""

from typing import Final

import numpy as np

from kernelcast.bridge.expose.protobuf_wire import close_message, varint_bytes, write_length, write_varint, zigzag
from kernelcast.bridge.layouts import protobuf_fields as tag
from kernelcast.bridge.layouts.headers import COUNTER_KIND, UNTYPED_KIND
from kernelcast.bridge.layouts.page import EncodedExemplars, PageLayout, PageValues
from kernelcast.bridge.tables.columns import EXPONENTIAL, NOT_A_HISTOGRAM, Int32Array, Int64Array, UInt8Array
from kernelcast.bridge.tables.exponential import (
    CLASSIC_BOUNDS,
    HEADER_WORDS,
    NEGATIVE_LENGTH_WORD,
    NEGATIVE_OFFSET_WORD,
    POSITIVE_LENGTH_WORD,
    POSITIVE_OFFSET_WORD,
    SCALE_WORD,
    ZERO_COUNT_WORD,
    ZERO_THRESHOLD_WORD,
)
from kernelcast.columnar.compiled import copy_bytes, find_byte, inlined, kernel, prefetch
from kernelcast.wire.histogram import SMALLEST_ZERO_WIDTH

PREFETCH_DISTANCE: Final = 12
"""Number of series ahead of the written one whose labels are prefetched: labels of a family lie far apart in memory."""
CACHE_LINE: Final = 64
"""Bytes of a cache line: the step of a prefetch."""
SERIES_BYTES: Final = 96
"""Largest size of a series without labels, buckets and exemplars: tags, lengths, count, sum, start, zero bucket."""
BUCKET_BYTES: Final = 24
"""A classic bucket at most: tags, length, count, bound."""
NATIVE_BUCKET_BYTES: Final = 32
"""A native bucket at most: its count, and a span of its own."""

LOWEST_SCHEMA: Final = -4
"""The coarsest schema of native histograms in Prometheus."""
MAX_GAP: Final = 2
"""Gaps up to this many empty buckets are written out: another span takes more bytes. As in client_golang."""
SMALLEST_THRESHOLD: Final = np.frombuffer(np.float64(SMALLEST_ZERO_WIDTH).tobytes(), np.uint8)
INFINITE_BITS: Final = 0x7FF0000000000000
"""Bits of a positive infinite double: as integers, all finite positive doubles are smaller."""
INFINITE: Final = np.frombuffer(np.float64(np.inf).tobytes(), np.uint8)

QUOTE: Final = 0x22
EQUALS: Final = 0x3D
BACKSLASH: Final = 0x5C
NEWLINE: Final = 0x0A
LETTER_N: Final = 0x6E

NANOSECONDS_PER_SECOND: Final = 1_000_000_000
ExemplarArrays = tuple[Int64Array, Int32Array, UInt8Array, Int64Array]
"""The columns of `EncodedExemplars`."""


@kernel
def max_bytes(page: PageLayout, values: PageValues, begin: int, end: int) -> int:
    """Return a bound of the bytes of the series from begin to end."""
    lengths, schemas = page.label_length, values.schema
    blocks, words, indptr = values.block, values.buckets, values.indptr
    most = SERIES_BYTES
    for i in range(begin, end):
        # A label takes 4 or 5 bytes beside name and value in text, and at most 9 here.
        most += SERIES_BYTES + 2 * lengths[i] + 2
        schema = schemas[i]
        if schema != NOT_A_HISTOGRAM:
            most += (indptr[schema + 1] - indptr[schema] + 1) * BUCKET_BYTES
        if schema == EXPONENTIAL:
            buckets = words[blocks[i] + POSITIVE_LENGTH_WORD] + words[blocks[i] + NEGATIVE_LENGTH_WORD]
            most += buckets * NATIVE_BUCKET_BYTES
    return most


@inlined
def _value_end(arena: UInt8Array, start: int, stop: int) -> tuple[int, int]:
    """Return the index of the quote that closes a label's value, and the number of escapes before it."""
    escapes = 0
    j = start
    while j < stop and arena[j] != QUOTE:
        if arena[j] == BACKSLASH:
            escapes += 1
            j += 1
        j += 1
    return j, escapes


@inlined
def _write_labels(out: UInt8Array, at: int, arena: UInt8Array, start: int, stop: int) -> int:
    """Write `LabelPair` messages, from the labels' text: `a="b",c="d"`."""
    # Example: `gpu="0"` becomes [0A 08] [0A 03] gpu [12 01] 0: a label of 8 bytes, its name of 3 and its value of 1.
    plain = find_byte(arena, start, stop, BACKSLASH) == stop
    name = start
    while name < stop:
        name_end = find_byte(arena, name, stop, EQUALS)
        value = min(name_end + 2, stop)
        if plain:
            value_end, escapes = find_byte(arena, value, stop, QUOTE), 0
        else:
            value_end, escapes = _value_end(arena, value, stop)
        name_bytes, value_bytes = name_end - name, value_end - value - escapes
        out[at] = tag.METRIC_LABEL
        length = 2 + varint_bytes(name_bytes) + name_bytes + varint_bytes(value_bytes) + value_bytes
        at = write_length(out, at + 1, length)
        out[at] = tag.LABEL_NAME
        at = write_length(out, at + 1, name_bytes)
        at = copy_bytes(out, at, arena, name, name_end)
        out[at] = tag.LABEL_VALUE
        at = write_length(out, at + 1, value_bytes)
        at = (
            _write_unescaped(out, at, arena, value, value_end)
            if escapes
            else copy_bytes(out, at, arena, value, value_end)
        )
        name = value_end + 2
    return at


@inlined
def _write_unescaped(out: UInt8Array, at: int, arena: UInt8Array, start: int, stop: int) -> int:
    # In a label's text, backslash and n are a line feed; after a backslash, a backslash or quote is itself.
    j = start
    while j < stop:
        byte = arena[j]
        if byte == BACKSLASH:
            j += 1
            byte = NEWLINE if arena[j] == LETTER_N else arena[j]
        out[at] = byte
        at += 1
        j += 1
    return at


@inlined
def _write_time(out: UInt8Array, at: int, number: int, time_ns: int) -> int:
    """Write a google.protobuf.Timestamp under a tag; it has less than 128 bytes, so its length takes one."""
    out[at] = number
    begin = at + 1
    out[at + 2] = tag.TIME_SECONDS
    at = write_varint(out, at + 3, np.uint64(time_ns // NANOSECONDS_PER_SECOND))
    out[at] = tag.TIME_NANOSECONDS
    at = write_varint(out, at + 1, np.uint64(time_ns % NANOSECONDS_PER_SECOND))
    out[begin] = at - begin - 1
    return at


@inlined
def _write_exemplar(  # noqa: PLR0913, PLR0917  compiled functions share no object
    out: UInt8Array,
    at: int,
    number: int,
    exemplars: ExemplarArrays,
    exemplar: int,
    series: int,
    bucket: int,
) -> tuple[int, int]:
    """Write the next exemplar if it is of this series and bucket; returns the index after it, and the next exemplar."""
    positions, buckets, encoded, ends = exemplars
    if positions[exemplar] == series and buckets[exemplar] == bucket:
        out[at] = number
        return copy_bytes(out, at + 1, encoded, ends[exemplar], ends[exemplar + 1]), exemplar + 1
    return at, exemplar


@inlined
def _write_native_exemplars(out: UInt8Array, at: int, exemplars: ExemplarArrays, first: int, last: int) -> int:
    encoded, ends = exemplars[2], exemplars[3]
    for exemplar in range(first, last):
        out[at] = tag.HISTOGRAM_EXEMPLAR
        out[at + 1] = tag.HISTOGRAM_EXEMPLAR_HIGH
        at = copy_bytes(out, at + 2, encoded, ends[exemplar], ends[exemplar + 1])
    return at


@inlined
def _span_end(words: Int64Array, start: int, begin: int, length: int) -> int:
    """Return the end of the span that begins with the non-empty bucket `begin`: before a gap of more than MAX_GAP."""
    end = begin + 1
    j = end
    while j < length and j - end <= MAX_GAP:
        if words[start + j] != 0:
            end = j + 1
        j += 1
    return end


@inlined
def _write_native_buckets(
    out: UInt8Array, at: int, words: Int64Array, start: int, offset_and_length: tuple[int, int], tags: tuple[int, int]
) -> int:
    """Write one side of a native histogram: spans of buckets, then the difference of each count to the one before."""
    # Example: offset 4, counts 3, 5, 0, 0, 0, 2. The gap of 3 is longer than MAX_GAP, so there are two spans:
    #   spans   (offset 5, length 2), (offset 3, length 1)    the first offset is absolute, plus 1 as in Prometheus;
    #                                                         the next ones count the empty buckets in between
    #   deltas  +3, +2, -3                                    3, 5, 2
    # `reached` is the bucket after the last span, in Prometheus' numbering; `before` the last count.
    offset, length = offset_and_length
    spans = 0
    reached = 0
    j = 0
    while j < length:
        if words[start + j] == 0:
            j += 1
            continue
        end = _span_end(words, start, j, length)
        out[at] = tags[0]
        begin = at + 1
        out[at + 2] = tag.SPAN_OFFSET
        at = write_varint(out, at + 3, zigzag(offset + 1 + j - reached))
        out[at] = tag.SPAN_LENGTH
        at = write_varint(out, at + 1, np.uint64(end - j))
        out[begin] = at - begin - 1
        spans += 1
        reached = offset + 1 + end
        j = end
    if spans == 0:
        return at
    out[at] = tags[1]
    begin = at + 1
    at += 3
    before = 0
    j = 0
    while j < length:
        if words[start + j] == 0:
            j += 1
            continue
        end = _span_end(words, start, j, length)
        while j < end:
            at = write_varint(out, at, zigzag(words[start + j] - before))
            before = words[start + j]
            j += 1
    return close_message(out, begin, at)


@inlined
def _write_native(out: UInt8Array, at: int, words: Int64Array, word_bytes: UInt8Array, block: int) -> int:
    """Write the native part of an exponential histogram."""
    out[at] = tag.HISTOGRAM_SCHEMA
    at = write_varint(out, at + 1, zigzag(words[block + SCALE_WORD]))
    out[at] = tag.HISTOGRAM_ZERO_THRESHOLD
    if 0 < words[block + ZERO_THRESHOLD_WORD] < INFINITE_BITS:  # doubles above 0 are in the order of their bits
        threshold = 8 * (block + ZERO_THRESHOLD_WORD)
        at = copy_bytes(out, at + 1, word_bytes, threshold, threshold + 8)
    else:
        at = copy_bytes(out, at + 1, SMALLEST_THRESHOLD, 0, 8)
    out[at] = tag.HISTOGRAM_ZERO_COUNT
    at = write_varint(out, at + 1, np.uint64(words[block + ZERO_COUNT_WORD]))
    positive = (words[block + POSITIVE_OFFSET_WORD], words[block + POSITIVE_LENGTH_WORD])
    negative = (words[block + NEGATIVE_OFFSET_WORD], words[block + NEGATIVE_LENGTH_WORD])
    start = block + HEADER_WORDS
    tags = (tag.HISTOGRAM_NEGATIVE_SPAN, tag.HISTOGRAM_NEGATIVE_DELTA)
    at = _write_native_buckets(out, at, words, start + positive[1], negative, tags)
    return _write_native_buckets(
        out, at, words, start, positive, (tag.HISTOGRAM_POSITIVE_SPAN, tag.HISTOGRAM_POSITIVE_DELTA)
    )


@inlined
def _write_classic_buckets(  # noqa: PLR0913, PLR0917  compiled functions share no object
    out: UInt8Array,
    at: int,
    counts: tuple[Int64Array, int, int],
    bounds: tuple[UInt8Array, int, int],
    exemplars: ExemplarArrays,
    exemplar_and_stop: tuple[int, int],
    series: int,
) -> tuple[int, int]:
    """Write classic buckets.

    Args:
        out: The output.
        at: The index in it.
        counts: Cumulative counts, the index of the series' first one, and its total count.
        bounds: Bytes of all bounds; the series' first bound, and the one after its last.
        exemplars: The exemplars.
        exemplar_and_stop: Index of the exemplar to write next, and the one after the last.
        series: The series.
    """
    exemplar, exemplar_stop = exemplar_and_stop
    for bound in range(bounds[1], bounds[2] + 1):
        highest = bound == bounds[2]
        out[at] = tag.HISTOGRAM_BUCKET
        bucket = at + 1
        out[at + 3] = tag.BUCKET_COUNT
        count = counts[2] if highest else counts[0][counts[1] + bound - bounds[1]]
        at = write_varint(out, at + 4, np.uint64(count))
        out[at] = tag.BUCKET_BOUND
        if highest:
            at = copy_bytes(out, at + 1, INFINITE, 0, 8)
        else:
            at = copy_bytes(out, at + 1, bounds[0], 8 * bound, 8 * bound + 8)
        if exemplar < exemplar_stop:
            at, exemplar = _write_exemplar(out, at, tag.BUCKET_EXEMPLAR, exemplars, exemplar, series, bound - bounds[1])
        at = close_message(out, bucket, at)
    return at, exemplar


@kernel
def write_metrics(  # noqa: C901, PLR0915  one loop over all columns, each a local
    page: PageLayout,
    values: PageValues,
    source: EncodedExemplars,
    span: tuple[int, int, int, int, int],
    derived: tuple[UInt8Array, Int64Array, UInt8Array, UInt8Array],
    into: tuple[UInt8Array, Int64Array],
) -> None:
    """Write series as fields `metric` of their families.

    Args:
        page: Labels and kinds.
        values: The values.
        source: Their exemplars.
        span: First series, the one after the last, the first one's family; first exemplar, the one after the last.
        derived: The bytes of the values as doubles, the classic counts of exponential histograms, the bytes of the
            blocks and those of the bounds.
        into: Output: the bytes, and for each family the index after its last byte.
    """
    # A message's length stands before it, and is known only after it: two bytes are left free, and `close_message`
    # moves the message if its length takes one byte, or three. So a message begins at `at + 3`: tag, two bytes, body.
    starts, kinds, arena, offsets, lengths = page.starts, page.kinds, page.arena, page.label_offset, page.label_length
    integer, schemas, start_ns = values.integer, values.schema, values.start_ns
    blocks, words, indptr = values.block, values.buckets, values.indptr
    exemplars = (source.position, source.bucket, source.encoded.data, source.encoded.indptr)
    begin, end, family, exemplar, exemplar_stop = span
    first_family = family
    numbers, classic_counts, word_bytes, bound_bytes = derived
    out, ends = into
    at = 0
    first_count = 0
    for i in range(begin, end):
        ahead = min(i + PREFETCH_DISTANCE, end - 1)
        for line in range(offsets[ahead], offsets[ahead] + lengths[ahead], CACHE_LINE):
            prefetch(arena, line)
        if starts[family + 1] == i:
            ends[family - first_family] = at
            family += 1
        out[at] = tag.FAMILY_METRIC
        metric = at + 1
        at = _write_labels(out, at + 3, arena, offsets[i], offsets[i] + lengths[i])
        number = 8 * (i - begin)
        kind, schema = kinds[family], schemas[i]
        body = at + 1
        if schema == NOT_A_HISTOGRAM:
            counter = kind == COUNTER_KIND
            out[at] = (
                tag.METRIC_COUNTER if counter else tag.METRIC_UNTYPED if kind == UNTYPED_KIND else tag.METRIC_GAUGE
            )
            out[at + 3] = tag.SINGLE_VALUE
            at = copy_bytes(out, at + 4, numbers, number, number + 8)
            if counter:
                if exemplar < exemplar_stop:
                    at, exemplar = _write_exemplar(out, at, tag.COUNTER_EXEMPLAR, exemplars, exemplar, i, 0)
                if start_ns[i] > 0:
                    at = _write_time(out, at, tag.COUNTER_START, start_ns[i])
        else:
            out[at] = tag.METRIC_HISTOGRAM
            out[at + 3] = tag.HISTOGRAM_COUNT
            at = write_varint(out, at + 4, np.uint64(integer[i]))
            out[at] = tag.HISTOGRAM_SUM
            at = copy_bytes(out, at + 1, numbers, number, number + 8)
            if start_ns[i] > 0:
                at = _write_time(out, at, tag.HISTOGRAM_START, start_ns[i])
            exponential = schema == EXPONENTIAL
            counts, first = (classic_counts, first_count) if exponential else (words, blocks[i])
            bounds = (bound_bytes, indptr[schema], indptr[schema + 1])
            first_exemplar = exemplar
            at, exemplar = _write_classic_buckets(
                out, at, (counts, first, integer[i]), bounds, exemplars, (exemplar, exemplar_stop), i
            )
            if exponential:
                first_count += CLASSIC_BOUNDS
                if words[blocks[i] + SCALE_WORD] >= LOWEST_SCHEMA:
                    at = _write_native(out, at, words, word_bytes, blocks[i])
                    at = _write_native_exemplars(out, at, exemplars, first_exemplar, exemplar)
        at = close_message(out, metric, close_message(out, body, at))
    ends[family - first_family] = at
