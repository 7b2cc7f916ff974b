"""Ports for servers that tests start, which no other process of this machine's test runs uses."""

import atexit
import contextlib
import itertools
import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

LOWEST: Final = 16_384
BLOCK: Final = 256
"""Ports of a block. A process claims one block, and takes its ports in turn."""
EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The kernel gives out the ports in this range itself: a server there may find its port used by a client."""

_claims: Final[dict[int, socket.socket]] = {}
"""By process; open until it ends."""


@atexit.register
def _give_back() -> None:
    for claim in _claims.values():
        claim.close()


class NoPortsError(Exception):
    """No block of ports is left; the message says where it was looked for."""


@cache
def _block(process: int) -> range:
    """The block of a process, so a forked one claims its own; others are locked out until the process ends.

    The claim is an abstract Unix socket. Like the ports, its name is known to all processes of the network namespace,
    whatever user, container or folder for temporary files they have.

    Raises:
        NoPortsError: Every block is claimed.
    """
    end = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 32_768
    for begin in range(LOWEST, end - BLOCK + 1, BLOCK):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0kernelcast-test-ports-{begin}")
        except OSError:
            claim.close()
            continue
        _claims[process] = claim
        return range(begin, begin + BLOCK)
    raise NoPortsError(
        f"all blocks of {BLOCK} ports from {LOWEST} to {end} are claimed; end the test runs that hold "
        f"@kernelcast-test-ports-* (`ss -xl`), or raise net.ipv4.ip_local_port_range"
    )


@cache
def _candidates(process: int) -> Iterator[int]:
    return itertools.cycle(_block(process))


def free_ports(count: int) -> list[int]:
    """Free ports of this process's block, all different.

    The ports follow each other, so one that was given out is given out again only after the rest of the block.
    """
    found: list[int] = []
    for port in itertools.islice(_candidates(os.getpid()), 2 * BLOCK):
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise NoPortsError(f"{count} ports were asked for; only {len(set(found))} of {_block(os.getpid())} are free")
