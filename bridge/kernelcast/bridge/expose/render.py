"""The text formats, written by machine code: names and labels are copied, integers written, floats taken from orjson.

orjson writes the shortest text that reads back as the same double, for a whole array at once; NaN and infinities, which
it writes as `null` (one of which takes a whole target down), never reach it.
"""

from typing import Final, NamedTuple

import numpy as np
import orjson

from kernelcast.bridge.expose.numerals import needs_token, write_float, write_integer, write_seconds
from kernelcast.bridge.pages.page import Marks, PageLayout, PageValues
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
from kernelcast.bridge.tables.exponential import RUNGS, ladders
from kernelcast.columnar.compiled import copy_bytes, inlined, kernel, prefetch

LINE_BYTES: Final = 26 + 16
"""Largest size of a line without name, labels and bound: number, suffix, braces, comma, newline."""

PREFETCH_DISTANCE: Final = 12
"""Number of series ahead of the one being written whose labels are prefetched. The labels of a family are scattered
over the arena, because producers send the series of all families interleaved."""
CACHE_LINE: Final = 64

BRACE_OPEN: Final = 0x7B
BRACE_CLOSE: Final = 0x7D
COMMA: Final = 0x2C
SPACE: Final = 0x20
NEWLINE: Final = 0x0A


BUCKET: Final = np.frombuffer(b"_bucket", np.uint8)
SUM: Final = np.frombuffer(b"_sum", np.uint8)
COUNT: Final = np.frombuffer(b"_count", np.uint8)
INFINITE_BOUND: Final = np.frombuffer(b'le="+Inf"} ', np.uint8)
NO_SUFFIX: Final = np.zeros(0, np.uint8)


def render(page: PageLayout, values: PageValues, marks: Marks, begin: int, end: int) -> memoryview:
    """The lines of the series from begin to end, with the headers of the families that start among them."""
    floats: FloatArray = np.empty(end - begin, np.float64)
    used, most = _measure(page, values, begin, end, floats)
    tokens = orjson.dumps(floats[:used], option=orjson.OPT_SERIALIZE_NUMPY)
    counts = ladders(values.schema, values.block, values.buckets, begin, end)
    first, last = np.searchsorted(marks.position, [begin, end]).tolist()
    ends = marks.encoded.indptr
    out: UInt8Array = np.empty(most + int(ends[last] - ends[first]), np.uint8)
    derived = (np.frombuffer(tokens, np.uint8), counts)
    written = _write(page, values, marks, (begin, end, first, last), derived, out)
    return out[:written].data


@kernel
def _measure(page: PageLayout, values: PageValues, begin: int, end: int, floats: FloatArray) -> tuple[int, int]:
    """Collect the floats that orjson must write; returns how many, and the most bytes that the lines can take."""
    starts, header_ends, name_ends, lengths = page.starts, page.headers.indptr, page.names.indptr, page.label_length
    created_ends = page.created.indptr
    value, schemas, flags = values.value, values.schema, values.flags
    indptr, bound_ends = values.indptr, values.bound_texts.indptr
    used = 0
    most = 0
    family = np.searchsorted(starts, begin, side="right") - 1
    for i in range(begin, end):
        if starts[family + 1] == i:
            family += 1
        if starts[family] == i:
            most += header_ends[family + 1] - header_ends[family]
        schema = schemas[i]
        line = name_ends[family + 1] - name_ends[family] + lengths[i] + LINE_BYTES
        if created_ends[family + 1] > created_ends[family]:
            most += created_ends[family + 1] - created_ends[family] + lengths[i] + LINE_BYTES
        if schema == NOT_A_HISTOGRAM:
            most += line
            has_float = flags[i] & INTEGER == 0
        else:
            first, last = indptr[schema], indptr[schema + 1]
            most += line * (last - first + 3) + bound_ends[last] - bound_ends[first] + len(INFINITE_BOUND)
            has_float = flags[i] & HAS_SUM != 0
        if has_float and needs_token(value[i]):
            floats[used] = value[i]
            used += 1
    return used, most


class _Line(NamedTuple):
    """The parts that every line of a series has.

    Attributes:
        names: Bytes of the family's name, from `name_start` to `name_stop`.
        arena: Bytes of the series' labels, from `label_start` to `label_stop`.
    """

    names: UInt8Array
    name_start: int
    name_stop: int
    arena: UInt8Array
    label_start: int
    label_stop: int


class _Sample(NamedTuple):
    """Position of a series on the page, and its value.

    Attributes:
        position: Its position.
        value, integer, flags, schema: See `PageValues`.
    """

    position: int
    value: float
    integer: int
    flags: int
    schema: int


class _Exemplars(NamedTuple):
    """Exemplars of `Marks`, of which the page has those before `stop`."""

    position: Int64Array
    bucket: Int32Array
    encoded: UInt8Array
    ends: Int64Array
    stop: int


@inlined
def _line(page: PageLayout, family: int, i: int) -> _Line:
    start, stop = page.names.indptr[family], page.names.indptr[family + 1]
    label = page.label_offset[i]
    return _Line(page.names.data, start, stop, page.arena, label, label + page.label_length[i])


@inlined
def _sample(values: PageValues, i: int) -> _Sample:
    return _Sample(i, values.value[i], values.integer[i], values.flags[i], values.schema[i])


