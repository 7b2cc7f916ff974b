"""One message of a saved state: named arrays and a text, versioned, checksummed, compressed.

`StateWriter` packs the messages, `StateReader` unpacks them.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.wire.errors import WireError

Array = NDArray[Any]

MAGIC: Final = b"KCPW"
VERSION: Final = 2

MAX_PART_BYTES: Final = 64 * 1024 * 1024
"""Largest inflated size that is read: a damaged length must not take all memory."""
_HEAD: Final = struct.Struct(
    "<4sHIIIQQ"
)  # magic, version, checksum, length when inflated, of the text, epoch, sequence
_REMEDY: Final = "its series are read again from Kafka"


@dataclass(frozen=True, slots=True, eq=False)
class StatePart:
    """One message.

    Attributes:
        epoch: Identifies the writer; a later writer has a larger one.
        sequence: Number of the snapshot that it belongs to.
        text: Names and numbers.
        arrays: Columns by name.
    """

    epoch: int
    sequence: int
    text: Mapping[str, Any]
    arrays: Mapping[str, Array]


def order_of(value: bytes) -> tuple[int, int]:
    """Epoch and sequence of a message, without unpacking it.

    Raises:
        WireError: It is too short, or of another version.
    """
    if len(value) < _HEAD.size:
        raise WireError(f"state part is {len(value)} bytes; a head is {_HEAD.size}; {_REMEDY}")
    magic, version, *_, epoch, sequence = _HEAD.unpack_from(value)
    if magic != MAGIC or version != VERSION:
        raise WireError(f"state part is {magic!r} version {version}; expected {MAGIC!r} version {VERSION}; {_REMEDY}")
    return epoch, sequence


def pack(part: StatePart) -> bytes:
    """A message."""
    described = [[name, array.dtype.str, array.shape] for name, array in part.arrays.items()]
    text = json.dumps({**part.text, "arrays": described}, separators=(",", ":")).encode()
    whole = b"".join([text, *(_shuffled(array) for array in part.arrays.values())])
    packed = zlib.compress(whole, 1)
    checksum = zlib.crc32(packed)
    return _HEAD.pack(MAGIC, VERSION, checksum, len(whole), len(text), part.epoch, part.sequence) + packed


def unpack(value: bytes) -> StatePart:
    """The content of a message.

    Raises:
        WireError: It is corrupt or of another version.
    """
    epoch, sequence = order_of(value)
    checksum, length, text_length = _HEAD.unpack_from(value)[2:5]
    packed = memoryview(value)[_HEAD.size :]
    if zlib.crc32(packed) != checksum or length > MAX_PART_BYTES or text_length > length:
        raise WireError(f"state part of {len(value)} bytes does not match its checksum; {_REMEDY}")
    try:
        whole = zlib.decompressobj().decompress(packed, max(length, 1))  # 0 would have no limit
        text = json.loads(whole[:text_length])
        return StatePart(epoch, sequence, text, _arrays(text.pop("arrays"), memoryview(whole)[text_length:]))
    except (zlib.error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireError(f"state part has another shape: {error}; {_REMEDY}") from error


def _shuffled(array: Array) -> bytes:
    """The first bytes of all items, then the second ones, and so on: like bytes compress well together."""
    plain = np.ascontiguousarray(array)
    if plain.dtype.itemsize == 1:
        return plain.tobytes()
    return plain.reshape(-1).view(np.uint8).reshape(-1, plain.dtype.itemsize).T.tobytes()


def _arrays(described: list[Any], content: memoryview) -> dict[str, Array]:
    arrays, begin = {}, 0
    for name, kind, shape in described:
        dtype = np.dtype(kind)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        planes = np.frombuffer(content[begin : begin + size], np.uint8).reshape(dtype.itemsize, -1)
        arrays[name] = np.ascontiguousarray(planes.T).reshape(-1).view(dtype).reshape(shape)
        begin += size
    if begin != len(content):
        raise ValueError(f"{len(content)} bytes of columns; {begin} described")
    return arrays
