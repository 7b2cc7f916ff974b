"""Writes the lines of Prometheus' text format and of OpenMetrics in compiled functions, for each chunk of a scrape.

A chunk is made in three steps. `_measure` bounds its size and collects the floats that need orjson, which turns all of
them into text in one call: the shortest text that reads back as the same double. `_write` then copies names and labels,
writes integers, and takes the floats' texts in the order in which `_measure` collected them.

orjson writes NaN and infinities as `null`, for which Prometheus would reject the whole target's page; `needs_orjson`
keeps them from it. `formats` calls `render`, on several threads at once: only the output changes.
"""

from typing import Final, NamedTuple

import numpy as np
import orjson

from kernelcast.bridge.expose.numerals import needs_orjson, write_float, write_integer, write_seconds
from kernelcast.bridge.layouts.page import EncodedExemplars, PageLayout, PageValues
from kernelcast.bridge.tables.columns import (
    EXPONENTIAL,
    HAS_SUM,
    INTEGER,
    NOT_A_HISTOGRAM,
    FloatArray,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from kernelcast.bridge.tables.exponential import CLASSIC_BOUNDS, classic_bucket_counts
from kernelcast.columnar.compiled import copy_bytes, inlined, kernel, prefetch

LINE_BYTES: Final = 26 + 16
"""Bound of the size of a line without name, labels and bucket bound: 26 for the number, 16 for the suffix (at most 7),
braces, comma, space and newline."""

PREFETCH_DISTANCE: Final = 12
"""Number of series ahead of the one being written whose labels are prefetched. The labels of a family are scattered
over the arena, because producers send the series of all families interleaved."""
CACHE_LINE: Final = 64
FIRST_TOKEN: Final = 1
"""Index of the first float in the JSON array that orjson writes, behind its bracket."""

BRACE_OPEN: Final = 0x7B
BRACE_CLOSE: Final = 0x7D
COMMA: Final = 0x2C
SPACE: Final = 0x20
NEWLINE: Final = 0x0A


BUCKET_SUFFIX: Final = np.frombuffer(b"_bucket", np.uint8)
SUM_SUFFIX: Final = np.frombuffer(b"_sum", np.uint8)
COUNT_SUFFIX: Final = np.frombuffer(b"_count", np.uint8)
INFINITE_BOUND: Final = np.frombuffer(b'le="+Inf"} ', np.uint8)
"""A bound's text, like those in `PageValues.bound_texts`, closes the braces and ends in the space before the value."""
NO_SUFFIX: Final = np.zeros(0, np.uint8)


def render(page: PageLayout, values: PageValues, exemplars: EncodedExemplars, begin: int, end: int) -> memoryview:
    """Lines of the series at positions `begin` up to `end`, with the headers of the families that start there.

    Args:
        page: Headers, names and labels.
        values: The values of all series of the page.
        exemplars: The exemplars of all series of the page.
        begin: Position of the first series.
        end: Position after the last series.
    """
    floats: FloatArray = np.empty(end - begin, np.float64)
    used, max_bytes = _measure(page, values, begin, end, floats)
    tokens = orjson.dumps(floats[:used], option=orjson.OPT_SERIALIZE_NUMPY)
    counts = classic_bucket_counts(values.schema, values.block, values.buckets, begin, end)
    first, last = np.searchsorted(exemplars.position, [begin, end]).tolist()
    offsets = exemplars.encoded.indptr
    out: UInt8Array = np.empty(max_bytes + int(offsets[last] - offsets[first]), np.uint8)
    derived = (np.frombuffer(tokens, np.uint8), counts)
    written = _write(page, values, exemplars, (begin, end, first, last), derived, out)
    return out[:written].data


@kernel
def _measure(page: PageLayout, values: PageValues, begin: int, end: int, floats: FloatArray) -> tuple[int, int]:
    """Collect the floats that orjson must write.

    A family has at least one series, and `page.starts` ends with the number of all series.

    Returns:
        The number of floats, and a bound of the bytes of the lines without exemplars.
    """
    starts, header_ends, name_ends, lengths = page.starts, page.headers.indptr, page.names.indptr, page.label_length
    created_ends = page.created.indptr
    value, schemas, flags = values.value, values.schema, values.flags
    indptr, bound_ends = values.indptr, values.bound_texts.indptr
    used = 0
    max_bytes = 0
    family = np.searchsorted(starts, begin, side="right") - 1
    for i in range(begin, end):
        if starts[family + 1] == i:
            family += 1
        if starts[family] == i:
            max_bytes += header_ends[family + 1] - header_ends[family]
        schema = schemas[i]
        line = name_ends[family + 1] - name_ends[family] + lengths[i] + LINE_BYTES
        if created_ends[family + 1] > created_ends[family]:
            max_bytes += created_ends[family + 1] - created_ends[family] + lengths[i] + LINE_BYTES
        if schema == NOT_A_HISTOGRAM:
            max_bytes += line
            has_float = (flags[i] & INTEGER) == 0
        else:
            first, last = indptr[schema], indptr[schema + 1]
            # A line for each bound, for +Inf, sum and count.
            max_bytes += line * (last - first + 3) + bound_ends[last] - bound_ends[first] + len(INFINITE_BOUND)
            has_float = (flags[i] & HAS_SUM) != 0  # a histogram's value is its sum
        if has_float and needs_orjson(value[i]):
            floats[used] = value[i]
            used += 1
    return used, max_bytes


class _Line(NamedTuple):
    """Name and labels, which every line of a series repeats.

    Attributes:
        names: Bytes of all names.
        name_start, name_stop: The family's name among them.
        arena: Bytes of all labels, without braces.
        label_start, label_stop: The series' labels among them.
    """

    names: UInt8Array
    name_start: int
    name_stop: int
    arena: UInt8Array
    label_start: int
    label_stop: int


class _Sample(NamedTuple):
    """One series' value.

    Attributes:
        position: Index of the series in the arrays of `PageLayout` and `PageValues`.
        value: The number, if `flags` has no INTEGER; a histogram's sum.
        integer: The number, if `flags` has INTEGER; a histogram's count.
        flags: INTEGER and HAS_SUM.
        schema: NOT_A_HISTOGRAM, EXPONENTIAL, or the index of its list of bounds.
    """

    position: int
    value: float
    integer: int
    flags: int
    schema: int


class _Exemplars(NamedTuple):
    """The arrays of `EncodedExemplars`, of which this chunk writes the exemplars before `stop`."""

    position: Int64Array
    bucket: Int32Array
    encoded: UInt8Array
    ends: Int64Array
    stop: int


@inlined
def _line_of(page: PageLayout, family: int, i: int) -> _Line:
    start, stop = page.names.indptr[family], page.names.indptr[family + 1]
    label = page.label_offset[i]
    return _Line(page.names.data, start, stop, page.arena, label, label + page.label_length[i])


@inlined
def _sample_of(values: PageValues, i: int) -> _Sample:
    return _Sample(i, values.value[i], values.integer[i], values.flags[i], values.schema[i])


@inlined
def _begin_line(out: UInt8Array, at: int, line: _Line, suffix: UInt8Array, bounded: bool) -> int:  # noqa: FBT001  a compiled function takes no keywords
    """Write a line up to its value; with `bounded`, up to the bucket's bound, whose text closes the braces.

    Args:
        out: The output buffer.
        at: The position in it.
        line: Name and labels.
        suffix: The bytes that follow the name.
        bounded: Whether a bound follows.
    """
    at = copy_bytes(out, at, line.names, line.name_start, line.name_stop)
    at = copy_bytes(out, at, suffix, 0, len(suffix))
    labelled = line.label_stop > line.label_start
    if labelled or bounded:
        out[at] = BRACE_OPEN
        at = copy_bytes(out, at + 1, line.arena, line.label_start, line.label_stop)
    if bounded:
        if labelled:
            out[at] = COMMA
            at += 1
        return at
    if labelled:
        out[at] = BRACE_CLOSE
        at += 1
    out[at] = SPACE
    return at + 1


@inlined
def _end_line(out: UInt8Array, at: int) -> int:
    out[at] = NEWLINE
    return at + 1


@inlined
def _end_sample(
    out: UInt8Array, at: int, exemplars: _Exemplars, exemplar: int, series: int, bucket: int
) -> tuple[int, int]:
    """End a line, after the next exemplar if that belongs to this sample.

    Returns:
        The position after the line, and the index of the exemplar to write next.
    """
    if exemplar < exemplars.stop and exemplars.position[exemplar] == series and exemplars.bucket[exemplar] == bucket:
        at = copy_bytes(out, at, exemplars.encoded, exemplars.ends[exemplar], exemplars.ends[exemplar + 1])
        exemplar += 1
    return _end_line(out, at), exemplar


@inlined
def _write_number(
    out: UInt8Array, at: int, line: _Line, sample: _Sample, tokens: UInt8Array, cursor: int
) -> tuple[int, int]:
    """Write the line of a series with one value, without its end.

    Returns:
        The position after it, and the index of the next float in `tokens`.
    """
    at = _begin_line(out, at, line, NO_SUFFIX, False)
    if sample.flags & INTEGER:
        return write_integer(out, at, sample.integer), cursor
    return write_float(out, at, sample.value, tokens, cursor)


@inlined
def _write_buckets(  # noqa: PLR0913, PLR0917  compiled functions share no object
    out: UInt8Array,
    at: int,
    line: _Line,
    sample: _Sample,
    values: PageValues,
    counts: tuple[Int64Array, int],
    exemplars: _Exemplars,
    exemplar: int,
) -> tuple[int, int]:
    """Write the buckets of a histogram.

    Args:
        out: The output buffer.
        at: The position in it.
        line: Name and labels.
        sample: The histogram.
        values: The bounds' texts.
        counts: Cumulative counts, and the index of the histogram's first one.
        exemplars: The exemplars.
        exemplar: Index of the exemplar to write next.

    Returns:
        The position after the buckets, and the index of the exemplar to write next.
    """
    cumulative, first_count = counts
    ends = values.bound_texts.indptr
    first, last = values.indptr[sample.schema], values.indptr[sample.schema + 1]
    for bound in range(first, last):
        at = _begin_line(out, at, line, BUCKET_SUFFIX, True)
        at = copy_bytes(out, at, values.bound_texts.data, ends[bound], ends[bound + 1])
        at = write_integer(out, at, cumulative[first_count + bound - first])
        at, exemplar = _end_sample(out, at, exemplars, exemplar, sample.position, bound - first)
    at = _begin_line(out, at, line, BUCKET_SUFFIX, True)
    at = copy_bytes(out, at, INFINITE_BOUND, 0, len(INFINITE_BOUND))
    at = write_integer(out, at, sample.integer)
    return _end_sample(out, at, exemplars, exemplar, sample.position, last - first)


@inlined
def _write_sum_and_count(
    out: UInt8Array, at: int, line: _Line, sample: _Sample, tokens: UInt8Array, cursor: int
) -> tuple[int, int]:
    """Write the sum of a histogram, if it has one, and its count.

    Returns:
        The position after them, and the index of the next float in `tokens`.
    """
    if sample.flags & HAS_SUM:
        at = _begin_line(out, at, line, SUM_SUFFIX, False)
        at, cursor = write_float(out, at, sample.value, tokens, cursor)
        at = _end_line(out, at)
    at = _begin_line(out, at, line, COUNT_SUFFIX, False)
    return _end_line(out, write_integer(out, at, sample.integer)), cursor


@inlined
def _write_start_time(out: UInt8Array, at: int, page: PageLayout, family: int, line: _Line, start_ns: int) -> int:
    """Write the line `NAME_created` of a series, if its family has such lines and the start time is known."""
    first, last = page.created.indptr[family], page.created.indptr[family + 1]
    if first == last or start_ns <= 0:
        return at
    created = _Line(page.created.data, first, last, line.arena, line.label_start, line.label_stop)
    return _end_line(out, write_seconds(out, _begin_line(out, at, created, NO_SUFFIX, False), start_ns))


@inlined
def _prefetch_labels(page: PageLayout, i: int) -> None:
    for offset in range(page.label_offset[i], page.label_offset[i] + page.label_length[i], CACHE_LINE):
        prefetch(page.arena, offset)


@kernel
def _write(
    page: PageLayout,
    values: PageValues,
    source: EncodedExemplars,
    span: tuple[int, int, int, int],
    derived: tuple[UInt8Array, Int64Array],
    out: UInt8Array,
) -> int:
    """Write the lines; returns their number of bytes.

    Args:
        page: Headers, names and labels.
        values: The values.
        source: Their exemplars.
        span: Begin and end of the series, begin and end of the exemplars.
        derived: In the order of the lines, the texts of floats and the cumulative counts of exponential histograms.
        out: The output buffer.
    """
    begin, end, exemplar, exemplar_stop = span
    tokens, exponential_counts = derived
    exemplars = _Exemplars(source.position, source.bucket, source.encoded.data, source.encoded.indptr, exemplar_stop)
    at, first_count, cursor = 0, 0, FIRST_TOKEN
    family = int(np.searchsorted(page.starts, begin, side="right")) - 1
    for i in range(begin, end):
        _prefetch_labels(page, min(i + PREFETCH_DISTANCE, end - 1))
        if page.starts[family + 1] == i:
            family += 1
        if page.starts[family] == i:
            at = copy_bytes(out, at, page.headers.data, page.headers.indptr[family], page.headers.indptr[family + 1])
        line, sample = _line_of(page, family, i), _sample_of(values, i)
        if sample.schema == NOT_A_HISTOGRAM:
            at, cursor = _write_number(out, at, line, sample, tokens, cursor)
            at, exemplar = _end_sample(out, at, exemplars, exemplar, i, 0)
        else:
            if sample.schema == EXPONENTIAL:
                counts = (exponential_counts, first_count)
                first_count += CLASSIC_BOUNDS
            else:
                counts = (values.buckets, values.block[i])
            at, exemplar = _write_buckets(out, at, line, sample, values, counts, exemplars, exemplar)
            at, cursor = _write_sum_and_count(out, at, line, sample, tokens, cursor)
        at = _write_start_time(out, at, page, family, line, values.start_ns[i])
    return at
