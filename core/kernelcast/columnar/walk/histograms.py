"""Reads a data point of a histogram: its fields to a row of `WalkState.histograms`, its buckets to CSR data.

`messages` calls `explicit_point` or `exponential_point` once for each point. A row counts only once it is closed, so
a status in between leaves nothing behind that the roll-back of the message does not undo.
"""

import numpy as np

from kernelcast.columnar.columns import EXPLICIT, HAS_SUM, NO_RECORDED_VALUE, UInt8Array
from kernelcast.columnar.compiled import load64, routine, signed
from kernelcast.columnar.walk.buckets import bounds_sorted, fixed64_run, varint_run
from kernelcast.columnar.walk.layout import (
    BOUNDS,
    BOUNDS_UNSORTED,
    BUCKETS,
    BUCKETS_UNMATCHED,
    HISTOGRAM_ROWS,
    MESSAGE,
    NEGATIVE,
    ODD,
    OFFSET_OUT_OF_RANGE,
    OK,
    POSITIVE,
    SCALE_OUT_OF_RANGE,
    WalkState,
)
from kernelcast.columnar.walk.lookup import attributes, series_of
from kernelcast.columnar.walk.notes import note_exemplar
from kernelcast.columnar.walk.stream import delimited, skip, varint

# Tags: field number and wire type in one byte. These are the same in both kinds of point.
START = 17
TIME = 25
COUNT = 33
SUM = 41
FLAGS = 80

EXPLICIT_COUNTS = 50
EXPLICIT_COUNTS_UNPACKED = 49
EXPLICIT_BOUNDS = 58
EXPLICIT_BOUNDS_UNPACKED = 57
EXPLICIT_EXEMPLARS = 66
EXPLICIT_ATTRIBUTES = 74

EXPONENTIAL_ATTRIBUTES = 10
SCALE = 48
ZERO_COUNT = 57
POSITIVE_BUCKETS = 66
NEGATIVE_BUCKETS = 74
EXPONENTIAL_EXEMPLARS = 90
ZERO_THRESHOLD = 113

BUCKETS_OFFSET = 8
BUCKETS_COUNTS = 18
BUCKETS_COUNTS_UNPACKED = 16

MIN_SCALE = -10
MAX_SCALE = 20
"""OpenTelemetry's SDKs stay within these; beyond them bounds are no longer doubles or buckets no longer apart."""

MAX_INDEX = 2**31 - 1


@routine
def signed32(word: np.uint64) -> int:
    """A protobuf sint32: the low 32 bits, zigzag."""
    low = signed(word & np.uint64(0xFFFFFFFF))
    return (low >> 1) ^ -(low & 1)


@routine
def open_row(state: WalkState) -> int:
    """Clear the next row, for which there is room, and return it; it counts once it is closed."""
    control = state.control
    row = control[HISTOGRAM_ROWS]
    record = state.histograms[row]
    record.message = control[MESSAGE]
    record.start_ns = 0
    record.time_ns = 0
    record.flags = 0
    record.count = 0
    record.total = 0
    record.zero_count = 0
    record.zero_threshold = 0
    record.scale = 0
    record.positive_offset = 0
    record.negative_offset = 0
    return signed(row)


@routine
def close_row(state: WalkState, row: int, series: int, flags: int) -> int:
    """Make the row count, with the CSR data written since it was opened."""
    control = state.control
    record = state.histograms[row]
    record.series = series
    record.flags = flags
    record.positive_end = control[POSITIVE]
    record.negative_end = control[NEGATIVE]
    record.bounds_end = control[BOUNDS]
    record.buckets_end = control[BUCKETS]
    control[HISTOGRAM_ROWS] = row + 1
    return OK


