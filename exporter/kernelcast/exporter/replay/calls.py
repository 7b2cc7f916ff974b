"""Finds the call that launched a kernel: its queueing time, whether it launched a graph, and its region.

The readers in `formats/` collect calls and ranges, then ask `Calls.cause` for each kernel.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

NO_REGION: Final = ""
LONGEST_DELAY_NS: Final = 2**47
"""39 hours: a longer one is not a delay but another clock, or another call with the same id."""
UNKNOWN_DELAY: Final = -1
"""In columns of queue delays, for a launch without a known delay."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call of CUDA's or HIP's API.

    Attributes:
        thread: The calling thread.
        start_ns: Start of the call, in the trace's time.
        graph: Whether it launched a graph, whose kernels wait for each other.
    """

    thread: Hashable
    start_ns: int
    graph: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """A range that the program named (NVTX, `record_function`), on one thread."""

    thread: Hashable
    start_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True, slots=True)
class LaunchCause:
    """Facts of the call that launched a kernel.

    Attributes:
        queue_delay_ns: From the call's start to the kernel's; -1 where unknown, or where a graph's order decides it.
        graph: It came from a graph.
        region: The innermost region around the call; empty without one.
        call_ns: Start of the call; -1 where unknown.
    """

    queue_delay_ns: int = UNKNOWN_DELAY
    graph: bool = False
    region: str = NO_REGION
    call_ns: int = field(default=-1, compare=False)


class Calls:
    """Finds the cause of a kernel by its correlation id.

    Args:
        calls: By correlation id.
        ranges: The program's named ranges; those of one thread are nested or disjoint.
    """

    def __init__(self, calls: Mapping[Hashable, ApiCall], ranges: Iterable[Range] = ()) -> None:
        self._calls = calls
        self._regions = _innermost(calls, ranges)

    def cause(self, correlation: Hashable, start_ns: int, *, graph: bool = False) -> LaunchCause:
        """Return the cause of the kernel that started at `start_ns`; `graph`: the recording names a graph as cause."""
        call = self._calls.get(correlation)
        if call is None:
            return LaunchCause(graph=graph)
        graph = graph or call.graph
        delay_ns = start_ns - call.start_ns
        known = not graph and 0 <= delay_ns <= LONGEST_DELAY_NS
        region = self._regions.get(correlation, NO_REGION)
        return LaunchCause(delay_ns if known else UNKNOWN_DELAY, graph, region, call.start_ns)


def _innermost(calls: Mapping[Hashable, ApiCall], ranges: Iterable[Range]) -> dict[Hashable, str]:
    """The region of each call that has one: a sweep over time, with the ranges that are open on a stack by thread."""
    events: list[tuple[int, int, Hashable, Range | None]] = [(one.start_ns, -one.end_ns, None, one) for one in ranges]
    events += [(call.start_ns, 1, correlation, None) for correlation, call in calls.items()]
    regions: dict[Hashable, str] = {}
    stacks: dict[Hashable, list[Range]] = {}
    for time_ns, _, correlation, opened in sorted(events, key=lambda event: event[:2]):
        stack = stacks.setdefault(opened.thread if opened else calls[correlation].thread, [])
        while stack and stack[-1].end_ns <= time_ns:
            stack.pop()
        if opened:
            stack.append(opened)
        elif stack:
            regions[correlation] = stack[-1].name
    return regions
