"""Lines of a journal file: one JSON object each, appended by every process of a program on a node.

`Journal` and the probe's outcomes that wait for an exporter are stored so. Locks of the file (flock) order appending
(shared) and replacing (exclusive).
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

LARGEST_BYTES: Final = 1 << 24
"""Of the file that is read; of a longer one, the end is read. All ranks of a node write some megabytes in a run."""
LOCK_TRIES: Final = 5
LOCK_SECONDS: Final = 0.001
"""Wait between two tries for the lock; five milliseconds in all, because the program waits, too."""
APPENDING: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a journal, oldest first; lines that are no object are left out.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LARGEST_BYTES))
        for line in file:
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict):
                    yield value


def append(path: Path, *added: dict[str, Any]) -> None:
    """Append objects; the operating system has them when this returns, so they outlive this process.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open_shared(path)
    try:
        os.write(descriptor, b"".join(map(_encoded, added)))
    finally:
        os.close(descriptor)


def replace(path: Path, make: Callable[[], Iterable[dict[str, Any]]]) -> None:
    """Replace the content of the file, unless another process replaces it or appends at this moment.

    Args:
        path: The file.
        make: Returns the new lines. It is called under the exclusive lock. Lines that processes append meanwhile,
            because they do not wait for the lock, follow the new ones.

    Raises:
        OSError: The file cannot be written, or another process has it locked.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_current(descriptor, path):
            written = path.with_suffix(f".{os.getpid()}.new")
            size = os.fstat(descriptor).st_size
            try:
                content = b"".join(map(_encoded, make()))
                written.write_bytes(content + _read_from(descriptor, size))
                written.replace(path)
            except BaseException:
                written.unlink(missing_ok=True)
                raise
    finally:
        os.close(descriptor)


def _read_from(descriptor: int, place: int) -> bytes:
    return os.pread(descriptor, max(0, os.fstat(descriptor).st_size - place), place)


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _open_shared(path: Path) -> int:
    """Open a file to append, with a shared lock, so that no line is lost in a replacement.

    A lock belongs to the file, not to its path. If the file was replaced between `open` and `flock`, the lock is that
    of the old file, and the path is opened again. After some milliseconds the file is opened without a lock, because
    the program must not wait.
    """
    for _ in range(LOCK_TRIES):
        descriptor = os.open(path, APPENDING, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOCK_SECONDS)
        else:
            if _is_current(descriptor, path):
                return descriptor
        os.close(descriptor)
    return os.open(path, APPENDING, 0o644)


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
