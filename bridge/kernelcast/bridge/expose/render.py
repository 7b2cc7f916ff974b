"""The text formats, written by machine code: names and labels are copied, integers written, floats taken from orjson.

orjson writes the shortest text that reads back as the same double, for a whole array at once; NaN and infinities, which
it writes as `null` (one of which takes a whole target down), never reach it.
"""

import math
from typing import Final

import numpy as np
import orjson

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
EXACT_INTEGERS: Final = 2.0**53

PREFETCH_DISTANCE: Final = 12
"""Number of series ahead of the one being written whose labels are prefetched. The labels of a family are scattered
over the arena, because producers send the series of all families interleaved."""
CACHE_LINE: Final = 64

BRACE_OPEN: Final = 0x7B
BRACE_CLOSE: Final = 0x7D
COMMA: Final = 0x2C
SPACE: Final = 0x20
NEWLINE: Final = 0x0A
MINUS: Final = 0x2D
ZERO: Final = 0x30
POINT: Final = 0x2E
FRACTION_DIGITS: Final = 9
NANOSECONDS_PER_SECOND: Final = 1_000_000_000


BUCKET: Final = np.frombuffer(b"_bucket", np.uint8)
SUM: Final = np.frombuffer(b"_sum", np.uint8)
COUNT: Final = np.frombuffer(b"_count", np.uint8)
INFINITE_BOUND: Final = np.frombuffer(b'le="+Inf"} ', np.uint8)
NOT_A_NUMBER: Final = np.frombuffer(b"NaN", np.uint8)
INFINITE: Final = np.frombuffer(b"+Inf", np.uint8)
MINUS_INFINITE: Final = np.frombuffer(b"-Inf", np.uint8)
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


@inlined
def _is_minus_zero(value: float) -> bool:
    return value == 0.0 and math.copysign(1.0, value) < 0


@inlined
def _needs_token(value: float) -> bool:
    """Whether a float is written by orjson: finite and not a whole number that a double holds exactly."""
    if not math.isfinite(value):
        return False
    return abs(value) >= EXACT_INTEGERS or value != math.floor(value) or _is_minus_zero(value)


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
        if has_float and _needs_token(value[i]):
            floats[used] = value[i]
            used += 1
    return used, most


