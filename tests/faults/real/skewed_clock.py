"""Clocks of processes that a schedule can set while they run; see `skewed_clock.c`."""

import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_suffix(".c")


class SkewedClock:
    """The Unix time of the processes that run with `environ`.

    Attributes:
        ahead_seconds: How far it is ahead of the machine's; negative if it is behind.
        environ: Variables of a process that has this clock.
    """

    def __init__(self, path: Path, library: Path) -> None:
        """Begin with the machine's time.

        Args:
            path: A file that is made for this clock.
            library: What `build` gave.
        """
        self._path, self.ahead_seconds = path, 0.0
        path.write_bytes(struct.pack("=q", 0))
        self.environ = {"LD_PRELOAD": str(library), "SKEW_FILE": str(path)}

    def set(self, ahead_seconds: float) -> None:
        """Set it ahead of the machine's, or behind; at once, for all its processes."""
        self.ahead_seconds = ahead_seconds
        with self._path.open("r+b") as file:
            file.write(struct.pack("=q", round(ahead_seconds * 1e9)))


def build(folder: Path) -> Path:
    """Compile the library; where it is."""
    library = folder / "skewed_clock.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", str(SOURCE), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library
