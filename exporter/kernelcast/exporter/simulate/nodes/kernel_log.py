"""The kernel's log of a simulated node: it holds the XIDs, in the driver's words."""

from collections.abc import Iterator

from kernelcast.exporter.kernel_log.position import Position
from kernelcast.exporter.kernel_log.reader import KernelLogRecord, xid_of


class SimulatedLog:
    """Records that are read once, as from /dev/kmsg.

    Attributes:
        now_ns: The node's clock, Unix nanoseconds.
        has_more: Always False: a reading gives everything.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.has_more = False
        self._sequence = 0
        self._records: list[KernelLogRecord] = []

    def clock(self) -> int:
        """The node's clock, Unix nanoseconds."""
        return self.now_ns

    def write(self, pci_bus_id: str, xid: int, time_ns: int) -> None:
        """Log an XID as the driver does."""
        address = pci_bus_id.rpartition(".")[0]
        message = f"NVRM: Xid (PCI:{address}): {xid}, simulated"
        self._sequence += 1
        self._records.append(KernelLogRecord(self._sequence, time_ns, xid_of(message)))

    def read(self) -> Iterator[KernelLogRecord]:
        """The records since the last reading."""
        records, self._records = self._records, []
        yield from records


class SimulatedPosition:
    """A position in memory: the log of a simulated node was read up to its beginning."""

    boot_id = "simulated"

    def __init__(self) -> None:
        self._position = Position(self.boot_id, 0)

    def load(self) -> Position:
        """The saved position."""
        return self._position

    def save(self, position: Position) -> None:
        """Replace the saved position."""
        self._position = position