@inlined
def _integer(out: UInt8Array, at: int, number: int) -> int:
    """Write an int64; digits are taken from the negative, because the lowest one has no positive."""
    rest = number
    if number < 0:
        out[at] = MINUS
        at += 1
    else:
        rest = -number
    length = 1
    power = rest // -10
    while power > 0:
        length += 1
        power //= 10
    for j in range(at + length - 1, at - 1, -1):
        quotient = -(rest // -10)
        out[j] = ZERO + (quotient * 10 - rest)
        rest = quotient
    return at + length


@inlined
def _float(out: UInt8Array, at: int, value: float, tokens: UInt8Array, cursor: int) -> tuple[int, int]:
    """Write a float; returns where it ends, and where the next token starts."""
    if _needs_token(value):
        stop = cursor
        while stop < len(tokens) - 1 and tokens[stop] != COMMA:
            stop += 1
        return copy_bytes(out, at, tokens, cursor, stop), stop + 1
    if math.isfinite(value):
        return _integer(out, at, int(value)), cursor
    if value > 0:
        return copy_bytes(out, at, INFINITE, 0, len(INFINITE)), cursor
    if value < 0:
        return copy_bytes(out, at, MINUS_INFINITE, 0, len(MINUS_INFINITE)), cursor
    return copy_bytes(out, at, NOT_A_NUMBER, 0, len(NOT_A_NUMBER)), cursor


@inlined
def _begin_line(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    out: UInt8Array,
    at: int,
    name: tuple[UInt8Array, int, int],
    suffix: UInt8Array,
    arena: UInt8Array,
    labels: tuple[int, int],
    bounded: bool,  # noqa: FBT001  compiled
) -> int:
    """Write a line up to its value; with `bounded`, up to where the bucket's bound goes.

    Args:
        out: Where to.
        at: The position there.
        name: Bytes, start and stop of the family's name.
        suffix: What follows the name.
        arena: Label bytes.
        labels: Start and stop of the series' labels.
        bounded: Whether a bound follows.
    """
    at = copy_bytes(out, at, name[0], name[1], name[2])
    at = copy_bytes(out, at, suffix, 0, len(suffix))
    labelled = labels[1] > labels[0]
    if labelled or bounded:
        out[at] = BRACE_OPEN
        at = copy_bytes(out, at + 1, arena, labels[0], labels[1])
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
def _seconds(out: UInt8Array, at: int, time_ns: int) -> int:
    """Write a time as seconds, to the nanosecond."""
    at = _integer(out, at, time_ns // NANOSECONDS_PER_SECOND)
    rest = time_ns % NANOSECONDS_PER_SECOND
    out[at] = POINT
    for j in range(FRACTION_DIGITS, 0, -1):
        out[at + j] = ZERO + rest % 10
        rest //= 10
    return at + 1 + FRACTION_DIGITS


@inlined
def _mark(
    out: UInt8Array,
    at: int,
    marks: tuple[Int64Array, Int32Array, UInt8Array, Int64Array],
    mark: int,
    series: int,
    bucket: int,
) -> tuple[int, int]:
    """Write a sample's exemplar, if the next one is its; returns where it ends, and which exemplar comes next."""
    positions, buckets, encoded, ends = marks
    if positions[mark] == series and buckets[mark] == bucket:
        return copy_bytes(out, at, encoded, ends[mark], ends[mark + 1]), mark + 1
    return at, mark


@kernel
def _write(  # noqa: C901, PLR0912, PLR0915  one loop over all columns, each a local
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
    starts, headers, header_ends = page.starts, page.headers.data, page.headers.indptr
    names, name_ends, created, created_ends = page.names.data, page.names.indptr, page.created.data, page.created.indptr
    arena, offsets, lengths = page.arena, page.label_offset, page.label_length
    value, integer, flags, schemas = values.value, values.integer, values.flags, values.schema
    blocks, buckets, indptr, start_ns = values.block, values.buckets, values.indptr, values.start_ns
    bounds, bound_ends = values.bound_texts.data, values.bound_texts.indptr
    marked = (marks.position, marks.bucket, marks.encoded.data, marks.encoded.indptr)
    begin, end, mark, last_mark = span
    tokens, ladder_counts = derived
    at = 0
    ladder = 0
    cursor = 1
    family = np.searchsorted(starts, begin, side="right") - 1
    for i in range(begin, end):
        ahead = min(i + PREFETCH_DISTANCE, end - 1)
        for line in range(offsets[ahead], offsets[ahead] + lengths[ahead], CACHE_LINE):
            prefetch(arena, line)
        if starts[family + 1] == i:
            family += 1
        if starts[family] == i:
            at = copy_bytes(out, at, headers, header_ends[family], header_ends[family + 1])
        name = (names, name_ends[family], name_ends[family + 1])
        labels = (offsets[i], offsets[i] + lengths[i])
        schema = schemas[i]
        if schema == NOT_A_HISTOGRAM:
            at = _begin_line(out, at, name, NO_SUFFIX, arena, labels, False)
            if flags[i] & INTEGER:
                at = _integer(out, at, integer[i])
            else:
                at, cursor = _float(out, at, value[i], tokens, cursor)
            if mark < last_mark:
                at, mark = _mark(out, at, marked, mark, i, 0)
            at = _end_line(out, at)
        else:
            counts, first = (ladder_counts, ladder) if schema == EXPONENTIAL else (buckets, blocks[i])
            if schema == EXPONENTIAL:
                ladder += RUNGS
            lowest, last = indptr[schema], indptr[schema + 1]
            for bound in range(lowest, last):
                at = _begin_line(out, at, name, BUCKET, arena, labels, True)
                at = copy_bytes(out, at, bounds, bound_ends[bound], bound_ends[bound + 1])
                at = _integer(out, at, counts[first + bound - lowest])
                if mark < last_mark:
                    at, mark = _mark(out, at, marked, mark, i, bound - lowest)
                at = _end_line(out, at)
            at = _begin_line(out, at, name, BUCKET, arena, labels, True)
            at = copy_bytes(out, at, INFINITE_BOUND, 0, len(INFINITE_BOUND))
            at = _integer(out, at, integer[i])
            if mark < last_mark:
                at, mark = _mark(out, at, marked, mark, i, last - lowest)
            at = _end_line(out, at)
            if flags[i] & HAS_SUM:
                at = _begin_line(out, at, name, SUM, arena, labels, False)
                at, cursor = _float(out, at, value[i], tokens, cursor)
                at = _end_line(out, at)
            at = _begin_line(out, at, name, COUNT, arena, labels, False)
            at = _end_line(out, _integer(out, at, integer[i]))
        if created_ends[family + 1] > created_ends[family] and start_ns[i] > 0:
            since = (created, created_ends[family], created_ends[family + 1])
            at = _begin_line(out, at, since, NO_SUFFIX, arena, labels, False)
            at = _end_line(out, _seconds(out, at, start_ns[i]))
    return at
