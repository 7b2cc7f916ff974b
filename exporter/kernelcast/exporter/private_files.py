"""Files and directories that only the exporter's user may read or write: its state, its spool."""

import os
import stat
from pathlib import Path
from typing import Final

from kernelcast.runtime.logging import get_logger

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

_log = get_logger(__name__)


def make_directory(directory: Path) -> None:
    """Make a directory where it is missing; a warning names one that other users may write.

    Raises:
        OSError: It cannot be made.
    """
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        _log.warning(
            "other users may write the exporter's directory, and so change totals and forge messages",
            directory=str(directory),
            mode=f"{mode:04o}",
            remedy=f"chmod go-w {directory}",
        )


def open_private(path: Path, flags: int) -> int:
    """Open a file, and return its descriptor; a file that is made here has mode 0600.

    Raises:
        OSError: It cannot be opened.
    """
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def write_private(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file anew, with mode 0600.

    Args:
        path: The file.
        content: Its content.
        sync: Whether to wait until the disk has it.

    Raises:
        OSError: It cannot be written.
    """
    path.unlink(missing_ok=True)  # a file of another mode
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())
