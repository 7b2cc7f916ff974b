"""Compiled functions for `protobuf_metrics`: numbers as varints, and lengths before their contents.

Source: protobuf.dev, "Encoding".
"""

from typing import Final

import numpy as np

from kernelcast.bridge.tables.columns import UInt8Array
from kernelcast.columnar.compiled import inlined

SEVEN: Final = np.uint64(7)
LOW_BITS: Final = np.uint64(0x7F)
MORE: Final = np.uint64(0x80)
# Lengths from which a varint takes one byte more.
ONE_BYTE: Final = 128
TWO_BYTES: Final = 16_384
THREE_BYTES: Final = 2_097_152


@inlined
def write_varint(out: UInt8Array, at: int, number: np.uint64) -> int:
    """Write a varint: seven bits a byte, lowest first; 300 is [AC 02]. Returns the position after it."""
    while number > LOW_BITS:
        out[at] = (number & LOW_BITS) | MORE
        number >>= SEVEN
        at += 1
    out[at] = number
    return at + 1


@inlined
def zigzag(number: int) -> np.uint64:
    """Return a signed number as an unsigned one that is small if the number is near 0: 0, -1, 1, -2 are 0, 1, 2, 3."""
    return np.uint64((number << 1) ^ (number >> 63))


@inlined
def varint_bytes(number: int) -> int:
    """Number of bytes that a varint length takes."""
    if number < ONE_BYTE:
        return 1
    if number < TWO_BYTES:
        return 2
    return 3 if number < THREE_BYTES else 4


@inlined
def write_length(out: UInt8Array, at: int, length: int) -> int:
    """Write a length, which is most often a single byte. Returns the position after it."""
    if length < ONE_BYTE:
        out[at] = length
        return at + 1
    return write_varint(out, at, np.uint64(length))


@inlined
def close_message(out: UInt8Array, begin: int, at: int) -> int:
    """Write a message's length, for which two bytes were reserved at `begin`; returns the new end of the message.

    The length is known only after the message. A length of 128 to 16,383 fits the two bytes. A shorter one takes one
    byte, so the message moves down by one; a longer one takes more, so the message moves up:

        length 300: [AC 02] message             nothing moves
        length   5: [05] message                moves down by one byte
        length 20,000: [A0 9C 01] message       moves up by one byte
    """
    length = at - begin - 2
    if length >= ONE_BYTE and length < TWO_BYTES:
        out[begin] = length & 0x7F | 0x80
        out[begin + 1] = length >> 7
        return at
    if length < ONE_BYTE:
        out[begin] = length
        for j in range(begin + 1, begin + 1 + length):
            out[j] = out[j + 1]
        return at - 1
    more = varint_bytes(length) - 2
    for j in range(at - 1, begin + 1, -1):
        out[j + more] = out[j]
    write_varint(out, begin, np.uint64(length))
    return at + more
