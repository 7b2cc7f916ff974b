"""Totals of each device other than those of kernels: copies, waits, gaps, time by state, memory pools, regions.

Hooks in the program call the methods; the sender's thread reads the totals through `Recorder`, which adds the kernels.
"""

import threading
from collections.abc import Callable
from functools import wraps
from time import monotonic_ns
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from kernelcast.probe.recording.measured_time import MeasuredTime
from kernelcast.probe.recording.step_totals import StepTotals
from kernelcast.probe.recording.texts import plain, whole
from kernelcast.probe.recording.totals import (
    MAX_KINDS,
    MAX_NAME_CHARACTERS,
    TOTAL_LIMIT,
    DeviceTotals,
    check_durations,
    increase,
    kind_text,
)
from kernelcast.probe.trial_budget import TrialBudget
from kernelcast.wire.frames import Status
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import OTHER


class GpuPhaseTotals(NamedTuple):
    """Steps that were timed on the GPU, and rows of phase and nanoseconds in them."""

    steps: int = 0
    phases: tuple[tuple[str, int], ...] = ()


class AllocatorState(NamedTuple):
    """Bytes of a framework's allocator by state now, and totals of allocations that were repeated, and that failed."""

    sizes: tuple[tuple[str, int], ...] = ()
    retries: int = 0
    failed: int = 0


MAX_DEVICES: Final = 64
"""Devices of a process are numbered from 0, as CUDA does; higher numbers are refused."""
MAX_REASON_CHARACTERS: Final = 200

_Arguments = ParamSpec("_Arguments")
_Self = TypeVar("_Self", bound="DeviceRecorder")


