"""Forks processes whose parent is not the process that forks. It imports nothing but the standard library."""

import os
from collections.abc import Callable


def fork_orphan(run: Callable[[], None]) -> int:
    """Run a function in a process that is no child of this one; returns its process id.

    Its parent is the nearest child subreaper (see prctl(2)) above this process.

    Args:
        run: The function; it ends its process.
    """
    reading, writing = os.pipe()
    between = os.fork()
    if not between:
        pid = os.fork()
        if not pid:
            os.close(reading)
            os.close(writing)
            run()
        os.write(writing, b"%d" % pid)
        os._exit(0)
    os.waitpid(between, 0)  # from now on the process belongs to the subreaper
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return int(pipe.read())
