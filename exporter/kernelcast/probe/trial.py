"""The times of a trial: step time and device time of each launch.

A *launch* is the steps between two changes of the value. All of it runs on the program's thread.
"""

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter_ns
from typing import Final

from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.recording.step_times import StepTime, StepTimes, grown
from kernelcast.probe.tunables import AnyTunable

# Launches of a candidate after which it is not held responsible for a later end of the process.
SURVIVED_STEPS: Final = 3
# Methods that report totals or counts only, which no step can be given.
METHODS_WITHOUT_STEPS: Final = ("cupti", "count")

# Methods that number each launch by the configuration in force. `observe` may be called late without a number.
METHODS_WITH_NUMBERS: Final = ("event",)


class LaunchMeasurement:
    """Measures the launches of a trial one after another: step time at boundaries, device time when it is reported.

    A launch is a step, or several where the values change at epochs only. Its number is passed to the recorder as the
    configuration in force, by which a duration that is known later finds its launch.

    Args:
        recorder: Measures the kernels.
        kernels: Signatures of the kernels that count; empty for all.
        clock: Nanoseconds.
    """

    def __init__(self, recorder: Recorder, kernels: Iterable[str], clock: Callable[[], int] | None = None) -> None:
        self._recorder = recorder
        self._clock = clock or perf_counter_ns
        self._base = recorder.configuration + 1
        self._times = StepTimes(kernels)
        self._seconds = self._items = 0.0
        self._number = -1
        self._counts = self._launch_counts()
        recorder.step_times = self._times
        self._began_ns = self._clock()

    def begin(self, number: int, arm: str) -> None:
        """Begin a launch; numbers rise."""
        self._number = self._base + number
        self._times.begin(self._number, arm)
        self._recorder.configuration = self._number
        self._seconds = self._items = 0.0
        self._began_ns = self._clock()

    def step_ended(self, items: float) -> None:
        """Add the step that has just ended to the present launch."""
        now_ns = self._clock()
        self._seconds += (now_ns - self._began_ns) / 1e9
        self._items += items
        self._began_ns = now_ns

    def end(self) -> tuple[float, float]:
        """End the present launch; returns its seconds and items."""
        counts = self._launch_counts()
        for (device, signature), launches in grown(self._counts, counts).items():
            self._times.launched(device, signature, launches, self._number)
        self._counts = counts
        self._times.end(self._number, self._items)
        return self._seconds, self._items

    def device_times(self) -> list[StepTime]:
        """Return the device times of launches that have become complete, oldest first."""
        return [step._replace(number=step.number - self._base) for step in self._times.pop_complete()]

    def close(self) -> None:
        """Measure no more."""
        self._recorder.step_times = None
        self._recorder.configuration += 1

    def _launch_counts(self) -> Mapping[tuple[int, str], int]:
        count = self._recorder.launch_counts
        return count() if count is not None else {}


def device_time_decides(tunable: AnyTunable, recorder: Recorder) -> bool:
    """Whether a tunable is judged by device time: it names its kernels, and their launches are timed one by one."""
    return bool(tunable.terms.kernels) and method_of(recorder) not in METHODS_WITHOUT_STEPS


def method_of(recorder: Recorder) -> str:
    """Return the method that times the program's launches; empty before one does."""
    return recorder.current.method if recorder.current else ""
