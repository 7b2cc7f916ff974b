"""Encoding of one message in a segment: length, checksum, and the message."""

import re
import struct
import zlib
from dataclasses import dataclass
from typing import Final

_HEAD: Final = struct.Struct("<II")
"""Length of the body in bytes, and its CRC-32."""
_BODY: Final = struct.Struct("<Qii")
"""Time of sending, Unix nanoseconds; lengths of key and value in bytes, -1 for none."""

_WHOLE: Final = struct.Struct("<IIQii")
"""Both headers, one after the other."""

_PLAUSIBLE: Final = re.compile(
    rb"(?=(?!\x00{4})...[\x00\x01].{12}(?:\xff{4}|...[\x00\x01])(?:\xff{4}|...[\x00\x01]))", re.DOTALL
)
"""Pattern of a possible begin of a record: its length is not 0, and no length is above `MAX_BODY_BYTES`."""

HEAD_BYTES: Final = _HEAD.size
MAX_BODY_BYTES: Final = 16 * 2**20
"""Above the limit of any topic; a greater length means damage."""


@dataclass(frozen=True, slots=True)
class SpooledMessage:
    """A message that waits for Kafka.

    Attributes:
        time_ns: When it was sent, Unix nanoseconds.
        key: Its key; None without.
        value: Its value; None for a tombstone.
    """

    time_ns: int
    key: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """Size on disk, and about the size in memory."""
        return HEAD_BYTES + _BODY.size + len(self.key or b"") + len(self.value or b"")


def pack(record: SpooledMessage) -> bytes:
    """Encode a record."""
    key, value = (b"" if part is None else part for part in (record.key, record.value))
    lengths = (-1 if part is None else len(part) for part in (record.key, record.value))
    body = _BODY.pack(record.time_ns, *lengths) + key + value
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def body_length(head: bytes) -> int:
    """Return the length in a record's head; -1 if the head is incomplete or invalid."""
    if len(head) < HEAD_BYTES:
        return -1
    length: int = _HEAD.unpack(head)[0]
    return length if _BODY.size <= length <= MAX_BODY_BYTES else -1


def possible_lengths(data: bytes, offset: int) -> tuple[int, ...]:
    """Return the valid ones of the lengths of a damaged record's body: by its head, and by the lengths in its body."""
    found = [body_length(data[offset : offset + HEAD_BYTES])]
    if len(data) - offset >= _WHOLE.size:
        *_, key_length, value_length = _WHOLE.unpack_from(data, offset)
        if key_length >= -1 and value_length >= -1:
            found.append(_BODY.size + max(key_length, 0) + max(value_length, 0))
    return tuple(length for length in found if 0 <= length <= MAX_BODY_BYTES)


def unpack(data: bytes) -> SpooledMessage | None:
    """Decode a record, head and body; None if it is incomplete or damaged."""
    length = body_length(data[:HEAD_BYTES])
    body = data[HEAD_BYTES:]
    if length < 0 or len(body) != length or zlib.crc32(body) != _HEAD.unpack(data[:HEAD_BYTES])[1]:
        return None
    time_ns, key_length, value_length = _BODY.unpack_from(body)
    key_end = _BODY.size + max(key_length, 0)
    if key_end + max(value_length, 0) != length:
        return None
    key = None if key_length < 0 else body[_BODY.size : key_end]
    return SpooledMessage(time_ns, key, None if value_length < 0 else body[key_end:])


def find(data: bytes, start: int) -> int:
    """Return the offset of the first undamaged record at or after `start`; -1 if there is none.

    The three lengths of a record rarely agree by chance, so the checksum is computed for few places.
    """
    for place in _PLAUSIBLE.finditer(data, start):
        offset = place.start()
        length, checksum, _time_ns, key_length, value_length = _WHOLE.unpack_from(data, offset)
        if length != _BODY.size + max(key_length, 0) + max(value_length, 0):
            continue
        end = offset + HEAD_BYTES + length
        if end <= len(data) and zlib.crc32(data[offset + HEAD_BYTES : end]) == checksum:
            return offset
    return -1
