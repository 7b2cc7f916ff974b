"""Reads data points of summaries: a row of `WalkState.numbers` for each quantile, for the sum, and for the count.

`messages` calls `summary_points` for each metric. Each of these rows has a series of its own, which differs in the
part of its metric's key (`lookup.SUMMARY_TYPE`).
"""

import numpy as np

from kernelcast.columnar.columns import IS_INTEGER, NO_RECORDED_VALUE, UInt8Array
from kernelcast.columnar.compiled import load64, routine, signed
from kernelcast.columnar.walk.layout import (
    GROW_NUMBERS,
    MAX_BUCKETS,
    MAX_POINTS,
    MESSAGE,
    ODD,
    OK,
    POINTS,
    QUANTILE,
    ROWS,
    TOO_MANY_BUCKETS,
    TOO_MANY_POINTS,
    WalkState,
)
from kernelcast.columnar.walk.lookup import COUNT_PART, QUANTILE_PART, SUM_PART, SUMMARY_TYPE, metric_context, series_of
from kernelcast.columnar.walk.stream import delimited, skip, varint

# Tags: field number and wire type in one byte.
START = 17
TIME = 25
COUNT = 33
SUM = 41
QUANTILES = 50
ATTRIBUTES = 58
FLAGS = 64
OF_QUANTILE = 9
VALUE = 17
DATA_POINTS = 10


@routine
def quantile_value(b: UInt8Array, p: int, end: int) -> tuple[np.uint64, np.uint64, int]:
    """The bits of a ValueAtQuantile's quantile and value, and OK or ODD."""
    quantile = np.uint64(0)
    value = np.uint64(0)
    while p < end:
        tag = b[p]
        if tag in (OF_QUANTILE, VALUE):
            if end - p < 9:
                return quantile, value, ODD
            if tag == OF_QUANTILE:
                quantile = load64(b, p + 1)
            else:
                value = load64(b, p + 1)
            p += 9
        else:
            p = skip(b, p, end)
            if p < 0:
                return quantile, value, ODD
    return quantile, value, OK


@routine
def part_row(
    state: WalkState,
    b: UInt8Array,
    texts: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    part: int,
    attributes: tuple[int, int],
    point: tuple[np.uint64, np.uint64, np.uint64, int],
) -> int:
    """Write the row of one part of a point, for which there is room: its start, time, bits and flags."""
    metric = metric_context(state, b, (SUMMARY_TYPE, part, 0), texts)
    if metric < 0:
        return metric
    series = series_of(state, metric, b, attributes[0], attributes[1])
    if series < 0:
        return series
    row = state.control[ROWS]
    record = state.numbers[row]
    record.series = series
    record.message = state.control[MESSAGE]
    record.start_ns = point[0]
    record.time_ns = point[1]
    record.bits = point[2]
    record.flags = point[3]
    state.control[ROWS] = row + 1
    return OK


@routine
def quantile_rows(
    state: WalkState,
    b: UInt8Array,
    texts: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    span: tuple[int, int],
    attributes: tuple[int, int],
    point: tuple[np.uint64, np.uint64, np.uint64, int],
) -> int:
    """Write a row for each quantile of the point in the span, whose other fields have been read."""
    p = span[0]
    while p < span[1]:
        if b[p] != QUANTILES:
            p = skip(b, p, span[1])
            continue
        start, p = delimited(b, p + 1, span[1])
        quantile, value, status = quantile_value(b, start, p)
        if status < 0:
            return status
        state.control[QUANTILE] = signed(quantile)
        status = part_row(state, b, texts, QUANTILE_PART, attributes, (point[0], point[1], value, point[3]))
        if status < 0:
            return status
    return OK


@routine
def summary_point(  # noqa: C901, PLR0911, PLR0912  one switch over tags
    state: WalkState,
    b: UInt8Array,
    texts: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    begin: int,
    end: int,
) -> int:
    """Read a SummaryDataPoint from begin to end into the next rows."""
    attributes = (end, end)
    seen = False
    start_ns = np.uint64(0)
    time_ns = np.uint64(0)
    count = np.uint64(0)
    total = np.uint64(0)
    flags = 0
    quantiles = 0
    p = begin
    while p < end:
        tag = b[p]
        if tag == ATTRIBUTES:
            if seen:
                return ODD
            seen = True
            stop = p
            while stop < end and b[stop] == ATTRIBUTES:
                _, stop = delimited(b, stop + 1, end)
                if stop < 0:
                    return ODD
            attributes = (p, stop)
            p = stop
        elif tag in (START, TIME, COUNT, SUM):
            if end - p < 9:
                return ODD
            word = load64(b, p + 1)
            p += 9
            if tag == START:
                start_ns = word
            elif tag == TIME:
                time_ns = word
            elif tag == COUNT:
                count = word
            else:
                total = word
        elif tag == FLAGS:
            word, p = varint(b, p + 1, end)
            if p < 0:
                return ODD
            flags = NO_RECORDED_VALUE if word & np.uint64(1) else 0
        else:
            quantiles += 1 if tag == QUANTILES else 0
            p = skip(b, p, end)
            if p < 0:
                return ODD
    if quantiles > state.control[MAX_BUCKETS]:
        return TOO_MANY_BUCKETS
    state.control[POINTS] += quantiles + 1  # the message's count has the point itself already, as one of these rows
    if state.control[POINTS] > state.control[MAX_POINTS]:
        return TOO_MANY_POINTS
    if state.control[ROWS] + quantiles + 2 > len(state.numbers):
        return GROW_NUMBERS
    status = quantile_rows(state, b, texts, (begin, end), attributes, (start_ns, time_ns, np.uint64(0), flags))
    if status < 0:
        return status
    status = part_row(state, b, texts, SUM_PART, attributes, (start_ns, time_ns, total, flags))
    if status < 0:
        return status
    return part_row(state, b, texts, COUNT_PART, attributes, (start_ns, time_ns, count, flags | IS_INTEGER))


@routine
def summary_points(
    state: WalkState, b: UInt8Array, texts: tuple[tuple[int, int], tuple[int, int], tuple[int, int]], p: int, end: int
) -> int:
    """Read every data point of a summary whose header has been read."""
    while p < end:
        if b[p] != DATA_POINTS:
            p = skip(b, p, end)
            continue
        start, p = delimited(b, p + 1, end)
        status = summary_point(state, b, texts, start, p)
        if status < 0:
            return status
    return OK
