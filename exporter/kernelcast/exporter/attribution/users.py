"""User name of a process, from the node's own list of users: a directory service could block."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kernelcast.exporter.attribution.cgroup import PROC

PASSWD: Final = Path("/etc/passwd")


def read_users(passwd: Path = PASSWD) -> Mapping[int, str]:
    """User ids to names; of several names the first, as for the system. Format: passwd(5)."""
    rows = (line.split(":") for line in reversed(passwd.read_text(errors="replace").splitlines()))
    return {int(row[2]): row[0] for row in rows if len(row) >= 3 and row[2].isdecimal()}


def user_of(pid: int, users: Mapping[int, str], proc: Path = PROC) -> str:
    """Return the name of a process's user, `uid:1234` for a user without a name; empty if the process has ended."""
    try:
        uid = (proc / str(pid)).stat().st_uid
    except OSError:
        return ""
    return users.get(uid, f"uid:{uid}")
