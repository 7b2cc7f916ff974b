"""Reads what the kernel says about a process in `/proc/PID/stat`; see proc_pid_stat(5)."""

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


def stat_fields(pid: int, proc: Path = PROC) -> list[bytes]:
    """The fields after the process's name, which may have any bytes in it: state, parent's pid and so on.

    Raises:
        OSError: There is no such process, or it cannot be read.
    """
    return (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
