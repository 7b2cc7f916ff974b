"""Compressed messages: unpacked, and never to more than a message may be, whatever their header promises."""

import zlib
from typing import Final

import cramjam

from kernelcast.bridge.inputs.parsing import too_long
from kernelcast.columnar import DecoderLimits
from kernelcast.wire.errors import DecodeError

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""zlib's way to ask for gzip's own header."""
_STEP_BYTES: Final = 256 * 1024
"""Smallest first buffer for a zstd message; it grows fourfold until the message fits."""
_SLICE_BYTES: Final = 64 * 1024
"""Input per call of zlib."""
MAX_GZIP_MEMBERS: Final = 10_000
"""A member may be empty, so the limit on the unpacked size alone does not bound the cost of a message."""
ENCODINGS: Final = ("identity", "gzip", "zstd", "snappy")


def snappy(message: bytes, limits: DecoderLimits) -> bytes:
    """Snappy's block format, as remote write has it.

    Raises:
        DecodeError: It is none, or longer than a message may be.
    """
    length = snappy_length(message)
    if length is None:
        raise _corrupt("snappy", message, "it does not begin with its length")
    if length > limits.message_bytes:
        raise too_long(length, limits)
    try:
        return bytes(cramjam.snappy.decompress_raw(message))
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", message, str(error)) from None


def snappy_length(message: bytes) -> int | None:
    """Unpacked length in the head of a snappy block; None where it is damaged."""
    try:
        return int(cramjam.snappy.decompress_raw_len(message)) if message else None
    except cramjam.DecompressionError:
        return None


def unpacked(message: bytes, encoding: str, limits: DecoderLimits) -> bytes:
    """A message without its compression.

    Args:
        message: The bytes.
        encoding: One of ENCODINGS, as HTTP's `Content-Encoding` names them.
        limits: `message_bytes` is the longest result.

    Raises:
        DecodeError: It is not in the stated compression, or too long.
    """
    if encoding == "gzip":
        return _gzip(message, limits)
    if encoding == "zstd":
        return _zstd(message, limits)
    if encoding == "snappy":
        return snappy(message, limits)
    if encoding in ("", "identity"):
        return message
    raise DecodeError(
        f"message's encoding is {encoding[:60]!r}; known are {', '.join(ENCODINGS)}; change the producer's compression"
    )


def _gzip(message: bytes, limits: DecoderLimits) -> bytes:
    """Decompress all members of a gzip file and join them (RFC 1952, section 2.2); nothing may follow the last one.

    The input is passed in slices, because zlib copies its remaining input at the end of each member: for a message of a
    thousand members that would be a thousand copies of the message.
    """
    contents: list[bytes] = []
    at, members, room, view = 0, 0, limits.message_bytes, memoryview(message)
    while at < len(message) or not members:
        members += 1
        if members > MAX_GZIP_MEMBERS:
            raise _too_many_members(message)
        decompressor = zlib.decompressobj(_GZIP_WINDOW)
        while not decompressor.eof:
            if at >= len(message):
                raise _corrupt("gzip", message, "it ends too early")
            piece = view[at : at + _SLICE_BYTES]
            try:
                contents.append(decompressor.decompress(piece, room + 1))
            except zlib.error as error:
                raise _corrupt("gzip", message, f"member {members}: {error}") from None
            room -= len(contents[-1])
            if room < 0:
                raise too_long(limits.message_bytes - room, limits)
            at += len(piece) - len(decompressor.unused_data)
    return b"".join(contents)


def _too_many_members(message: bytes) -> DecodeError:
    return DecodeError(
        f"message of {len(message)} bytes has more gzip members; the limit is {MAX_GZIP_MEMBERS}; compress it as one "
        "member"
    )


def _zstd(message: bytes, limits: DecoderLimits) -> bytes:
    size = min(limits.message_bytes, max(_STEP_BYTES, 8 * len(message)))
    while True:
        room = bytearray(size + 1)
        try:
            length = cramjam.zstd.decompress_into(message, room)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise _corrupt("zstd", message, str(error)) from None
            if size >= limits.message_bytes:
                raise too_long(size + 1, limits) from None
            size = min(limits.message_bytes, 4 * size)
            continue
        if length > limits.message_bytes:
            raise too_long(length, limits)
        return bytes(room[:length])


def _corrupt(name: str, message: bytes, reason: str) -> DecodeError:
    return DecodeError(
        f"message of {len(message)} bytes is no {name}: {reason[:200]}; look at the producer, or at what lies between "
        "it and the topic"
    )