def guarded(
    add: Callable[Concatenate[_Self, _Arguments], bool],
) -> Callable[Concatenate[_Self, _Arguments], None]:
    """Decorator: a call that raises or returns False changes nothing and is counted in `refused`; none raises."""

    @wraps(add)
    def quiet(self: _Self, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> None:
        try:
            if self._interrupts() or not add(self, *arguments, **named):
                self.refused += 1
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1

    return quiet


class DeviceRecorder:
    """Sums the activities of devices.

    Any thread may call any method, and no value that a caller passes makes one raise. The lock protects the totals; the
    counters beside them are plain attributes, as a lost count does less harm than a lock in the program's thread.
    """

    def __init__(self) -> None:
        self._make_lock()
        self._devices: dict[int, DeviceTotals] = {}
        self.home: int | None = None
        """The device that was used first; values of the whole process are reported for it."""
        self.touched = False
        """Whether there is anything to report; before that, the probe does not connect to the exporter."""
        self.overhead_ns = 0
        """Time that the probe has taken from the program's threads, and of its own thread."""
        self.decoding_ns = 0
        """Processor time of a decoder on a thread that never holds the interpreter."""
        self.clock: Callable[[], int] = monotonic_ns
        self.measured = MeasuredTime()
        """By `clock`; it begins with the first device that is used, unless a method of measurement began it before."""
        self.reports_waits = False
        """Whether the program itself reports its waits, which no method but CUPTI counts."""
        self.progress = StepTotals()
        self.phase: Callable[[], str] = str
        """Returns the phase that the program is in; empty where that is not known."""
        self.standby: Callable[[], str] = str
        """Returns why a program without progress may wait, as `Counters.standby`."""
        self.job: Callable[[], tuple[tuple[str, str], ...]] = tuple
        """Returns the process's place in its job, as rows of `Counters.job`."""
        self.allocator: Callable[[int], AllocatorState] = lambda _device: AllocatorState()
        """Returns the state of the framework's allocator on a device."""
        self.gpu_phases: Callable[[], GpuPhaseTotals] = GpuPhaseTotals
        """Returns the time of the GPU in the phases of the steps that were timed."""
        self.marks_cost: Callable[[], int] = int
        """Returns what the marks have taken from the program's threads so far, nanoseconds: part of no budget."""
        self.budget = TrialBudget()
        self.dropped_records = 0
        """Activity records of CUPTI that were lost."""
        self.timeless_records = 0
        """Activity records of CUPTI whose times could not be used."""
        self.current: Status | None = None
        """The present measurement status."""
        self.refused = 0
        """Calls that were refused: a negative duration, a full table, a sum too large, a call of a signal handler that
        has interrupted another call. They are reported as dropped records."""

    def _make_lock(self) -> None:
        # A thread that holds the lock may be interrupted between two sums that belong together, such as a histogram's
        # count and bucket. A signal handler (or `__del__`) that adds then is refused: waiting would never end.
        self._lock = lock = threading.RLock()
        # Whether this thread holds the lock; `threading.Condition` calls it, too.
        self._interrupts: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001

    def copy(self, kind: str, copied_bytes: int, duration_ns: int, *, pinned: str = "", device: int = 0) -> None:
        """Add one copy.

        Args:
            kind: Its direction, `h2d`, `d2h`, `d2d`, `p2p` or `h2h`.
            copied_bytes: Its size.
            duration_ns: Its GPU time.
            pinned: Whether the host's memory was pinned: `true`, `false`, or empty where that is not known.
            device: The device's number.
        """
        self.copies(kind, copied_bytes, 1, duration_ns, pinned=pinned, device=device)

    @guarded
    def copies(
        self, kind: str, copied_bytes: int, operations: int, duration_ns: int, *, pinned: str = "", device: int = 0
    ) -> bool:
        """Add copies of one kind: their bytes, their number, and their total GPU time."""
        totals = self._devices.get(device) or self._open(device)
        amounts = (whole(copied_bytes, TOTAL_LIMIT), whole(operations), whole(duration_ns))
        with self._lock:
            return increase(totals.memcpy, (kind_text(kind), kind_text(pinned)), (OTHER, ""), amounts)

    def sync(self, kind: str, waited_ns: int, *, device: int = 0) -> None:
        """Add one wait of the program for the device, which the program itself reports."""
        self.reports_waits = True
        self.syncs(kind, 1, waited_ns, device=device)

    @guarded
    def syncs(self, kind: str, calls: int, waited_ns: int, *, device: int = 0) -> bool:
        """Add waits of one kind: their number and their total time."""
        totals = self._devices.get(device) or self._open(device)
        amounts = (whole(calls), whole(waited_ns))
        with self._lock:
            return increase(totals.sync, kind_text(kind), OTHER, amounts)

    def gap(self, duration_ns: int, device: int = 0) -> None:
        """Add one idle period of the device between two activities."""
        # Not `guarded`, as `gaps` is: a call would be counted twice.
        durations = DurationTotals()
        try:
            durations.observe(whole(duration_ns))
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1
            return
        self.gaps(durations, device)

    @guarded
    def gaps(self, durations: DurationTotals, device: int = 0) -> bool:
        """Add many idle periods; `durations` is read and not kept."""
        check_durations(durations)
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            if totals.gaps is None:
                totals.gaps = DurationTotals()
            if totals.gaps.sum_ns + durations.sum_ns >= TOTAL_LIMIT:
                return False
            totals.gaps.add(durations)
        return True

    @guarded
    def device_time(self, state: str, duration_ns: int, device: int = 0) -> bool:
        """Add time that the device spent in a state: `compute`, `collective`, `copy`, `overlap` or `idle`."""
        amounts = (whole(duration_ns),)
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            return increase(totals.device_time, kind_text(state), OTHER, amounts)

    @guarded
    def pool(self, pool: str, state: str, size_bytes: int, device: int = 0) -> bool:
        """Set bytes of a memory pool.

        Args:
            pool: `device` or `pinned`.
            state: `used`, `free`, `total` or `limit`.
            size_bytes: The bytes in that state now.
            device: The device's number.
        """
        key, size_bytes = (kind_text(pool), kind_text(state)), whole(size_bytes, TOTAL_LIMIT)
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            if key not in totals.pools and len(totals.pools) >= MAX_KINDS:
                return False  # sizes of different pools must not be added up as "other"
            totals.pools[key] = size_bytes
        return True

    @guarded
    def region(self, name: str, launches: int, gpu_ns: int, wall_ns: int, device: int = 0) -> bool:
        """Add launches, their GPU time, and wall time of a region of the program."""
        amounts = (whole(launches), whole(gpu_ns), whole(wall_ns))
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            return increase(totals.regions, plain(name[:MAX_NAME_CHARACTERS]) or OTHER, OTHER, amounts)

    @guarded
    def unseen(self, reason: str, launches: int, device: int = 0) -> bool:
        """Add launches that can neither be timed nor named; they lower the share of launches that are seen."""
        amounts = (whole(launches),)
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            return increase(totals.unseen, kind_text(reason), OTHER, amounts)

    @guarded
    def lost_records(self, records: int) -> bool:
        """Add activity records that were lost before they were processed."""
        records = whole(records)
        with self._lock:
            self.dropped_records += records
        return True

    @guarded
    def untimed_records(self, records: int) -> bool:
        """Add activity records that were counted without a time, because theirs could not be used."""
        records = whole(records)
        with self._lock:
            self.timeless_records += records
        return True

    @guarded
    def status(
        self, method: str, state: str, reason: str = "", sample_ratio: float = 1.0, cost: tuple[float, ...] = ()
    ) -> bool:
        """Set the measurement status, which by itself is nothing to report: `touched` stays as it is."""
        if not 0 <= sample_ratio <= 1:
            return False
        short = plain(str(reason)[:MAX_REASON_CHARACTERS])
        self.current = Status(kind_text(method), kind_text(state), short, float(sample_ratio), cost)
        return True

    def report_on(self, device: int) -> None:
        """Report the process's own values for a device, although nothing else may be reported for it."""
        self._open(device)
        self.home = device

    @property
    def uses_devices(self) -> bool:
        """Whether there is anything but the process's own values and its regions."""
        return any(one.by_signature or one.memcpy or one.sync or one.device_time for one in self._devices.values())

    def _open(self, device: int) -> DeviceTotals:
        number = int(device)  # frames hold no number of numpy
        if number != device or not 0 <= number < MAX_DEVICES:
            raise ValueError(device)
        with self._lock:
            self.touched = True
            if self.home is None:
                self.home = number
                self.measured.begin(self.clock())
            return self._devices.setdefault(number, DeviceTotals())
