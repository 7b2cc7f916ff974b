"""Named parts of a program: `with region("forward"):`. Launches, GPU time and wall time are added up per region.

The program's threads enter and leave; `MethodSelection.poll` reads `growth` on the probe's thread. A launch belongs to
the innermost region of the thread, or asyncio task, that makes it. The present region is a context variable, because
that separates asyncio's tasks: reading it costs 26 ns, an attribute of a `threading.local` 55 ns.
"""

import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import partial, wraps
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, Self, TypeVar, cast

from kernelcast.wire.kernels import OTHER

MAX_REGIONS: Final = 32
MAX_NAME_CHARACTERS: Final = 64
# NVTX ranges that may be open in a thread; programs nest a few.
MAX_OPEN_RANGES: Final = 64

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

    __slots__ = ("devices", "name", "open", "wall_ns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.devices: dict[int, OnDevice] = {}
        self.wall_ns = 0
        """Wall time of entries that have ended."""
        self.open: dict[object, int] = {}
        """Beginnings of the outermost entries that have not ended, by `RegionEntry.key`."""

    def on(self, device: int) -> OnDevice:
        """Its part on one device."""
        return self.devices.get(device) or self.devices.setdefault(device, OnDevice())

    def wall_until(self, now_ns: int) -> int:
        """Wall time of all entries until now."""
        return self.wall_ns + sum(now_ns - began_ns for began_ns in list(self.open.values()))


class RegionEntry(NamedTuple):
    """One entry into a region that has not been left; `outer` is the entry around it."""

    totals: RegionTotals
    outer: "RegionEntry | None"
    began_ns: int
    key: object | None
    """The key in `RegionTotals.open`; None if the region was entered already."""
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
        self._reported: dict[tuple[str, int], tuple[int, int]] = {}
        self._reported_wall_ns: dict[str, int] = {}

    def totals(self, name: str) -> RegionTotals:
        """The totals of a name, or of `other` once there are too many."""
        try:
            found = self._known.get(name)
            return found if found is not None else self._admit(name)
        except Exception:  # noqa: BLE001  an object without a hash or a text is no name, and no error of the program's
            return self._admit(OTHER)

    def growth(self, home: int | None) -> Iterator[RegionRow]:
        """Increase of every region since the last call; one thread only may call it.

        Args:
            home: The device that wall time is reported for; None if it is not known yet: the time is reported later.
        """
        for totals in list(self._known.values()):
            for device in {*totals.devices} if home is None else {home, *totals.devices}:
                part = totals.on(device)
                now = (part.launches, int(part.gpu_ns))
                before = self._reported.get((totals.name, device), (0, 0))
                wall_ns = self._wall_growth(totals) if device == home else 0
                if now != before or wall_ns:
                    self._reported[totals.name, device] = now
                    yield RegionRow(totals.name, now[0] - before[0], now[1] - before[1], wall_ns, device)

    def forget(self) -> None:
        """Reset all counts: in a forked child they are the parent's."""
        self._lock = threading.RLock()
        self._reported.clear()
        self._reported_wall_ns.clear()
        for totals in self._known.values():
            totals.devices, totals.wall_ns, totals.open = {}, 0, {}

    def _wall_growth(self, totals: RegionTotals) -> int:
        before = self._reported_wall_ns.get(totals.name, 0)
        # An entry that ends now may be missing in both sums for a moment.
        now = self._reported_wall_ns[totals.name] = max(before, totals.wall_until(perf_counter_ns()))
        return now - before

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
        entry = current.get()
        if entry is not None and entry.totals is self._totals and not entry.marked:
            _leave(entry)
        else:
            _leave_below(self._totals)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, with every call of it within the region; a coroutine or generator as long as it runs."""
        from inspect import iscoroutinefunction, isgeneratorfunction  # noqa: PLC0415  it takes long to import

        generating, awaited = isgeneratorfunction(function), cast("Callable[P, Awaitable[R]]", function)
        if iscoroutinefunction(function):

            @wraps(function)
            async def inside_awaited(*arguments: P.args, **named: P.kwargs) -> R:
                with self:
                    return await awaited(*arguments, **named)

            return cast("Callable[P, R]", inside_awaited)

        @wraps(function)
        def inside(*arguments: P.args, **named: P.kwargs) -> R:
            with self:
                result = function(*arguments, **named)
            return cast("R", self._resumed(result)) if generating else result

        return inside

    def _resumed(self, generator: Any) -> Generator[Any, Any, Any]:
        """Run a generator within the region: between its steps, its caller is not in it."""
        resume: Callable[[], Any] = partial(next, generator)
        while True:
            try:
                with self:
                    item = resume()
            except StopIteration as end:
                return end.value
            try:
                resume = partial(generator.send, (yield item))
            except GeneratorExit:
                with self:
                    generator.close()
                raise
            except BaseException as error:  # noqa: BLE001  it is the generator's to handle
                resume = partial(generator.throw, error)


def enter(totals: RegionTotals, *, marked: bool = False) -> None:
    """Enter a region."""
    outer, began_ns = current.get(), perf_counter_ns()
    if marked:
        outer = _bounded(outer)
    key = None if _within(totals, outer) else object()
    current.set(RegionEntry(totals, outer, began_ns, key, marked))
    if key is not None and not marked:  # the end of a range may never come
        totals.open[key] = began_ns


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
    _end(entry)


def _end(entry: RegionEntry) -> None:
    began_ns = entry.began_ns if entry.marked else entry.totals.open.pop(entry.key, None)
    if entry.key is not None and began_ns is not None:
        spent_ns = perf_counter_ns() - began_ns
        entry.totals.wall_ns += spent_ns


def _leave_below(totals: RegionTotals) -> None:
    """Leave the innermost entry of a region that is not the innermost of all.

    Ranges that were pushed inside and never popped end, too. Other regions stay: a generator may end its own region
    while its caller is in another. An entry of another thread or task is not found here; its wall time ends.
    """
    above, entry = [], current.get()
    while entry is not None and (entry.marked or entry.totals is not totals):
        above.append(entry)
        entry = entry.outer
    if entry is None:
        with suppress(KeyError):
            spent_ns = perf_counter_ns() - totals.open.popitem()[1]
            totals.wall_ns += spent_ns
    elif all(one.marked for one in above):
        for ended in (*above, entry):
            _leave(ended)
    else:
        outer = entry.outer
        for kept in reversed(above):
            outer = kept._replace(outer=outer)
        current.set(outer)
        _end(entry)


def _bounded(entry: RegionEntry | None) -> RegionEntry | None:
    """Drop the oldest ranges where many are open: a program that never pops them would wait longer for each push."""
    above, below = [], entry
    while below is not None:
        above.append(below)
        below = below.outer
    if sum(one.marked for one in above) < MAX_OPEN_RANGES:
        return entry
    ranges = [one for one in above if one.marked]
    dropped = {id(one) for one in ranges[MAX_OPEN_RANGES // 2 :]}
    kept: RegionEntry | None = None
    for one in reversed(above):
        if id(one) not in dropped:
            kept = one._replace(outer=kept)
    return kept


def _within(totals: RegionTotals, entry: RegionEntry | None) -> bool:
    while entry is not None:
        if entry.totals is totals:
            return True
        entry = entry.outer
    return False
