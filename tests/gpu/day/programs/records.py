"""Sums of CUPTI's records of a block, through the probe's own method, in the program's process."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.gpu.day.programs.kernels import cannot

from kernelcast.probe.cupti.method import ActivityEnvironment, ActivityMethod
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.totals import Cell

SETTLE_SECONDS = 1.0


@dataclass(slots=True)
class Records:
    """Sums of a block; filled when it has ended.

    Attributes:
        kernels: Launches and nanoseconds by name.
        cells: The recorder's totals by name.
        copies: Operations and bytes by kind and pinned memory, as `h2d true`.
        waits: Calls by type.
        device_time_ns: Nanoseconds by state of the device.
        lost: Records that were lost.
    """

    kernels: dict[str, tuple[int, int]] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    copies: dict[str, tuple[int, int]] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    device_time_ns: dict[str, int] = field(default_factory=dict)
    lost: int = 0

    def launches(self) -> int:
        """Return the launches of all kernels."""
        return sum(launches for launches, _ in self.kernels.values())


@contextmanager
def recorded(synchronise: Callable[[], object]) -> Iterator[Records]:
    """Record the work of a block; the program skips where CUPTI cannot be used."""
    synchronise()
    recorder = Recorder()
    method = ActivityMethod(recorder)
    if not method.start():
        cannot(f"CUPTI cannot be used here: {method.reason}")
    records = Records()
    try:
        yield records
        synchronise()
        time.sleep(SETTLE_SECONDS)
        method.tick()
    finally:
        method.stop()
    if recorder.devices():
        fill(records, recorder)


def fill(records: Records, recorder: Recorder) -> None:
    """Copy a recorder's totals of the first device."""
    device = recorder.devices()[0]
    records.cells = {cell.signature: cell for cell in recorder.cells(device)}
    records.kernels = {name: (cell.launches, cell.durations.sum_ns) for name, cell in records.cells.items()}
    counters = recorder.counters(device, dropped_frames=0)
    for kind, pinned, size_bytes, operations, _ns in counters.memcpy:
        records.copies[f"{kind} {pinned}".strip()] = (operations, size_bytes)
    records.waits = {kind: calls for kind, calls, _ns in counters.sync}
    records.device_time_ns = dict(counters.device_time)
    records.lost = recorder.dropped_records


class Switch:
    """Switches records on and off within one process, to compare the speed of a program with and without them.

    Args:
        environ: Variables of the probe besides the process's own.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.recorder = Recorder()
        self._method = ActivityMethod(self.recorder, ActivityEnvironment(environ={**os.environ, **environ}))

    def start(self) -> None:
        """Switch records on; the program skips where CUPTI cannot be used."""
        if not self._method.start():
            cannot(f"CUPTI cannot be used here: {self._method.reason}")

    def tick(self) -> None:
        """Add up the records so far, as the probe does once a second."""
        self._method.tick()

    def stop(self) -> None:
        """Switch records off."""
        self._method.stop()

    def records(self) -> Records:
        """Return the sums so far."""
        records = Records()
        if self.recorder.devices():
            fill(records, self.recorder)
        return records
