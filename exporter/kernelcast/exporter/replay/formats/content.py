"""Reading a recording's file: decompressed as far as it goes, hashed, and never more than a limit."""

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from kernelcast.wire.errors import TraceError

MAX_TRACE_BYTES: Final = 256 * 1024**2
"""A trace is parsed in memory and takes several times its size; profilers write one file per rank and few steps."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_CHUNK_BYTES: Final = 1024**2
_DIGEST_BYTES: Final = 8


def digest(path: Path) -> str:
    """Digest of the file's content, 16 hex digits.

    Raises:
        TraceError: The file cannot be read.
    """
    total = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                total.update(chunk)
    except OSError as error:
        raise unreadable(path, error) from error
    return total.hexdigest()


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds; `damage` says why its gzip could not be read to the end, empty where it was."""

    text: bytearray
    damage: str = ""


def read(path: Path, *, max_bytes: int = MAX_TRACE_BYTES) -> Content:
    """The file's content, decompressed where it is gzip, whatever its name; of damaged gzip, what comes before.

    Args:
        path: The file.
        max_bytes: The most it may be once decompressed.

    Raises:
        TraceError: The file cannot be read, or is longer than `max_bytes`.
    """
    text = bytearray()
    try:
        with path.open("rb") as file:
            compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            file.seek(0)
            if not compressed:
                _append(text, path, file, max_bytes)
            else:
                with gzip.open(file) as plain:
                    _append(text, path, plain, max_bytes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return Content(text, str(error).rstrip("."))
    except OSError as error:
        raise unreadable(path, error) from error
    return Content(text)


def unreadable(path: Path, error: OSError) -> TraceError:
    """Make the error for a file that the system cannot read."""
    return TraceError(f"{path} cannot be read: {error.strerror or error}; check the path and its permissions")


def _append(text: bytearray, path: Path, file: BinaryIO | gzip.GzipFile, max_bytes: int) -> None:
    """Read by chunks: one reading of `max_bytes` would reserve as much memory, however short the file is."""
    while chunk := file.read1(_CHUNK_BYTES):  # type: ignore[union-attr]  # a file opened for reading bytes has it
        text += chunk
        if len(text) > max_bytes:
            raise TraceError(
                f"{path} holds more than {max_bytes} bytes; the limit is {max_bytes}; record fewer steps, or raise it "
                "with `kernelcast replay kineto --max-bytes`, at several times as much memory"
            )
