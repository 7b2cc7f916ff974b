"""Compiled functions for `protobuf_metrics`: numbers as varints, and lengths before their contents.

numba checks no bounds: `max_bytes` has given the output room for all that they write.

Source: protobuf.dev, "Encoding".
"""

from typing import Final

import numpy as np

from kernelcast.bridge.tables.columns import UInt8Array
from kernelcast.columnar.compiled import inlined

BITS_PER_BYTE: Final = np.uint64(7)
LOW_BITS: Final = np.uint64(0x7F)
CONTINUATION_BIT: Final = np.uint64(0x80)
# The smallest lengths that take two, three and four bytes as a varint.
TWO_BYTES_FROM: Final = 128
THREE_BYTES_FROM: Final = 16_384
FOUR_BYTES_FROM: Final = 2_097_152


@inlined
def write_varint(out: UInt8Array, at: int, number: np.uint64) -> int:
    """Write a varint: seven bits a byte, lowest first; 300 is [AC 02]. Returns the position after it."""
    while number > LOW_BITS:
        out[at] = (number & LOW_BITS) | CONTINUATION_BIT
        number >>= BITS_PER_BYTE
        at += 1
    out[at] = number
    return at + 1


@inlined
def zigzag(number: int) -> np.uint64:
    """Return a signed number as an unsigned one that is small if the number is near 0: 0, -1, 1, -2 are 0, 1, 2, 3."""
    return np.uint64((number << 1) ^ (number >> 63))


@inlined
def varint_bytes(number: int) -> int:
    """Number of bytes that a length below 2**28 takes as a varint; a series has less than 256 MiB."""
    if number < TWO_BYTES_FROM:
        return 1
    if number < THREE_BYTES_FROM:
        return 2
    return 3 if number < FOUR_BYTES_FROM else 4


@inlined
def write_length(out: UInt8Array, at: int, length: int) -> int:
    """Write a length, which is most often a single byte. Returns the position after it."""
    if length < TWO_BYTES_FROM:
        out[at] = length
        return at + 1
    return write_varint(out, at, np.uint64(length))


@inlined
def close_message(out: UInt8Array, begin: int, at: int) -> int:
    """Write a message's length, for which two bytes were reserved at `begin`; returns the new end of the message.

    The length is known only after the message. A length of 128 to 16,383 fits the two bytes. A shorter one takes one
    byte, so the message moves down by one; a longer one takes up to four, so the message moves up by up to two:

        length 300: [AC 02] message             nothing moves
        length   5: [05] message                moves down by one byte
        length 20,000: [A0 9C 01] message       moves up by one byte
    """
    length = at - begin - 2
    if length >= TWO_BYTES_FROM and length < THREE_BYTES_FROM:
        out[begin] = length & 0x7F | 0x80
        out[begin + 1] = length >> 7
        return at
    if length < TWO_BYTES_FROM:
        out[begin] = length
        for j in range(begin + 1, begin + 1 + length):
            out[j] = out[j + 1]
        return at - 1
    more = varint_bytes(length) - 2
    for j in range(at - 1, begin + 1, -1):
        out[j + more] = out[j]
    write_varint(out, begin, np.uint64(length))
    return at + more
