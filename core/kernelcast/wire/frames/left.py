"""The report that a process leaves for an exporter that is away: its frames in a file of a directory beside the socket.

The exporter makes the directory; a program may create files in it, and see no names. A file's name is the process's
nonce. Its content is packets as on the socket, `Hello` first, each after its length in four bytes; the last one is
`Bye` if the process has ended. The probe (`probe.reporting`) writes it and the exporter (`exporter.programs`) reads it.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from kernelcast.wire.errors import FrameError

MAX_LEFT_BYTES: Final = 2**20
"""Limit of one file; 170 kernels with 30 histogram buckets each take 0.1 MiB."""
LEFT_NAME: Final = re.compile(r"[0-9a-f]{16}")
"""Name of a file: a nonce as `identity.new_nonce` makes it."""
UNFINISHED: Final = ".tmp"
"""Suffix of a file that is being written."""
_LENGTH: Final = struct.Struct("<I")


def left_directory(socket_path: str) -> str:
    """Return the directory that belongs to a socket.

    >>> left_directory("/run/kernelcast/probe.sock")
    '/run/kernelcast/probe.sock.left'
    """
    return f"{socket_path}.left"


def stacks_directory(socket_path: str) -> str:
    """Return the directory in which the programs of a socket write the stacks of their threads; names are nonces.

    >>> stacks_directory("/run/kernelcast/probe.sock")
    '/run/kernelcast/probe.sock.stacks'
    """
    return f"{socket_path}.stacks"


def join_packets(packets: Iterable[bytes]) -> bytes:
    """Return the content of a file.

    >>> list(split_packets(join_packets([b"first", b"second"])))
    [b'first', b'second']
    """
    return b"".join(part for packet in packets for part in (_LENGTH.pack(len(packet)), packet))


def joined_bytes(packet: bytes) -> int:
    """Return the size of a packet in a file."""
    return _LENGTH.size + len(packet)


def split_packets(content: bytes) -> Iterator[bytes]:
    """Return the packets of a file.

    Raises:
        FrameError: It ends within a packet; the packets before have been returned.
    """
    at = 0
    while at < len(content):
        begin = at + _LENGTH.size
        end = begin + _LENGTH.unpack_from(content, at)[0] if begin <= len(content) else begin
        if end > len(content):
            raise FrameError(f"left report has {len(content)} bytes, and a packet that ends at {end}; it is damaged")
        yield content[begin:end]
        at = end
