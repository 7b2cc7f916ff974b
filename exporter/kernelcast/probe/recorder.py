"""Cumulative totals of one process, kept where the program's threads can add to them in about a microsecond.

Memory is fixed: so many kernels a device, then everything goes into `other`; a histogram has at most 400 buckets.
"""

import threading
from collections.abc import Iterable
from time import perf_counter_ns
from typing import Final, NamedTuple

from kernelcast.wire.frames import Counters, KernelName, KernelRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import OTHER, kernel_id, normalise

Dimensions = str | int | tuple[int, ...] | None

MAX_KERNELS: Final = 2048
MAX_DEVICES: Final = 64
MAX_KINDS: Final = 32
MAX_KIND_CHARACTERS: Final = 32
MAX_DIMENSIONS_CHARACTERS: Final = 64
MAX_SIGNATURE_CHARACTERS: Final = 4096
LONGEST_NS: Final = 2**50
"""13 days: a longer duration is a mistake of the caller."""
MOST: Final = 2**63
"""A total that would outgrow the wire's 64 bits is refused: a frame that cannot be encoded would silence all others."""


class Spent(NamedTuple):
    """What one kernel has had of the device so far."""

    sum_ns: int
    timed: int
    launches: int


class Cell:
    """One kernel's totals on one device, with the launch configuration last seen."""

    __slots__ = ("block", "changed", "durations", "grid", "kernel", "launches", "registers", "shared", "signature")

    def __init__(self, signature: str) -> None:
        self.signature = signature
        self.kernel = kernel_id(signature)
        self.launches = 0
        self.durations = DurationTotals()
        self.grid: Dimensions = None
        self.block: Dimensions = None
        self.registers = 0
        self.shared = 0
        self.changed = True

    def name(self) -> KernelName:
        """The dictionary entry that rows of this kernel refer to."""
        return KernelName(
            self.kernel, self.signature, dimensions(self.grid), dimensions(self.block), self.registers, self.shared
        )


class DeviceTotals:
    """Everything that happened on one device."""

    __slots__ = ("by_raw", "by_signature", "changed", "memcpy", "sync")

    def __init__(self) -> None:
        self.by_raw: dict[str, Cell] = {}
        self.by_signature: dict[str, Cell] = {}
        self.memcpy: dict[tuple[str, str], list[int]] = {}
        self.sync: dict[str, int] = {}
        self.changed = False


