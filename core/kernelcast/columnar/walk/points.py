"""Reads a data point of a gauge or a sum to a row of `WalkState.numbers`; `messages` calls it once for each point."""

import numpy as np

from kernelcast.columnar.columns import IS_INTEGER, NO_RECORDED_VALUE, UInt8Array
from kernelcast.columnar.compiled import inlined, load64
from kernelcast.columnar.walk.layout import MESSAGE, ODD, OK, ROWS, WalkState
from kernelcast.columnar.walk.lookup import attributes, series_of
from kernelcast.columnar.walk.notes import note_exemplar
from kernelcast.columnar.walk.stream import skip, varint

# Tags: field number and wire type in one byte.
START = 17
TIME = 25
NUMBER_DOUBLE = 33
NUMBER_EXEMPLARS = 42
NUMBER_INTEGER = 49
NUMBER_ATTRIBUTES = 58
NUMBER_FLAGS = 64


@inlined
def number_point(state: WalkState, metric: int, b: UInt8Array, p: int, end: int) -> int:  # noqa: C901, PLR0911, PLR0912  one switch over tags
    """Read a NumberDataPoint from p to end into the next row, for which there is room."""
    row = state.control[ROWS]
    series = -1
    start_ns = np.uint64(0)
    time_ns = np.uint64(0)
    bits = np.uint64(0)
    flags = NO_RECORDED_VALUE
    no_value = 0
    while p < end:
        tag = b[p]
        if tag == NUMBER_ATTRIBUTES:
            if series >= 0:
                return ODD
            series, p = attributes(state, metric, b, p, end)
            if series < 0:
                return series
        elif tag in (START, TIME, NUMBER_DOUBLE, NUMBER_INTEGER):
            if end - p < 9:
                return ODD
            word = load64(b, p + 1)
            p += 9
            if tag == TIME:
                time_ns = word
            elif tag == START:
                start_ns = word
            else:
                bits = word
                flags = IS_INTEGER if tag == NUMBER_INTEGER else 0
        elif tag == NUMBER_FLAGS:
            word, p = varint(b, p + 1, end)
            if p < 0:
                return ODD
            no_value = NO_RECORDED_VALUE if word & np.uint64(1) else 0
        else:
            start = p
            p = skip(b, p, end)
            if p < 0:
                return ODD
            if tag == NUMBER_EXEMPLARS:
                status = note_exemplar(state, 0, row, start, p)
                if status < 0:
                    return status
    if series < 0:
        series = series_of(state, metric, b, p, p)
        if series < 0:
            return series
    record = state.numbers[row]
    record.series = series
    record.message = state.control[MESSAGE]
    record.start_ns = start_ns
    record.time_ns = time_ns
    record.bits = bits
    record.flags = flags | no_value
    state.control[ROWS] = row + 1
    return OK
