"""Lines of a journal file: one JSON object each, appended by every process of a program on a node."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

LARGEST_BYTES: Final = 1 << 20
"""Of the file that is read; of a longer one, the end is read."""
LOCK_TRIES: Final = 5
LOCK_SECONDS: Final = 0.001


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a journal, oldest first; lines that are no object are left out.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LARGEST_BYTES))
        for line in file.read().splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line)
                if isinstance(found, dict):
                    yield found


def append(path: Path, *added: dict[str, Any]) -> None:
    """Append objects; the operating system has them when this returns, so they outlive this process.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, b"".join(map(_encoded, added)))
    finally:
        os.close(descriptor)


def replace(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Replace the file by these lines, unless another process does so or appends at this moment.

    Raises:
        OSError: The file cannot be written.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        written = path.with_suffix(f".{os.getpid()}.new")
        written.write_bytes(b"".join(map(_encoded, lines)))
        written.replace(path)
    finally:
        os.close(descriptor)


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _open(path: Path, flags: int) -> int:
    """Open with a shared lock, so that no line is lost in a replacement; waits at most some milliseconds for it."""
    for attempt in range(LOCK_TRIES):
        descriptor = os.open(path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            if attempt == LOCK_TRIES - 1:
                break
            os.close(descriptor)
            time.sleep(LOCK_SECONDS)
        else:
            break
    return descriptor
