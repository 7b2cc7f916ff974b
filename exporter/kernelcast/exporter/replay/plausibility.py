"""Times that no GPU can have had: starts far from all others, and kernels that swallow later ones of their stream.

`TraceBuilder.trace` calls it with tables of events: columns of shape (width, n), of which the first three are start,
duration and device.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

LONGEST_PAUSE_NS: Final = 100 * 24 * 3600 * 10**9
"""What lies further from the rest has another clock, or none: no recording lasts so long."""
SUSPECT_PAUSE_NS: Final = 3600 * 10**9
"""What lies further from the rest has another clock if it is less than `FEW_RATIO` of the events."""
FEW_RATIO: Final = 0.01
OVERRUN_NS: Final = 10_000
"""How far a kernel may run past the end of a later one of its stream.

On Hopper and Blackwell a kernel may start, and on any GPU seem to start, microseconds before the one before it ends
(programmatic dependent launch, rounded times); one that ends long after a later one has a wrong duration.
"""
COARSE_NS: Final = 100
MICROSECOND_NS: Final = 1000
LANE: Final = 9
"""Column of a launch's stream among all streams."""
GRAPH_CALL: Final = 10
"""Column of the start of the call that launched its graph; -1 without one. One graph's kernels may run side by side."""


@dataclass(frozen=True, slots=True)
class Outliers:
    """Number of events that were left out, and a sentence about them."""

    events: int = 0
    notes: tuple[str, ...] = ()


def without_outliers(tables: list[IntArray]) -> tuple[list[IntArray], Outliers]:
    """Leave out events that start far from all others.

    The recording is the group with the most different starts, and of several such groups the latest: a start that was
    not recorded is 0, or another constant.
    """
    starts = np.unique(np.concatenate([table[0] for table in tables]))
    groups = np.split(starts, np.flatnonzero(np.diff(starts) > SUSPECT_PAUSE_NS) + 1)
    if len(groups) < 2:
        return tables, Outliers()
    largest = max(reversed(range(len(groups))), key=lambda at: len(groups[at]))
    first, last = int(groups[largest][0]), int(groups[largest][-1])
    farthest_ns = 0
    kept_starts = [groups[largest]]
    for at in [*reversed(range(largest)), *range(largest + 1, len(groups))]:
        distance_ns = max(first - int(groups[at][-1]), int(groups[at][0]) - last)
        if distance_ns > LONGEST_PAUSE_NS or len(groups[at]) < FEW_RATIO * len(groups[largest]):
            farthest_ns = max(farthest_ns, distance_ns)
        else:
            kept_starts.append(groups[at])
            first, last = min(first, int(groups[at][0])), max(last, int(groups[at][-1]))
    known = np.concatenate(kept_starts)
    kept = [table[:, np.isin(table[0], known)] for table in tables]
    events = sum(table.shape[1] for table in tables) - sum(table.shape[1] for table in kept)
    if not events:
        return tables, Outliers()
    note = f"{counted(events, 'event')} of the GPU left out: they start up to {_length(farthest_ns)} from all others"
    return kept, Outliers(events, (note,))


def shorten(launches: IntArray) -> tuple[str, ...]:
    """Cut launches that swallow later ones of their stream at the next start there; returns a sentence about them.

    A stream runs its kernels in order. Source of such durations: ROCm's tracer.
    """
    cut_ns = []
    for at, end_ns in list(_overruns(launches)):
        cut_ns.append(int(launches[0, at] + launches[1, at]) - end_ns)
        launches[1, at] = end_ns - launches[0, at]
    if not cut_ns:
        return ()
    number, length = counted(len(cut_ns), "kernel"), _length(sum(cut_ns))
    return (f"{number} cut at the next start on its stream, by {length} in all: recorded to end after later ones",)


def _overruns(launches: IntArray) -> Iterator[tuple[int, int]]:
    """Positions of launches that swallow later ones, and where each must have ended at the latest."""
    end_ns = launches[0] + launches[1]
    order = np.lexsort((end_ns, launches[0], launches[LANE]))
    lanes = launches[LANE][order]
    for positions in np.split(order, np.flatnonzero(np.diff(lanes)) + 1):
        starts, ends, graphs = launches[0][positions], end_ns[positions], launches[GRAPH_CALL][positions]
        first_end = np.minimum.accumulate(ends[::-1])[::-1]  # among this and all later ones
        for at in np.flatnonzero(ends[:-1] - first_end[1:] > OVERRUN_NS):
            within = slice(at + 1, int(np.searchsorted(starts, ends[at])))
            later = starts[within] > starts[at]
            if graphs[at] >= 0:
                later &= graphs[within] != graphs[at]
            if np.any(later & (ends[at] - ends[within] > OVERRUN_NS)):
                yield int(positions[at]), int(starts[within][later][0])


def precision(start_ns: IntArray) -> tuple[str, ...]:
    """Return a sentence about times that are coarser than a GPU's clock."""
    if len(np.unique(start_ns)) < 2:
        return ()
    step_ns = int(np.gcd.reduce(start_ns))
    if step_ns > MICROSECOND_NS:
        step_ns = math.gcd(step_ns, MICROSECOND_NS)
    if step_ns < COARSE_NS:
        return ()
    step = "microsecond" if step_ns == MICROSECOND_NS else f"{step_ns} ns"
    return (f"times of kernels are recorded to the {step}: what is shorter is lost",)


def counted(number: int, noun: str) -> str:
    """Return `1 event`, `2 events`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _length(nanoseconds: int) -> str:
    seconds = nanoseconds / 1e9
    for unit, size in (("years", 365.25 * 86400), ("days", 86400), ("hours", 3600)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.6f} s"
