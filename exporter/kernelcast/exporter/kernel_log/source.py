"""XIDs from the kernel's log as a source of the daemon: a thread reads, `poll` returns its last reading.

NVML reports XIDs only to a program that waits for them. The log also holds earlier XIDs: the position up to which it
was read is kept on disk, and a restarted exporter counts the records after it. The saved position passes a record only
once `poll` has returned its XID, so a kill in between repeats the XID and loses nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kernelcast.columnar import Sample
from kernelcast.exporter.background_value import Refreshed, RefreshPolicy
from kernelcast.exporter.kernel_log.position import Position
from kernelcast.exporter.kernel_log.reader import Address, KernelLogRecord, LoggedXid
from kernelcast.exporter.nvml.xid_names import xid_name
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.wire.catalogue.devices import gpu
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND
from kernelcast.wire.identity import LIVE, Device, Labels, labels

NAME: Final = "kernel_log"
FIRST_SECONDS: Final = 1.0
"""Longest wait of the daemon's start for the first reading."""
KEEP_SECONDS: Final = float("inf")
"""Counts stay valid while the log cannot be read."""
SAVE_NS: Final = 60 * NANOSECONDS_PER_SECOND
"""How often the position is saved while no XID comes."""
MAX_SERIES: Final = 1024
"""Pairs of GPU and XID; further ones are not counted."""


@dataclass(frozen=True, slots=True)
class _Total:
    """Number of log records of an XID, and the time of the last one."""

    count: int = 0
    last_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Reading:
    """Result of all readings so far.

    Attributes:
        sequence: Sequence number of the last record; -1 before the first.
        totals: Totals by GPU and XID.
    """

    sequence: int = -1
    totals: tuple[tuple[LoggedXid, _Total], ...] = ()


class Log(Protocol):
    """The kernel's log; `KernelLog` reads the real one."""

    has_more: bool

    @property
    def clock(self) -> Callable[[], int]:
        """Unix nanoseconds."""
        ...

    def read(self) -> Iterator[KernelLogRecord]:
        """Yield the records since the last call."""
        ...


