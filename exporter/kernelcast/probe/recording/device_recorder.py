"""Cumulative totals of a device besides kernels: copies, waits, gaps, time by state, pools, regions."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from kernelcast.probe.recording.texts import plain, whole
from kernelcast.probe.recording.totals import (
    MAX_KINDS,
    MAX_NAME_CHARACTERS,
    MOST,
    DeviceTotals,
    check_durations,
    increase,
    kind_text,
)
from kernelcast.wire.frames import Status
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import OTHER

MAX_DEVICES: Final = 64
MAX_REASON_CHARACTERS: Final = 200

_Arguments = ParamSpec("_Arguments")
_Self = TypeVar("_Self", bound="DeviceRecorder")


def guarded(
    add: Callable[Concatenate[_Self, _Arguments], bool],
) -> Callable[Concatenate[_Self, _Arguments], None]:
    """Whatever goes wrong is counted and stays here: nothing may reach the program."""

    @wraps(add)
    def quiet(self: _Self, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> None:
        try:
            if not add(self, *arguments, **named):
                self.refused += 1
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1

    return quiet


class DeviceRecorder:
    """Adds up what devices do. Every method may be called from any thread, and none raises."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._devices: dict[int, DeviceTotals] = {}
        self.home: int | None = None
        """The device that was used first; what belongs to the process as a whole is reported there."""
        self.touched = False
        """Whether there is anything to tell; until then a program is left alone."""
        self.overhead_ns = 0
        self.dropped_records = 0
        self.current: Status | None = None
        """How the process is measured right now."""
        self.refused = 0
        """Calls that could not be used: a negative or endless duration, an unknown kind of argument."""

    def copy(self, kind: str, copied_bytes: int, duration_ns: int, *, pinned: str = "", device: int = 0) -> None:
        """Add one copy."""
        self.copies(kind, copied_bytes, 1, duration_ns, pinned=pinned, device=device)

    @guarded
    def copies(
        self, kind: str, copied_bytes: int, operations: int, duration_ns: int, *, pinned: str = "", device: int = 0
    ) -> bool:
        """Add copies of one kind: their bytes, how many, and the GPU time of all."""
        amounts = (whole(copied_bytes, MOST), whole(operations), whole(duration_ns))
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            return increase(totals.memcpy, (kind_text(kind), kind_text(pinned)), (OTHER, ""), amounts)

    def sync(self, kind: str, waited_ns: int, *, device: int = 0) -> None:
        """Add one wait of the program for the device."""
        self.syncs(kind, 1, waited_ns, device=device)

    @guarded
    def syncs(self, kind: str, calls: int, waited_ns: int, *, device: int = 0) -> bool:
        """Add waits of one kind: how many, and the time of all."""
        amounts = (whole(calls), whole(waited_ns))
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            return increase(totals.sync, kind_text(kind), OTHER, amounts)

    def gap(self, duration_ns: int, device: int = 0) -> None:
        """Add one stretch in which the device stood idle between two things that it did."""
        durations = DurationTotals()
        try:
            durations.observe(whole(duration_ns))
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1
            return
        self.gaps(durations, device)

    @guarded
    def gaps(self, durations: DurationTotals, device: int = 0) -> bool:
        """Add such stretches in bulk; the durations are not kept."""
        check_durations(durations)
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            if totals.gaps is None:
                totals.gaps = DurationTotals()
            if totals.gaps.sum_ns + durations.sum_ns >= MOST:
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
        """Say how large a memory pool (`device`, `pinned`) is now: its bytes `used`, `free`, `total` or `limit`."""
        key, size_bytes = (kind_text(pool), kind_text(state)), whole(size_bytes, MOST)
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            if key not in totals.pools and len(totals.pools) >= MAX_KINDS:
                return False
            totals.pools[key] = size_bytes
        return True

    @guarded
    def region(self, name: str, launches: int, gpu_ns: int, wall_ns: int, device: int = 0) -> bool:
        """Add what happened within a region of the program: launches, their GPU time, and wall time."""
        amounts = (whole(launches), whole(gpu_ns), whole(wall_ns))
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            return increase(totals.regions, plain(name[:MAX_NAME_CHARACTERS]) or OTHER, OTHER, amounts)

    @guarded
    def unseen(self, reason: str, launches: int, device: int = 0) -> bool:
        """Add launches that are known of but can neither be timed nor named; they count against coverage."""
        amounts = (whole(launches),)
        totals = self._devices.get(device) or self._open(device)
        with self._lock:
            return increase(totals.unseen, kind_text(reason), OTHER, amounts)

    @guarded
    def lost_records(self, records: int) -> bool:
        """Add activity records that were lost before they could be added up."""
        records = whole(records)
        with self._lock:
            self.dropped_records += records
        return True

    @guarded
    def status(self, method: str, state: str, reason: str = "", sample_ratio: float = 1.0) -> bool:
        """Say how the process is measured from now on; alone it does not make a silent program speak."""
        if not 0 <= sample_ratio <= 1:
            return False
        short = plain(str(reason)[:MAX_REASON_CHARACTERS])
        self.current = Status(kind_text(method), kind_text(state), short, float(sample_ratio))
        return True

    def _open(self, device: int) -> DeviceTotals:
        if not 0 <= device < MAX_DEVICES:
            raise ValueError(device)
        with self._lock:
            self.touched = True
            if self.home is None:
                self.home = device
            return self._devices.setdefault(device, DeviceTotals())