@routine
def shared_field(state: WalkState, row: int, b: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """Read a field that both kinds of point have, or skip an unknown one: flags to be set, and the position after it.

    The flag NO_RECORDED_VALUE is settled by the field's last occurrence, so it is written to the row at once.
    """
    record = state.histograms[row]
    tag = b[p]
    if tag == FLAGS:
        word, p = varint(b, p + 1, end)
        record.flags = NO_RECORDED_VALUE if word & np.uint64(1) else 0
        return 0, p
    if tag not in (START, TIME, COUNT, SUM):
        return 0, skip(b, p, end)
    if end - p < 9:
        return 0, -1
    word = load64(b, p + 1)
    if tag == START:
        record.start_ns = word
    elif tag == TIME:
        record.time_ns = word
    elif tag == COUNT:
        record.count = word
    else:
        record.total = word
        return HAS_SUM, p + 9
    return 0, p + 9


@routine
def explicit_point(state: WalkState, metric: int, b: UInt8Array, p: int, end: int) -> int:  # noqa: C901, PLR0911, PLR0912  one switch over tags
    """Read a HistogramDataPoint from p to end."""
    row = open_row(state)
    # The buckets are copied at the end, when it is known that there are not two fields of a kind.
    series = -1
    flags = EXPLICIT
    counts = (0, 0)
    bounds = (0, 0)
    while p < end:
        tag = b[p]
        if tag == EXPLICIT_ATTRIBUTES:
            if series >= 0:
                return ODD
            series, p = attributes(state, metric, b, p, end)
            if series < 0:
                return series
        elif tag in (EXPLICIT_COUNTS, EXPLICIT_BOUNDS):
            start, p = delimited(b, p + 1, end)
            seen = counts if tag == EXPLICIT_COUNTS else bounds
            if p < 0 or seen[0] > 0 or (p - start) % 8 != 0:
                return ODD
            if tag == EXPLICIT_COUNTS:
                counts = (start, p)
            else:
                bounds = (start, p)
        elif tag in (EXPLICIT_COUNTS_UNPACKED, EXPLICIT_BOUNDS_UNPACKED):
            return ODD
        else:
            start = p
            flag, p = shared_field(state, row, b, p, end)
            flags |= flag
            if p < 0:
                return ODD
            if tag == EXPLICIT_EXEMPLARS:
                status = note_exemplar(state, 1, row, start, p)
                if status < 0:
                    return status
    if series < 0:
        series = series_of(state, metric, b, p, p)
        if series < 0:
            return series
    status = explicit_buckets(state, b, counts, bounds)
    if status < 0:
        return status
    return close_row(state, row, series, flags | state.histograms[row].flags)


@routine
def explicit_buckets(state: WalkState, b: UInt8Array, counts: tuple[int, int], bounds: tuple[int, int]) -> int:
    """Copy counts and bounds: one count more than bounds, or none of either; bounds strictly rising."""
    buckets = (counts[1] - counts[0]) // 8
    limits = (bounds[1] - bounds[0]) // 8
    if buckets != limits + 1 and (buckets != 0 or limits != 0):
        return BUCKETS_UNMATCHED
    status = fixed64_run(state, BUCKETS, b, counts)
    if status < 0:
        return status
    first = state.control[BOUNDS]
    status = fixed64_run(state, BOUNDS, b, bounds)
    if status < 0:
        return status
    if not bounds_sorted(state, first, state.control[BOUNDS]):
        return BOUNDS_UNSORTED
    return OK


@routine
def exponential_buckets(state: WalkState, row: int, b: UInt8Array, p: int, end: int, slot: int) -> int:  # noqa: C901, PLR0911  one switch over tags
    """Read a Buckets message from p to end into one side's CSR data."""
    offset = 0
    run = (0, 0)
    while p < end:
        tag = b[p]
        if tag == BUCKETS_OFFSET:
            word, p = varint(b, p + 1, end)
            if p < 0:
                return ODD
            offset = signed32(word)
        elif tag == BUCKETS_COUNTS:
            start, p = delimited(b, p + 1, end)
            if p < 0 or run[0] > 0:
                return ODD
            run = (start, p)
        elif tag == BUCKETS_COUNTS_UNPACKED:
            return ODD
        else:
            p = skip(b, p, end)
            if p < 0:
                return ODD
    first = state.control[slot]
    status = varint_run(state, slot, b, run)
    if status < 0:
        return status
    if offset + state.control[slot] - first - 1 > MAX_INDEX:
        return OFFSET_OUT_OF_RANGE
    if slot == NEGATIVE:
        state.histograms[row].negative_offset = offset
    else:
        state.histograms[row].positive_offset = offset
    return OK


@routine
def exponential_point(state: WalkState, metric: int, b: UInt8Array, p: int, end: int) -> int:  # noqa: C901, PLR0911, PLR0912  one switch over tags
    """Read an ExponentialHistogramDataPoint from p to end."""
    row = open_row(state)
    record = state.histograms[row]
    series = -1
    flags = 0
    seen = 0
    while p < end:
        tag = b[p]
        if tag == EXPONENTIAL_ATTRIBUTES:
            if series >= 0:
                return ODD
            series, p = attributes(state, metric, b, p, end)
            if series < 0:
                return series
        elif tag in (POSITIVE_BUCKETS, NEGATIVE_BUCKETS):
            start, p = delimited(b, p + 1, end)
            slot = POSITIVE if tag == POSITIVE_BUCKETS else NEGATIVE
            if p < 0 or seen & (1 << slot):
                return ODD
            seen |= 1 << slot
            status = exponential_buckets(state, row, b, start, p, slot)
            if status < 0:
                return status
        elif tag == SCALE:
            word, p = varint(b, p + 1, end)
            if p < 0:
                return ODD
            record.scale = signed32(word)
        elif tag in (ZERO_COUNT, ZERO_THRESHOLD):
            if end - p < 9:
                return ODD
            if tag == ZERO_COUNT:
                record.zero_count = load64(b, p + 1)
            else:
                record.zero_threshold = load64(b, p + 1)
            p += 9
        else:
            start = p
            flag, p = shared_field(state, row, b, p, end)
            flags |= flag
            if p < 0:
                return ODD
            if tag == EXPONENTIAL_EXEMPLARS:
                status = note_exemplar(state, 1, row, start, p)
                if status < 0:
                    return status
    if not MIN_SCALE <= record.scale <= MAX_SCALE:
        return SCALE_OUT_OF_RANGE
    if series < 0:
        series = series_of(state, metric, b, p, p)
        if series < 0:
            return series
    return close_row(state, row, series, flags | record.flags)