class SavedPosition(Protocol):
    """The position up to which the log was read; `PositionFile` keeps it on disk."""

    boot_id: str

    def load(self) -> Position | None:
        """The saved position; None where there is none."""
        ...

    def save(self, position: Position) -> None:
        """Replace the saved position."""
        ...


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of the node.

    Attributes:
        hostname: The node's name.
        devices: Gives those that NVML lists now.
        source: One of `wire.identity.SOURCES`.
    """

    hostname: str
    devices: Callable[[], Sequence[Device]]
    source: str = LIVE


@dataclass(frozen=True, slots=True)
class LogCounts:
    """Counters of what goes wrong.

    Attributes:
        error: Called once for each reading that failed.
        lost: Called with the number of records that the kernel had overwritten before they were read.
    """

    error: Callable[[str], None]
    lost: Callable[[int], None]


class KernelLogSource:
    """Counts the XIDs of the kernel's log.

    The daemon's thread calls `poll` and `close`. The thread of `_reading` calls `_read`, which owns the log, `_totals`,
    `_sequence` and, until `close`, the saved position. The two exchange immutable `_Reading`s: `_reading.value` one
    way, `_shown` (the last one of which `poll` has returned every XID) the other.

    Args:
        log: The log.
        position: Keeps the position up to which it was read.
        gpus: GPUs of the node, for the labels.
        counts: Counters of failed readings and lost records.
        interval_seconds: Time between two readings.
    """

    def __init__(
        self,
        log: Log,
        position: SavedPosition,
        *,
        gpus: NodeGpus,
        counts: LogCounts,
        interval_seconds: float = 10.0,
    ) -> None:
        self._log, self._position = log, position
        self._gpus = gpus
        self._counts = counts
        self._clock = log.clock
        self._start_ns = self._clock()
        self._unread_after = self._beginning(position)
        self._skips_first = position.load() is None
        self._totals: dict[LoggedXid, _Total] = {}
        self._sequence = -1
        self._saved_sequence, self._saved_ns, self._saved_total = -1, 0, 0
        self._shown = _Reading()
        self._announced: set[LoggedXid] = set()
        self._known: dict[Address, Labels] = {}
        pace = RefreshPolicy(interval_seconds, KEEP_SECONDS)
        self._reading = Refreshed(NAME, self._read, _Reading(), pace=pace, on_error=counts.error)

    def start(self) -> "KernelLogSource":
        """Start the reading thread, and wait for the first reading, `FIRST_SECONDS` at most."""
        self._reading.start()
        self._reading.wait_for_first(FIRST_SECONDS)
        return self

    def refresh(self) -> None:
        """Read once, now, on the caller's thread."""
        self._reading.refresh()

    def poll(self, now_ns: int) -> SourceBatch:
        """Return every XID that was read; a new one has the value 0 once, so that `increase()` sees it."""
        reading = self._reading.value
        self._reading.soon()
        samples = tuple(self._samples(reading, now_ns))
        if all(xid in self._announced for xid, _ in reading.totals):
            self._shown = reading
        self._announced.update(xid for xid, _ in reading.totals)
        return SourceBatch(samples=samples)

    def close(self) -> None:
        """Stop reading and save the position; safe to call twice."""
        self._reading.close()
        with suppress(OSError):
            self._save(self._shown, always=True)

    def _beginning(self, position: SavedPosition) -> int:
        """The sequence number up to which records of this boot were read before."""
        saved = position.load()
        return saved.sequence if saved is not None and saved.boot_id == position.boot_id else -1

    def _read(self) -> _Reading:
        with suppress(OSError):
            self._save(self._shown)
        for record in self._log.read():
            self._add_record(record)
        if self._skips_first:
            # Without a saved position no exporter ran before, so the old records in the log are not new events.
            self._totals.clear()
            self._skips_first = self._log.has_more
            with suppress(OSError):
                self._position.save(Position(self._position.boot_id, self._sequence))
        return _Reading(self._sequence, tuple(self._totals.items()))

    def _add_record(self, record: KernelLogRecord) -> None:
        before = max(self._sequence, self._unread_after)
        if not self._skips_first and record.sequence > before + 1:
            self._counts.lost(record.sequence - before - 1)
        if record.sequence <= before:
            return
        self._sequence = record.sequence
        xid = record.xid
        if xid is not None and (xid in self._totals or len(self._totals) < MAX_SERIES):
            total = self._totals.get(xid, _Total())
            self._totals[xid] = replace(total, count=total.count + 1, last_ns=min(record.time_ns, self._clock()))

    def _save(self, reading: _Reading, *, always: bool = False) -> None:
        """Save the position: at once if `poll` returned an XID since the last save, else every `SAVE_NS`."""
        total, now_ns = sum(one.count for _, one in reading.totals), self._clock()
        due = always or total != self._saved_total or now_ns - self._saved_ns >= SAVE_NS
        if reading.sequence > self._saved_sequence and due:
            self._position.save(Position(self._position.boot_id, reading.sequence))
            self._saved_sequence, self._saved_ns, self._saved_total = reading.sequence, now_ns, total

    def _samples(self, reading: _Reading, now_ns: int) -> Iterator[Sample]:
        for device in self._gpus.devices():
            if not device.gi_id and (address := address_of(device.pci_bus_id)) is not None:
                self._known[address] = device.device_labels(self._gpus.source)
        for xid, total in reading.totals:
            own = self._known.get(xid.address) or self._unlisted(xid.address)
            attributes = labels(**dict(own), xid=str(xid.xid), err_msg=xid_name(xid.xid))
            count = total.count if xid in self._announced else 0
            yield Sample(gpu.KERNEL_LOG_XIDS, attributes, now_ns, count, min(self._start_ns, now_ns))
            last_seconds = total.last_ns / NANOSECONDS_PER_SECOND
            yield Sample(gpu.KERNEL_LOG_XID_LAST, attributes, now_ns, last_seconds)

    def _unlisted(self, address: Address) -> Labels:
        return labels(Hostname=self._gpus.hostname, pci_bus_id=bus_id(address), source=self._gpus.source)


def address_of(pci_bus_id: str) -> Address | None:
    """The address in a bus id such as `00000000:0A:00.0`; None where it is none."""
    parts = pci_bus_id.partition(".")[0].split(":")
    try:
        domain, bus, device = (int(part, 16) for part in parts)
    except ValueError:
        return None
    return domain, bus, device


def bus_id(address: Address) -> str:
    """The bus id as NVML writes it."""
    domain, bus, device = address
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"
