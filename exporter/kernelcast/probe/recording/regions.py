"""Named parts of a program: `with region("forward"):`. Launches, GPU time and wall time are added up per region.

The program's threads enter and leave; `MethodSelection.poll` reads `growth` on the probe's thread. A launch belongs to
the innermost region of the thread, or asyncio task, that makes it. The present region is a context variable, because
that separates asyncio's tasks: reading it costs 26 ns, an attribute of a `threading.local` 55 ns.
"""

import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from time import perf_counter_ns
from types import TracebackType
from typing import Final, NamedTuple, ParamSpec, Self, TypeVar

from kernelcast.wire.kernels import OTHER

MAX_REGIONS: Final = 32
MAX_NAME_CHARACTERS: Final = 64

P = ParamSpec("P")
R = TypeVar("R")


class OnDevice:
    """A region's launches and GPU time on one device: launching code adds to `launches`, the poll to `gpu_ns`."""

    __slots__ = ("gpu_ns", "launches")

    def __init__(self) -> None:
        self.launches = 0
        self.gpu_ns = 0.0


class RegionTotals:
    """Totals of all regions of one name since the process began.

    Threads add without a lock: between reading and writing an attribute in `a.x += n`, with `n` known, CPython lets no
    other thread run.
    """

    __slots__ = ("devices", "name", "wall_ns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.devices: dict[int, OnDevice] = {}
        self.wall_ns = 0

    def on(self, device: int) -> OnDevice:
        """Its part on one device."""
        return self.devices.get(device) or self.devices.setdefault(device, OnDevice())


class RegionEntry(NamedTuple):
    """One entry into a region that has not been left; `outer` is the entry around it."""

    totals: RegionTotals
    outer: "RegionEntry | None"
    began_ns: int
    outermost: bool
    marked: bool
    """Entered by an NVTX range, not by `with`."""


class RegionRow(NamedTuple):
    """Increase of a region on one device since the last call; wall time counts for the first device."""

    name: str
    launches: int
    gpu_ns: int
    wall_ns: int
    device: int


current: ContextVar[RegionEntry | None] = ContextVar("kernelcast_region", default=None)
"""The innermost region of this thread or task."""


class RegionTable:
    """The regions of a process: at most 32 names, the rest is `other`."""

    def __init__(self, limit: int = MAX_REGIONS) -> None:
        self._limit = limit
        self._lock = threading.RLock()
        self._known: dict[str, RegionTotals] = {}
        self._reported: dict[tuple[str, int], tuple[int, int, int]] = {}

    def totals(self, name: str) -> RegionTotals:
        """The totals of a name, or of `other` once there are too many."""
        try:
            found = self._known.get(name)
            return found if found is not None else self._admit(name)
        except Exception:  # noqa: BLE001  an object without a hash or a text is no name, and no error of the program's
            return self._admit(OTHER)

    def growth(self, home: int) -> Iterator[RegionRow]:
        """Increase of every region since the last call; one thread only may call it.

        Args:
            home: The device that wall time is reported for.
        """
        for totals in list(self._known.values()):
            for device in {home, *totals.devices}:
                part = totals.on(device)
                now = (part.launches, int(part.gpu_ns), totals.wall_ns if device == home else 0)
                before = self._reported.get((totals.name, device), (0, 0, 0))
                if now != before:
                    self._reported[totals.name, device] = now
                    launches, gpu_ns, wall_ns = (new - old for new, old in zip(now, before, strict=True))
                    yield RegionRow(totals.name, launches, gpu_ns, wall_ns, device)

    def forget(self) -> None:
        """Reset all counts: in a forked child they are the parent's."""
        self._lock = threading.RLock()
        self._reported.clear()
        for totals in self._known.values():
            totals.devices, totals.wall_ns = {}, 0

    def _admit(self, name: object) -> RegionTotals:
        shown = str(name)[:MAX_NAME_CHARACTERS] or OTHER
        with self._lock:
            if shown not in self._known and len(self._known) >= self._limit:
                shown = OTHER
            return self._known.setdefault(shown, RegionTotals(shown))


table: Final = RegionTable()


class region:  # noqa: N801  read as a word of the program: with region("forward")
    """A part of the program, as a context manager or a decorator; may be nested, re-entered and used by many threads.

    Nested regions each have their own wall time, so the outer one's includes the inner one's; launches and GPU time
    count for the innermost only. It never raises, and passes the program's own exceptions on.

    Args:
        name: Its name, at most 64 characters; after 32 different names the rest count as `other`.
    """

    __slots__ = ("_totals",)

    def __init__(self, name: str) -> None:
        self._totals = table.totals(name)

    def __enter__(self) -> Self:
        enter(self._totals)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while (entry := current.get()) is not None:  # ranges that were pushed inside and never popped end here, too
            _leave(entry)
            if not entry.marked:
                return

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, with every call of it within the region."""

        @wraps(function)
        def inside(*arguments: P.args, **named: P.kwargs) -> R:
            with self:
                return function(*arguments, **named)

        return inside


def enter(totals: RegionTotals, *, marked: bool = False) -> None:
    """Enter a region."""
    outer = current.get()
    current.set(RegionEntry(totals, outer, perf_counter_ns(), not _within(totals, outer), marked))


def inside(totals: RegionTotals) -> bool:
    """Whether this thread or task is within a region."""
    entry = current.get()
    return entry is not None and _within(totals, entry)


def leave_marked() -> None:
    """Leave the innermost region if a range entered it; a range that was pushed before the hook is ignored."""
    entry = current.get()
    if entry is not None and entry.marked:
        _leave(entry)


def _leave(entry: RegionEntry) -> None:
    current.set(entry.outer)
    if entry.outermost:
        spent_ns = perf_counter_ns() - entry.began_ns
        entry.totals.wall_ns += spent_ns


def _within(totals: RegionTotals, entry: RegionEntry | None) -> bool:
    while entry is not None:
        if entry.totals is totals:
            return True
        entry = entry.outer
    return False
