"""Reads protobuf's wire format, with positions that only advance and never pass the enclosing end.

Every reader of `walk` calls it. A position below 0 means that this reader does not accept the bytes. protobuf accepts
some of them (tags or lengths of more bytes than needed, groups), so the caller passes the message to protobuf.
"""

import numpy as np

from kernelcast.columnar.columns import UInt8Array
from kernelcast.columnar.compiled import fold_multiply, inlined, load64, routine, signed

VARINT = 0
FIXED64 = 1
DELIMITED = 2
FIXED32 = 5

LENGTH_BYTES = 4
"""A length in more bytes than this exceeds any message we take, or is written wastefully."""

# Constants of the hash: odd, with about as many ones as zeros.
_LEFT = np.uint64(0x9E3779B97F4A7C15)
_RIGHT = np.uint64(0xD6E8FEB86659FD93)


@routine
def long_varint(b: UInt8Array, p: int, end: int) -> tuple[np.uint64, int]:
    """The varint at p, of any length up to 10 bytes, and the position after it."""
    value = np.uint64(0)
    for i in range(10):
        if p >= end:
            return value, -1
        c = b[p]
        p += 1
        value |= np.uint64(c & 0x7F) << np.uint64(7 * i)
        if c < 128:
            return value, p
    return value, -1


@inlined
def varint(b: UInt8Array, p: int, end: int) -> tuple[np.uint64, int]:
    """The varint at p, and the position after it."""
    if p < end and b[p] < 128:
        return np.uint64(b[p]), p + 1
    return long_varint(b, p, end)


@inlined
def delimited(b: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """Return start and stop of the field whose length is at p; stop is below 0 if it passes the end."""
    length, start = varint(b, p, end)
    if start < 0 or start - p > LENGTH_BYTES or length > np.uint64(end - start):
        return 0, -1
    return start, start + signed(length)


@routine
def skip(b: UInt8Array, p: int, end: int) -> int:
    """Return the position after the field whose tag is at p; below 0 for groups and tags of more than one byte."""
    tag = b[p]
    if tag < 8 or tag >= 128:
        return -1
    wire_type = tag & 7
    if wire_type == VARINT:
        _, p = long_varint(b, p + 1, end)
        return p
    if wire_type == DELIMITED:
        _, p = delimited(b, p + 1, end)
        return p
    if wire_type == FIXED64:
        p += 9
    elif wire_type == FIXED32:
        p += 5
    else:
        return -1
    return p if p <= end else -1


@inlined
def equal(a: UInt8Array, i: int, b: UInt8Array, j: int, length: int) -> bool:
    """Whether `length` bytes from a[i] equal those from b[j]."""
    if length < 8:
        for k in range(length):  # noqa: SIM110  numba has no all()
            if a[i + k] != b[j + k]:
                return False
        return True
    last = length - 8
    k = 0
    while k < last:
        if load64(a, i + k) != load64(b, j + k):
            return False
        k += 8
    return bool(load64(a, i + last) == load64(b, j + last))


@routine
def hash_bytes(b: UInt8Array, p: int, length: int, seed: np.uint64) -> np.uint64:
    """A seeded 64-bit hash, 16 bytes a step, after wyhash (Wang Yi); equality never rests on it."""
    value = fold_multiply(seed ^ _LEFT, np.uint64(length) ^ _RIGHT)
    end = p + length
    while p + 16 <= end:
        value = fold_multiply(load64(b, p) ^ value, load64(b, p + 8) ^ _RIGHT)
        p += 16
    if p + 8 <= end:
        value = fold_multiply(load64(b, p) ^ value, _LEFT)
        p += 8
    rest = np.uint64(0)
    while p < end:
        rest = (rest << np.uint64(8)) | np.uint64(b[p])
        p += 1
    return np.uint64(fold_multiply(rest ^ value, _RIGHT))


@routine
def is_ascii(b: UInt8Array, p: int, end: int) -> bool:
    """Whether no byte from p to end is above 127."""
    high = np.uint64(0)
    while p + 8 <= end:
        high |= load64(b, p)
        p += 8
    while p < end:
        high |= np.uint64(b[p])
        p += 1
    return bool(high & np.uint64(0x8080808080808080) == 0)