class Recorder:
    """Adds up what the program reports. Every method may be called from any thread, and none raises.

    Args:
        max_kernels: Kernels kept apart on one device; the rest add to `other`.
    """

    def __init__(self, *, max_kernels: int = MAX_KERNELS) -> None:
        self._max_kernels = max_kernels
        self._lock = threading.Lock()
        self._devices: dict[int, DeviceTotals] = {}
        self.home: int | None = None
        """The device that was used first; what belongs to the process as a whole is reported there."""
        self.touched = False
        """Whether there is anything to tell; until then a program is left alone."""
        self.overhead_ns = 0
        self.refused = 0
        """Calls that could not be used: a negative or endless duration, an unknown kind of argument."""

    def observe(  # noqa: PLR0913  a launch has this many properties
        self,
        signature: str,
        duration_ns: int,
        *,
        grid: Dimensions = None,
        block: Dimensions = None,
        registers: int = 0,
        shared_memory_bytes: int = 0,
        device: int = 0,
    ) -> None:
        """Add one timed launch."""
        began_ns = perf_counter_ns()
        try:
            duration_ns = int(duration_ns)
            if not 0 <= duration_ns < LONGEST_NS:
                self.refused += 1
                return
            totals = self._devices.get(device) or self._open(device)
            cell = totals.by_raw.get(signature) or self._admit(totals, signature)
            configured = grid is not None or block is not None
            registers, shared = (_whole(registers), _whole(shared_memory_bytes)) if configured else (0, 0)
            with self._lock:
                if cell.durations.sum_ns + duration_ns >= MOST:
                    self.refused += 1
                    return
                cell.launches += 1
                cell.durations.observe(duration_ns)
                cell.changed = True
                if configured:
                    cell.grid, cell.block = grid, block
                    cell.registers, cell.shared = registers, shared
                self.overhead_ns += perf_counter_ns() - began_ns
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1

    def count(self, signature: str, launches: int, *, device: int = 0) -> None:
        """Add launches that were not timed."""
        try:
            launches = int(launches)
            if not 0 < launches < LONGEST_NS:
                self.refused += launches != 0
                return
            totals = self._devices.get(device) or self._open(device)
            cell = totals.by_raw.get(signature) or self._admit(totals, signature)
            with self._lock:
                if cell.launches + launches >= MOST:
                    self.refused += 1
                    return
                cell.launches += launches
                cell.changed = True
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1

    def copy(self, kind: str, copied_bytes: int, duration_ns: int, *, pinned: str = "", device: int = 0) -> None:
        """Add one copy."""
        try:
            copied_bytes, duration_ns = int(copied_bytes), int(duration_ns)
            if copied_bytes < 0 or not 0 <= duration_ns < LONGEST_NS:
                self.refused += 1
                return
            totals = self._devices.get(device) or self._open(device)
            key = (plain(kind[:MAX_KIND_CHARACTERS]), pinned)
            with self._lock:
                row = totals.memcpy.get(key)
                if row is None:
                    row = totals.memcpy.setdefault(key if len(totals.memcpy) < MAX_KINDS else (OTHER, ""), [0, 0, 0])
                if max(row[0] + copied_bytes, row[2] + duration_ns) >= MOST:
                    self.refused += 1
                    return
                row[0] += copied_bytes
                row[1] += 1
                row[2] += duration_ns
                totals.changed = True
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1

    def sync(self, kind: str, waited_ns: int, *, device: int = 0) -> None:
        """Add one wait of the program for the device."""
        try:
            waited_ns = int(waited_ns)
            if not 0 <= waited_ns < LONGEST_NS:
                self.refused += 1
                return
            totals = self._devices.get(device) or self._open(device)
            key = plain(kind[:MAX_KIND_CHARACTERS])
            with self._lock:
                key = key if key in totals.sync or len(totals.sync) < MAX_KINDS else OTHER
                total_ns = totals.sync.get(key, 0) + waited_ns
                if total_ns >= MOST:
                    self.refused += 1
                    return
                totals.sync[key] = total_ns
                totals.changed = True
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1

    def devices(self) -> list[int]:
        """The devices that anything was reported for."""
        return list(self._devices)

    def cells(self, device: int) -> list[Cell]:
        """The kernels of a device."""
        return list(self._devices[device].by_signature.values())

    def take(self, cell: Cell) -> KernelRow:
        """A kernel's totals now, and the mark that they have been taken."""
        with self._lock:
            cell.changed = False
            return KernelRow(cell.kernel, cell.launches, cell.durations.copy())

    def counters(self, device: int, *, dropped_frames: int) -> Counters:
        """What a device has besides kernels; the process's own cost stands with the device used first."""
        totals = self._devices[device]
        home = device == self.home
        with self._lock:
            totals.changed = False
            return Counters(
                device,
                memcpy=tuple((*key, row[0], row[1], row[2]) for key, row in sorted(totals.memcpy.items())),
                sync=tuple(sorted(totals.sync.items())),
                overhead_ns=self.overhead_ns if home else 0,
                dropped_frames=dropped_frames if home else 0,
            )

    def charge(self, cost_ns: int) -> None:
        """Add to the probe's own cost."""
        with self._lock:
            self.overhead_ns += cost_ns

    def forked(self) -> None:
        """In a child: the lock may be held by a thread that exists in the parent only."""
        self._lock = threading.Lock()

    def touch(self) -> None:
        """The program runs, although nothing was measured yet."""
        self.touched = True

    def spent(self, signatures: Iterable[str]) -> dict[tuple[int, str], Spent]:
        """What the named kernels (without names: all) have had so far, by device and signature."""
        wanted = frozenset(signatures)
        found = {}
        for device, totals in list(self._devices.items()):
            for cell in list(totals.by_signature.values()):
                if wanted and cell.signature not in wanted:
                    continue
                with self._lock:
                    found[device, cell.signature] = Spent(cell.durations.sum_ns, cell.durations.count, cell.launches)
        return found

    def _open(self, device: int) -> DeviceTotals:
        if not 0 <= device < MAX_DEVICES:
            raise ValueError(device)
        with self._lock:
            self.touched = True
            if self.home is None:
                self.home = device
            return self._devices.setdefault(device, DeviceTotals())

    def _admit(self, totals: DeviceTotals, raw: str) -> Cell:
        signature = printable(raw)
        with self._lock:
            cell = totals.by_signature.get(signature)
            if cell is None and len(totals.by_signature) >= self._max_kernels:
                signature = OTHER
                cell = totals.by_signature.get(OTHER)
            if cell is None:
                cell = totals.by_signature.setdefault(signature, Cell(signature))
            if len(totals.by_raw) < 2 * self._max_kernels:
                totals.by_raw[raw] = cell
            return cell


def printable(raw: str) -> str:
    """The normalised signature as it can travel: valid UTF-8, and of a length that fits a frame."""
    signature = normalise(plain(str(raw))) or OTHER
    if len(signature) <= MAX_SIGNATURE_CHARACTERS:
        return signature
    return f"{signature[:MAX_SIGNATURE_CHARACTERS]}...#{kernel_id(signature):016x}"


def plain(text: str) -> str:
    """A text as it can travel: valid UTF-8 without NUL."""
    return text if text.isascii() and text.isprintable() else text.replace("\0", "?").encode(errors="replace").decode()


def dimensions(value: Dimensions) -> str:
    """`(48, 1, 1)` as `48x1x1`; a text stays as it is."""
    if value is None:
        return ""
    shown = "x".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
    return plain(shown[:MAX_DIMENSIONS_CHARACTERS])


def _whole(value: int) -> int:
    """A whole number of the standard library's own type: numpy's are no JSON.

    Raises:
        ValueError: Not one that a kernel could have.
    """
    number = int(value)
    if not 0 <= number < LONGEST_NS:
        raise ValueError(value)
    return number
