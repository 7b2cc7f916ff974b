"""Messages between the exporter and the process that calls NVML: a length of 4 bytes (little-endian), then JSON."""

import json
import os
import struct
from collections.abc import Mapping
from typing import Any, Final

_LENGTH: Final = struct.Struct("<I")
MAX_BYTES: Final = 64 * 2**20
"""Far beyond the answer of a node with 16 GPUs and 1,000 processes; a length above it is an error."""
READ_BYTES: Final = 256 * 1024


def send(file: int, message: Mapping[str, Any]) -> None:
    """Write a message.

    Raises:
        OSError: The other side is gone.
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    data = memoryview(_LENGTH.pack(len(body)) + body)
    while data:
        data = data[os.write(file, data) :]


class MessageAssembler:
    """Assembles messages from the reads of a pipe.

    Args:
        file: The pipe's file descriptor.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._waiting = bytearray()

    def next_message(self) -> dict[str, Any] | None:
        """Return the next complete message of the bytes read so far; None if there is none.

        Raises:
            ValueError: The bytes are no message.
        """
        if len(self._waiting) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._waiting)
        if length > MAX_BYTES:
            raise ValueError(f"a message of {length} bytes; at most {MAX_BYTES} make sense")
        end = _LENGTH.size + length
        if len(self._waiting) < end:
            return None
        body, self._waiting = bytes(self._waiting[_LENGTH.size : end]), self._waiting[end:]
        message: dict[str, Any] = json.loads(body)
        return message

    def read(self) -> bool:
        """Read from the pipe, waiting for the first bytes; False at its end.

        Raises:
            OSError: It cannot be read.
        """
        data = os.read(self._file, READ_BYTES)
        self._waiting += data
        return bool(data)
