"""What the marks take from the program's threads, estimated: they have no time to measure themselves.

Once a report the probe's thread makes the marks of one step on a timeline of its own and takes the time. By then other
work has filled the processor's caches, as between two steps of a program: so it takes several times as long as in a
loop that does nothing else, of which the estimate is too high.
"""

from collections import deque
from collections.abc import Callable
from statistics import median
from time import thread_time_ns
from typing import Final

from kernelcast.probe.marks.timeline import Timeline
from kernelcast.probe.recording.step_totals import StepTotals

LATEST: Final = 9
"""Times of which the median counts: one may hold a fault of a page."""


class MarksCost:
    """Returns nanoseconds of the marks of all steps so far. For one thread at a time.

    Args:
        progress: Steps of the program.
        timeline: Returns the timeline of its framework; None without one, and so without marks.
        clock: Processor time of the calling thread, nanoseconds.
    """

    def __init__(
        self,
        progress: StepTotals,
        timeline: Callable[[], Timeline | None],
        clock: Callable[[], int] = thread_time_ns,
    ) -> None:
        self._progress = progress
        self._marked = timeline
        self._clock = clock
        self._timeline = Timeline(StepTotals())
        self._fetch = self._timeline.fetching(_fetched, _fetched, None)
        self._latest_ns: deque[int] = deque(maxlen=LATEST)
        self._steps = 0
        self._spent_ns = 0

    def __call__(self) -> int:
        """Return the estimate; it never falls."""
        steps = self._progress.steps
        if steps > self._steps and self._marked() is not None:
            began_ns = self._clock()
            self._make_marks()
            self._latest_ns.append(self._clock() - began_ns)
            self._spent_ns += (steps - self._steps) * round(median(self._latest_ns))
            self._steps = steps
        return self._spent_ns

    def _make_marks(self) -> None:
        timeline = self._timeline
        self._fetch(True)
        timeline.backward_begins()
        timeline.backward_ends()
        timeline.step_begins()
        timeline.step_ends(1)


def _fetched(batch: bool = True) -> bool:  # noqa: FBT001, FBT002  any value does
    return batch
