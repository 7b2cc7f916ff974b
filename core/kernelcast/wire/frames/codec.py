"""Frames to packets and back: `encode` and `decode`, pure functions that both ends of the probe's socket call.

The socket is SOCK_SEQPACKET: one frame is one packet, so a reader never sees half of one. Each packet begins with
`HEADER`; a control frame's JSON follows, or packed rows (`wire.frames.rows`). Example, the bytes of
a `Bye`, which are magic, version 2, type 8, then JSON with the reason "exit":

    4b 43  02  08  7b 22 72 65 61 73 6f 6e 22 3a 22 65 78 69 74 22 7d
"""

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from kernelcast.wire.errors import FrameError
from kernelcast.wire.event_data import UNREADABLE, from_data, to_data
from kernelcast.wire.frames.messages import (
    Bye,
    Counters,
    Frame,
    Hello,
    HintFrame,
    Names,
    OutcomeFrame,
    OutcomesConfirmed,
    Reception,
    StacksRequest,
    Status,
    Tunables,
)
from kernelcast.wire.frames.rows import KernelRows, VariantRows, pack, unpack

MAGIC: Final = b"KC"
PROTOCOL_VERSION: Final = 2
"""Rises when an old reader would misread a frame. A new frame type or JSON field does not raise it."""
MAX_FRAME_BYTES: Final = 64 * 1024
"""Well under the default socket buffer (net.core.wmem_default, 208 KiB), so one frame always fits."""
HEADER: Final = struct.Struct("<2sBB")
"""Magic, protocol version, frame type."""

# How a type number is read: control frames from JSON, the others from packed rows.
_CONTROL: Final = {
    kind.TYPE: kind
    for kind in (
        *(Hello, Names, Counters, Tunables, HintFrame, OutcomeFrame, OutcomesConfirmed, Reception, Bye, Status),
        StacksRequest,
    )
}
_PACKED: Final[dict[int, type[KernelRows | VariantRows]]] = {kind.TYPE: kind for kind in (KernelRows, VariantRows)}
_Item = TypeVar("_Item")


def encode(frame: Frame) -> Iterator[bytes]:
    """Packets for a frame; rows, `Names` and `OutcomesConfirmed` that are too long become several frames.

    Raises:
        FrameError: A single item is longer than a frame may be.
    """
    head = HEADER.pack(MAGIC, PROTOCOL_VERSION, frame.TYPE)
    if isinstance(frame, KernelRows | VariantRows):
        yield from (head + body for body in pack(frame, MAX_FRAME_BYTES - HEADER.size))
        return
    body = json.dumps(to_data(frame), separators=(",", ":"), ensure_ascii=False).encode()
    if len(head) + len(body) <= MAX_FRAME_BYTES:
        yield head + body
    elif isinstance(frame, Names) and len(frame.names) > 1:
        for half in _halves(frame.names):
            yield from encode(Names(half))
    elif isinstance(frame, OutcomesConfirmed) and len(frame.event_ids) > 1:
        for ids in _halves(frame.event_ids):
            yield from encode(OutcomesConfirmed(ids))
    else:
        raise FrameError(
            f"{type(frame).__name__} frame is {len(body)} bytes; the limit is {MAX_FRAME_BYTES}; "
            "shorten names or register fewer tunables"
        )


def decode(packet: bytes) -> Frame:
    """The frame in a packet.

    Raises:
        FrameError: Not a frame of this protocol version, or one that breaks it.
    """
    if len(packet) > MAX_FRAME_BYTES:
        raise FrameError(f"frame is {len(packet)} bytes; the limit is {MAX_FRAME_BYTES}; use the probe of this version")
    if len(packet) < HEADER.size:
        raise FrameError(f"frame is {len(packet)} bytes; a header is {HEADER.size}; it was cut off")
    magic, version, kind = HEADER.unpack_from(packet)
    if magic != MAGIC or version != PROTOCOL_VERSION:
        raise FrameError(
            f"frame starts with {magic!r} version {version}; expected {MAGIC!r} version {PROTOCOL_VERSION}; "
            "install the same kernelcast in the program and on the node"
        )
    body = packet[HEADER.size :]
    if kind in _PACKED:
        return unpack(_PACKED[kind], body)
    if kind not in _CONTROL:
        raise FrameError(f"frame type is {kind}; known types are 1 to 13; install the same kernelcast on both sides")
    return _decode_control(_CONTROL[kind], body)


def _decode_control(kind: type[Any], body: bytes) -> Frame:
    try:
        values = json.loads(body)
        # JSON can spell half a surrogate pair, which no label, record key or protobuf text can hold.
        json.dumps(values, ensure_ascii=False).encode()
        frame: Frame = from_data(kind, values)
    except UNREADABLE as error:
        raise FrameError(f"{kind.__name__} frame is malformed: {error}; it is ignored") from error
    return frame


def _halves(items: Sequence[_Item]) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    middle = len(items) // 2
    return tuple(items[:middle]), tuple(items[middle:])
