"""Protobuf fields as bytes: pure functions, from which the encoder builds messages."""

import struct
from typing import Final

_FIXED64: Final = struct.Struct("<BQ")
_DOUBLE: Final = struct.Struct("<Bd")
_TIMES: Final = struct.Struct("<BQBQ")

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
"""Wire types of protobuf. A field's tag is its number, shifted by three bits, and the wire type: field 2 as FIXED64 is
`0x11`."""
_FIRST: Final = 1 << 3 | DELIMITED


def varint(value: int) -> bytes:
    """A non-negative integer, 7 bits a byte, lowest first."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """Encode a sint32 as a non-negative integer: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return 2 * value if value >= 0 else -2 * value - 1


def integer(number: int, value: int) -> bytes:
    """A varint field with a number below 16."""
    return bytes((number << 3 | VARINT,)) + varint(value)


def delimited(number: int, *parts: bytes) -> bytes:
    """A field with a number below 16 that holds bytes, text or a message, of the parts in order."""
    body = b"".join(parts)
    return bytes((number << 3 | DELIMITED,)) + varint(len(body)) + body


def delimited_head(number: int, length: int) -> bytes:
    """Return the tag and length before the content of `delimited(number, …)`, whose content has `length` bytes."""
    return bytes((number << 3 | DELIMITED,)) + varint(length)


def delimited_first(body: bytes) -> bytes:
    """`delimited(1, body)`, for the many short ones."""
    length = len(body)
    if length < 0x80:
        return bytes((_FIRST, length)) + body
    if length < 0x4000:
        return bytes((_FIRST, length & 0x7F | 0x80, length >> 7)) + body
    return delimited(1, body)


def text(number: int, value: str) -> bytes:
    """A string field; what UTF-8 cannot hold (halves of surrogate pairs) becomes `?`."""
    return delimited(number, value.encode("utf-8", "replace")) if value else b""


def fixed64(number: int, value: int) -> bytes:
    """A fixed64 field with a number below 16."""
    return _FIXED64.pack(number << 3 | FIXED64, value)


def two_fixed64(number: int, value: int, next_number: int, next_value: int) -> bytes:
    """Two fixed64 fields after each other."""
    return _TIMES.pack(number << 3 | FIXED64, value, next_number << 3 | FIXED64, next_value)


def double(number: int, value: float) -> bytes:
    """A double field with a number below 16."""
    return _DOUBLE.pack(number << 3 | FIXED64, value)