@inlined
def _begin_line(out: UInt8Array, at: int, line: _Line, suffix: UInt8Array, bounded: bool) -> int:  # noqa: FBT001  compiled
    """Write a line up to its value; with `bounded`, up to where the bucket's bound goes.

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
    out: UInt8Array, at: int, exemplars: _Exemplars, mark: int, series: int, bucket: int
) -> tuple[int, int]:
    """End a line with the sample's exemplar, if the next one is its; returns where it ends, and the next exemplar."""
    if mark < exemplars.stop and exemplars.position[mark] == series and exemplars.bucket[mark] == bucket:
        at = copy_bytes(out, at, exemplars.encoded, exemplars.ends[mark], exemplars.ends[mark + 1])
        mark += 1
    return _end_line(out, at), mark


@inlined
def _number(out: UInt8Array, at: int, line: _Line, sample: _Sample, tokens: UInt8Array, cursor: int) -> tuple[int, int]:
    """Write the sample of a series with one value, without its end; returns the same as `write_float`."""
    at = _begin_line(out, at, line, NO_SUFFIX, False)
    if sample.flags & INTEGER:
        return write_integer(out, at, sample.integer), cursor
    return write_float(out, at, sample.value, tokens, cursor)


@inlined
def _buckets(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    out: UInt8Array,
    at: int,
    line: _Line,
    sample: _Sample,
    values: PageValues,
    counts: tuple[Int64Array, int],
    exemplars: _Exemplars,
    mark: int,
) -> tuple[int, int]:
    """Write the buckets of a histogram; returns the same as `_end_sample`.

    Args:
        out: The output buffer.
        at: The position in it.
        line: Name and labels.
        sample: The histogram.
        values: The bounds.
        counts: Cumulative counts, and the index of the histogram's first one.
        exemplars: The exemplars.
        mark: The next exemplar.
    """
    ends, (cumulative, first) = values.bound_texts.indptr, counts
    lowest, last = values.indptr[sample.schema], values.indptr[sample.schema + 1]
    for bound in range(lowest, last):
        at = _begin_line(out, at, line, BUCKET, True)
        at = copy_bytes(out, at, values.bound_texts.data, ends[bound], ends[bound + 1])
        at = write_integer(out, at, cumulative[first + bound - lowest])
        at, mark = _end_sample(out, at, exemplars, mark, sample.position, bound - lowest)
    at = _begin_line(out, at, line, BUCKET, True)
    at = copy_bytes(out, at, INFINITE_BOUND, 0, len(INFINITE_BOUND))
    at = write_integer(out, at, sample.integer)
    return _end_sample(out, at, exemplars, mark, sample.position, last - lowest)


@inlined
def _sum_and_count(
    out: UInt8Array, at: int, line: _Line, sample: _Sample, tokens: UInt8Array, cursor: int
) -> tuple[int, int]:
    """Write the sum of a histogram, if it has one, and its count; returns the same as `write_float`."""
    if sample.flags & HAS_SUM:
        at = _begin_line(out, at, line, SUM, False)
        at, cursor = write_float(out, at, sample.value, tokens, cursor)
        at = _end_line(out, at)
    at = _begin_line(out, at, line, COUNT, False)
    return _end_line(out, write_integer(out, at, sample.integer)), cursor


@inlined
def _start_time(out: UInt8Array, at: int, page: PageLayout, family: int, line: _Line, start_ns: int) -> int:
    """Write the start time of a series, if its family has start times and it is known."""
    first, last = page.created.indptr[family], page.created.indptr[family + 1]
    if first == last or start_ns <= 0:
        return at
    created = _Line(page.created.data, first, last, line.arena, line.label_start, line.label_stop)
    return _end_line(out, write_seconds(out, _begin_line(out, at, created, NO_SUFFIX, False), start_ns))


@inlined
def _prefetch_labels(page: PageLayout, i: int) -> None:
    for line in range(page.label_offset[i], page.label_offset[i] + page.label_length[i], CACHE_LINE):
        prefetch(page.arena, line)


@kernel
def _write(
    page: PageLayout,
    values: PageValues,
    marks: Marks,
    span: tuple[int, int, int, int],
    derived: tuple[UInt8Array, Int64Array],
    out: UInt8Array,
) -> int:
    """Write the lines; returns how many bytes they are.

    Args:
        page: Headers, names and labels.
        values: The values.
        marks: Their exemplars.
        span: Begin and end of the series, begin and end of the exemplars.
        derived: In the order of the lines, the floats that orjson wrote and the ladders of exponential histograms.
        out: The output buffer.
    """
    begin, end, mark, last_mark = span
    tokens, ladders_of = derived
    exemplars = _Exemplars(marks.position, marks.bucket, marks.encoded.data, marks.encoded.indptr, last_mark)
    at, ladder, cursor = 0, 0, 1
    family = int(np.searchsorted(page.starts, begin, side="right")) - 1
    for i in range(begin, end):
        _prefetch_labels(page, min(i + PREFETCH_DISTANCE, end - 1))
        if page.starts[family + 1] == i:
            family += 1
        if page.starts[family] == i:
            at = copy_bytes(out, at, page.headers.data, page.headers.indptr[family], page.headers.indptr[family + 1])
        line, sample = _line(page, family, i), _sample(values, i)
        if sample.schema == NOT_A_HISTOGRAM:
            at, cursor = _number(out, at, line, sample, tokens, cursor)
            at, mark = _end_sample(out, at, exemplars, mark, i, 0)
        else:
            if sample.schema == EXPONENTIAL:
                counts = (ladders_of, ladder)
                ladder += RUNGS
            else:
                counts = (values.buckets, values.block[i])
            at, mark = _buckets(out, at, line, sample, values, counts, exemplars, mark)
            at, cursor = _sum_and_count(out, at, line, sample, tokens, cursor)
        at = _start_time(out, at, page, family, line, values.start_ns[i])
    return at
