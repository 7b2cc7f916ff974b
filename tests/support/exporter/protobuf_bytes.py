"""Protobuf by hand, from field numbers: a double's answers must not come from the classes under test."""

import struct


def number(field: int, value: int) -> bytes:
    """An integer or a truth value."""
    return _varint(field << 3) + _varint(value & (2**64 - 1))


def real(field: int, value: float) -> bytes:
    """A double."""
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def part(field: int, body: bytes | str) -> bytes:
    """A text, or a message within a message."""
    raw = body.encode() if isinstance(body, str) else body
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def packed(field: int, values: list[int]) -> bytes:
    """Repeated integers, as proto3 writes them."""
    return part(field, b"".join(_varint(value) for value in values))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
