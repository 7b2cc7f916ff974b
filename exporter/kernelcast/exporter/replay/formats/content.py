"""Reading a recording's file: decompressed, hashed, and never more than a limit."""

import gzip
import hashlib
import zlib
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


def read(path: Path, *, max_bytes: int = MAX_TRACE_BYTES) -> bytearray:
    """The file's content, decompressed where it is gzip, whatever its name.

    Args:
        path: The file.
        max_bytes: The most it may be once decompressed.

    Raises:
        TraceError: The file cannot be read, is damaged, or is longer than `max_bytes`.
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            file.seek(0)
            if not compressed:
                return _bounded(path, file, max_bytes)
            with gzip.open(file) as plain:
                return _bounded(path, plain, max_bytes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path} is damaged gzip: {error}; copy or record it again") from error
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> TraceError:
    """Make the error for a file that the system cannot read."""
    return TraceError(f"{path} cannot be read: {error.strerror or error}; check the path and its permissions")


def _bounded(path: Path, file: BinaryIO | gzip.GzipFile, max_bytes: int) -> bytearray:
    """The content by chunks: one reading of `max_bytes` would reserve as much memory, however short the file is."""
    content = bytearray()
    while chunk := file.read(_CHUNK_BYTES):
        content += chunk
        if len(content) > max_bytes:
            raise TraceError(
                f"{path} holds more than {max_bytes} bytes; the limit is {max_bytes}; record fewer steps, or raise it "
                "with `kernelcast replay kineto --max-bytes`, at several times as much memory"
            )
    return content
