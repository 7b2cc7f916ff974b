"""Compiled functions for `render` that write numbers as text: integers digit by digit, floats from orjson's text.

orjson has written all floats of a chunk that need it as one JSON array, whose items are called tokens here: for 0.1, 2
and 1e300 the array is `[0.1,1e300]`, because 2 is written as an integer. `cursor` is the index at which the next token
begins.
"""

import math
from typing import Final

import numpy as np

from kernelcast.bridge.tables.columns import UInt8Array
from kernelcast.columnar.compiled import copy_bytes, inlined

EXACT_INTEGERS: Final = 2.0**53
"""From here on a double does not hold every integer, so orjson writes the shortest text."""
COMMA: Final = 0x2C
MINUS: Final = 0x2D
ZERO: Final = 0x30
POINT: Final = 0x2E
FRACTION_DIGITS: Final = 9
NANOSECONDS_PER_SECOND: Final = 1_000_000_000
NOT_A_NUMBER: Final = np.frombuffer(b"NaN", np.uint8)
INFINITE: Final = np.frombuffer(b"+Inf", np.uint8)
MINUS_INFINITE: Final = np.frombuffer(b"-Inf", np.uint8)


@inlined
def _is_minus_zero(value: float) -> bool:
    return value == 0.0 and math.copysign(1.0, value) < 0


@inlined
def needs_orjson(value: float) -> bool:
    """Whether orjson writes a float: it is finite and no whole number below EXACT_INTEGERS, or it is -0.0."""
    if not math.isfinite(value):
        return False
    return abs(value) >= EXACT_INTEGERS or value != math.floor(value) or _is_minus_zero(value)


@inlined
def write_integer(out: UInt8Array, at: int, number: int) -> int:
    """Write an int64 and return the index after it; digits come from the negative, as -2**63 has no positive."""
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
def write_float(out: UInt8Array, at: int, value: float, tokens: UInt8Array, cursor: int) -> tuple[int, int]:
    """Write a float; returns where it ends, and where the next token starts."""
    if needs_orjson(value):
        stop = cursor
        while stop < len(tokens) - 1 and tokens[stop] != COMMA:
            stop += 1
        return copy_bytes(out, at, tokens, cursor, stop), stop + 1
    if math.isfinite(value):
        return write_integer(out, at, int(value)), cursor
    if value > 0:
        return copy_bytes(out, at, INFINITE, 0, len(INFINITE)), cursor
    if value < 0:
        return copy_bytes(out, at, MINUS_INFINITE, 0, len(MINUS_INFINITE)), cursor
    return copy_bytes(out, at, NOT_A_NUMBER, 0, len(NOT_A_NUMBER)), cursor


@inlined
def write_seconds(out: UInt8Array, at: int, time_ns: int) -> int:
    """Write a time as seconds, to the nanosecond."""
    at = write_integer(out, at, time_ns // NANOSECONDS_PER_SECOND)
    rest = time_ns % NANOSECONDS_PER_SECOND
    out[at] = POINT
    for j in range(FRACTION_DIGITS, 0, -1):
        out[at + j] = ZERO + rest % 10
        rest //= 10
    return at + 1 + FRACTION_DIGITS
