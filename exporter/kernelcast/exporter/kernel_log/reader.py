"""Reads XIDs (NVIDIA's numbers of GPU errors) from the kernel's log.

/dev/kmsg gives one record a read: `priority,sequence,microseconds,flags;message`, then properties on further lines. It
begins with the oldest record that the kernel still holds. Example:
`4,812,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.`
Source: Linux, Documentation/ABI/testing/dev-kmsg.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KMSG: Final = Path("/dev/kmsg")
MAX_RECORDS: Final = 20_000
"""Limit of one reading; the rest follows with the next reading."""
RECORD_BYTES: Final = 8192
"""The longest record. Source: Linux, kernel/printk/internal.h, PRINTK_MESSAGE_MAX, and its properties."""
PRIORITIES: Final = 8
"""`priority` is facility * 8 + level. Below 8 the facility is 0, the kernel; records of programs have another one."""
NANOSECONDS_PER_MICROSECOND: Final = 1000

_RECORD: Final = re.compile(rb"(\d+),(\d+),(\d+),[^;]*;([^\n]*)")
_ADDRESS: Final = r"(?:PCI:)?([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)(?:\.\d)?"
_INSTANCE: Final = r"(?: GPU-I:\d+)?(?: GPU-CI:\d+)?"
"""The MIG instance that an XID belongs to."""
_XID: Final = re.compile(rf"NVRM: Xid \({_ADDRESS}{_INSTANCE}\): (\d+)\b")
_MARK: Final = b"NVRM: Xid"

Address = tuple[int, int, int]
"""PCI domain, bus and device."""


@dataclass(frozen=True, slots=True)
class LoggedXid:
    """An XID as the driver logged it.

    Attributes:
        address: Of the GPU.
        xid: NVIDIA's number.
    """

    address: Address
    xid: int


@dataclass(frozen=True, slots=True)
class KernelLogRecord:
    """A record of the log.

    Attributes:
        sequence: Its number since boot.
        time_ns: When it was logged, Unix nanoseconds.
        xid: The XID that it reports; None for every other record.
    """

    sequence: int
    time_ns: int
    xid: LoggedXid | None


def xid_of(message: str) -> LoggedXid | None:
    """The XID that a message reports; None where it reports none."""
    found = _XID.match(message)
    if found is None:
        return None
    domain, bus, device = (int(part, 16) for part in found.groups()[:3])
    return LoggedXid((domain, bus, device), int(found[4]))


class KernelLog:
    """The kernel's log, opened at the first reading. Only the reading thread of `KernelLogSource` uses it.

    Args:
        path: The device file.
        clock: Unix nanoseconds.
        monotonic: Nanoseconds on the clock of the records.

    Attributes:
        clock: As given.
        has_more: Whether the last reading ended at its bound, and not at the end of the log.
    """

    def __init__(
        self,
        path: Path = KMSG,
        *,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._path = path
        self.clock = clock
        self._monotonic = monotonic
        self._file: int | None = None
        self.has_more = False

    def read(self) -> Iterator[KernelLogRecord]:
        """Yield the records since the last call, at most `MAX_RECORDS`; never waits.

        Raises:
            OSError: The log cannot be opened or read; the next reading opens it again.
        """
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.has_more = False
        boot_ns = self.clock() - self._monotonic()
        for _ in range(MAX_RECORDS):
            try:
                raw = os.read(self._file, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    # The kernel has overwritten the record; the next read gives the oldest that is left.
                    continue
                self.close()
                raise
            if not raw:
                return
            found = _RECORD.match(raw)
            if found is not None:
                time_ns = boot_ns + int(found[3]) * NANOSECONDS_PER_MICROSECOND
                yield KernelLogRecord(int(found[2]), time_ns, _xid(int(found[1]), found[4]))
        self.has_more = True

    def close(self) -> None:
        """Close the log; safe to call twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _xid(priority: int, message: bytes) -> LoggedXid | None:
    if priority >= PRIORITIES or not message.startswith(_MARK):
        return None
    return xid_of(message.decode(errors="replace"))
