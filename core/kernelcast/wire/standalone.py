"""Where the exporter that a user's programs start beside them keeps its files: they make them, `kernelcast top` reads.

Each directory is the user's alone.
"""

from collections.abc import Mapping
from typing import Final

LIFE_LINE: Final = "life.sock"
"""The socket to which its programs stay connected; it is there while the exporter takes programs."""
PROBE_SOCKET: Final = "probe.sock"
"""The socket on which it listens for their reports."""
PORT: Final = "port"
"""The file with the port of its page, on 127.0.0.1."""


def directories(environ: Mapping[str, str], user: int) -> tuple[str, ...]:
    """Return where the files may be, the first usable one before others.

    Args:
        environ: Its `XDG_RUNTIME_DIR` may be that of another node: Slurm passes the login node's on.
        user: Number of the user.

    >>> directories({"XDG_RUNTIME_DIR": "/run/user/7"}, 7)
    ('/run/user/7/kernelcast', '/tmp/kernelcast-7')
    """
    runtime, own = environ.get("XDG_RUNTIME_DIR", ""), f"/tmp/kernelcast-{user}"  # noqa: S108  its owner is checked
    return (f"{runtime}/kernelcast", own) if runtime else (own,)
