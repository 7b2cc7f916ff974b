"""Forks ranks from a process that has imported PyTorch, because the import takes seconds of a core.

It answers the requests of `tests.service.nursery.Nursery`: `{"arguments": [SCRIPT, …], "log": PATH, "environ": {…}}` a
line, with the rank's process id. The rank runs the script; its standard input never has anything, and never ends. It
joins the user and network namespaces of the process that the variable `NAMESPACES_OF` names.
"""

import ctypes
import gc
import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch._dynamo  # noqa: F401  an optimizer imports it
from tests.service.orphans import fork_orphan
from torch.nn.parallel import DistributedDataParallel  # noqa: F401  for the ranks
from torch.utils.data import DataLoader  # noqa: F401


def become(arguments: Sequence[str], log: str, environ: Mapping[str, str]) -> None:
    """Run a script as `python SCRIPT … >LOG 2>&1`, and exit."""
    silent, _kept_open = os.pipe()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for end, source in ((0, silent), (1, output), (2, output)):
        os.dup2(source, end)
    os.environ.clear()
    os.environ.update(environ)
    if process := environ.get("NAMESPACES_OF"):
        join(process)
    sys.argv = list(arguments)
    runpy.run_path(arguments[0], run_name="__main__")
    sys.exit()


def join(process: str) -> None:
    """Join the namespaces of a process; a process with one thread may."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "net"):
        with Path(f"/proc/{process}/ns/{kind}").open() as namespace:
            if libc.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns to {kind} of {process}")


gc.collect()
gc.freeze()
os.write(1, b"0\n")
while line := sys.stdin.readline():
    request = json.loads(line)
    rank = partial(become, request["arguments"], request["log"], request["environ"])
    os.write(1, b"%d\n" % fork_orphan(rank))
