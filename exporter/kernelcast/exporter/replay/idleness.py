"""Idle gaps of one GPU between two activities: a histogram that grows as the replay advances. `TraceSource` uses it."""

import numpy as np

from kernelcast.exporter.replay.durations import bucket_indices, durations_of
from kernelcast.exporter.replay.trace import EventSpans, IntArray
from kernelcast.wire.histogram import DurationTotals


class Idleness:
    """The gaps of one GPU.

    A gap lies between the end of everything that had begun and the next start; it is known once that start has come.
    """

    def __init__(self, activity: tuple[EventSpans, ...]) -> None:
        """Find all gaps once.

        Args:
            activity: Everything that ran on this GPU.
        """
        self._ends_ns, self._lengths_ns = _gaps(activity)
        self._buckets = bucket_indices(self._lengths_ns)
        self._counted = 0
        self._totals = DurationTotals()

    def until(self, time_ns: int) -> DurationTotals:
        """Return all gaps that had ended at a time of the recording; the totals never fall."""
        counted = int(np.searchsorted(self._ends_ns, time_ns, side="right"))
        if counted > self._counted:
            chosen = slice(self._counted, counted)
            self._totals.add(durations_of(self._lengths_ns[chosen], self._buckets[chosen]))
            self._counted = counted
        return self._totals.copy()


def _gaps(activity: tuple[EventSpans, ...]) -> tuple[IntArray, IntArray]:
    """Ends and lengths of the gaps, each of shape (g,), in order."""
    start_ns = np.concatenate([spans.start_ns for spans in activity])
    end_ns = np.concatenate([spans.end_ns for spans in activity])
    order = np.argsort(start_ns, kind="stable")
    start_ns, reached_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    lengths_ns = start_ns[1:] - reached_ns[:-1]
    real = lengths_ns > 0
    return start_ns[1:][real], lengths_ns[real]
