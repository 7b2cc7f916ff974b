"""A process that reports to the probe socket, as `ProbeServer.processes` returns it.

Attribution and pauses read it on the daemon's thread; it is a copy, so they need no lock.
"""

from dataclasses import dataclass
from typing import Self

from kernelcast.exporter.programs.registry import RegisteredProcess
from kernelcast.wire.frames import TunableClaim
from kernelcast.wire.identity import Device, Process


@dataclass(frozen=True, slots=True)
class ProbeProcess:
    """A reporting process.

    Attributes:
        peer_pid: Its pid from the kernel; 0 if it is outside this pid namespace.
    """

    process: Process
    devices: tuple[Device, ...]
    tunables: tuple[TunableClaim, ...]
    method: str
    version: str
    connected: bool
    peer_pid: int

    @classmethod
    def of(cls, entry: RegisteredProcess) -> Self:
        """Make one from an entry of the registry."""
        session = entry.session
        return cls(
            session.process,
            session.devices,
            session.tunables,
            session.hello.method,
            session.hello.version,
            entry.connection is not None,
            entry.peer.pid,
        )
