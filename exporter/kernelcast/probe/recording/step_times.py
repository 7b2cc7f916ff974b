"""Device time of each step of a trial, added to the configuration that was in force when a kernel was launched.

`LaunchMeasurement` makes one for a trial and puts it into `Recorder.step_times`. The program's thread begins and ends
steps; the threads that measure add durations, at once, a second later from CUDA events, or for some launches only. A
step is complete when it has ended and a launch of a later step has been timed. Launches that were not timed count as
the mean of the timed ones.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# Bounds of memory. Beyond `MAX_STEPS` the oldest step is dropped; kernels of a step beyond `MAX_KERNELS` share one sum.
MAX_STEPS: Final = 4096
MAX_KERNELS: Final = 256


class StepTime(NamedTuple):
    """Device time of one step."""

    number: int
    arm: str
    seconds: float
    items: float


@dataclass(slots=True)
class _Step:
    """A step's timed nanoseconds, timed launches and all launches, by device and kernel."""

    arm: str
    items: float = 0.0
    ended: bool = False
    kernels: dict[tuple[int, str], list[int]] = field(default_factory=dict)


class StepTimes:
    """Sums device time by step. Safe for several threads.

    Args:
        kernels: Signatures of the kernels that count; empty for all.

    Attributes:
        late: Timed launches of steps that were complete already.
    """

    def __init__(self, kernels: Iterable[str]) -> None:
        self._kernels = frozenset(kernels)
        self._lock = threading.RLock()  # a signal handler may launch while its thread is in here
        self._steps: OrderedDict[int, _Step] = OrderedDict()
        self._means: dict[tuple[str, int, str], list[int]] = {}
        self._newest = -1
        self.late = 0

    def begin(self, number: int, arm: str) -> None:
        """Begin the step with a number, which is higher than all before."""
        with self._lock:
            self._steps[number] = _Step(arm)
            if len(self._steps) > MAX_STEPS:
                self._steps.popitem(last=False)

    def end(self, number: int, items: float) -> None:
        """End a step; its durations may still come."""
        with self._lock:
            step = self._steps.get(number)
            if step is not None:
                step.items, step.ended = items, True

    def timed(self, device: int, signature: str, duration_ns: int, number: int, *, launches: int = 1) -> None:
        """Add a timed launch.

        Args:
            device: Index of its device.
            signature: Its kernel, as the recorder names it.
            duration_ns: Its time.
            number: Number of the step in which it was launched.
            launches: 0 if `launched` counts this launch.
        """
        if self._kernels and signature not in self._kernels:
            return
        with self._lock:
            step = self._steps.get(number)
            if step is None:
                self.late += 1
                return
            key, row = _row(step, device, signature)
            for sums in (row, self._mean(step.arm, key)):
                sums[0] += duration_ns
                sums[1] += 1
            row[2] += launches
            self._newest = max(self._newest, number)

    def launched(self, device: int, signature: str, launches: int, number: int) -> None:
        """Add launches whose time is not known, or is given to `timed` with `launches=0`."""
        if self._kernels and signature not in self._kernels:
            return
        with self._lock:
            step = self._steps.get(number)
            if step is not None:
                _row(step, device, signature)[1][2] += launches

    def pop_complete(self) -> list[StepTime]:
        """Return the steps that have become complete, oldest first; steps without a timed launch are left out."""
        found = []
        with self._lock:
            while self._steps:
                number, step = next(iter(self._steps.items()))
                if not step.ended or number >= self._newest:
                    break
                del self._steps[number]
                if any(timed for _, timed, _ in step.kernels.values()):
                    found.append(StepTime(number, step.arm, self._total_ns(step) / 1e9, step.items))
        return found

    def _total_ns(self, step: _Step) -> float:
        total_ns = 0.0
        for key, (sum_ns, timed, launches) in step.kernels.items():
            mean_ns, mean_of = (sum_ns, timed) if timed else self._mean(step.arm, key)
            if mean_of:
                total_ns += mean_ns / mean_of * (launches or timed)
        return total_ns

    def _mean(self, arm: str, kernel: tuple[int, str]) -> list[int]:
        key = (arm, *kernel)
        if key not in self._means and len(self._means) >= 2 * MAX_KERNELS:
            key = (arm, kernel[0], "")
        return self._means.setdefault(key, [0, 0])


def _row(step: _Step, device: int, signature: str) -> tuple[tuple[int, str], list[int]]:
    """Return a kernel's key and sums in a step; a kernel beyond the limit shares those of the name ""."""
    key = (device, signature)
    if key not in step.kernels and len(step.kernels) >= MAX_KERNELS:
        key = (device, "")
    return key, step.kernels.setdefault(key, [0, 0, 0])


def grown(before: Mapping[tuple[int, str], int], after: Mapping[tuple[int, str], int]) -> dict[tuple[int, str], int]:
    """Return the launches between two counts, by device and kernel."""
    return {key: number - before.get(key, 0) for key, number in after.items() if number > before.get(key, 0)}
