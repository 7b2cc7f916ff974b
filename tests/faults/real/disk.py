"""A small disk that a schedule can fill to its last byte: a tmpfs, for which the test must be allowed to mount."""

import contextlib
import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

SIZE_BYTES: Final = 8 * 2**20
BLOCK_BYTES: Final = 4096


class SmallDisk:
    """A tmpfs of 8 MiB, mounted on a folder until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        _mount(folder)
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Take all that is free, so that every write fails with ENOSPC."""
        with self._filler.open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(BLOCK_BYTES))

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it, also while a process that is about to end has a file open there."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)


@functools.cache
def small_disk_obstacle() -> str:
    """Reason for which this machine can have no small disk; empty where it can."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            SmallDisk(Path(folder, "try")).close()
        except subprocess.CalledProcessError as error:
            return f"mounting a tmpfs is not allowed: {error.stderr.decode().strip()}"
        except FileNotFoundError as error:
            return f"{error.filename} is not on this machine"
    return ""


def _mount(folder: Path) -> None:
    options = f"size={SIZE_BYTES},mode=0700,uid={os.getuid()}"
    command = ["mount", "-t", "tmpfs", "-o", options, "faults", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
