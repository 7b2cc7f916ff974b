"""Steps of a program so far: their number, units of work, lengths and phases."""

from collections import deque
from collections.abc import Iterator
from threading import Lock
from time import perf_counter_ns, time_ns
from typing import Any, Final, Protocol

from kernelcast.probe.recording.totals import TOTAL_LIMIT
from kernelcast.wire.frames import PHASES
from kernelcast.wire.histogram import DurationTotals

__all__ = ["PHASES", "StepTotals"]

FLOPS_PER_MEGAFLOP: Final = 10**6
MAX_STEP_ENDS: Final = 4096
MAX_LENGTHS: Final = 1024
"""Lengths of steps that may wait for a report before the program's thread adds them up itself."""


class PhaseTimes(Protocol):
    """Nanoseconds of each phase, in the order of `PHASES`: a list, or what has its place while a step is timed."""

    def __iter__(self) -> Iterator[int]:
        """Iterate over the times."""
        ...

    def __getitem__(self, phase: int, /) -> int:
        """Return the time of a phase."""
        ...

    def __setitem__(self, phase: int, time_ns: int, /) -> None:
        """Set the time of a phase."""
        ...


class StepTotals:
    """Steps of the program so far. Its threads write, the sender's reads: each total never falls.

    A step is explicit (`probe.step()`) or automatic (the framework's own). The first explicit one takes over for good:
    automatic ones change phases only from then on, and it is the same step as the automatic one before it.

    Attributes:
        steps: Steps that have ended.
        items: Whole units of work in them.
        flops: Floating-point operations that they need, as the program says.
        skipped: Steps of them whose update the gradient scaler skipped.
        begun_ns: Request of the first batch, by a monotonic clock; 0 where no loader was seen before the first step.
        first_ns: End of the first step, by the same clock.
        last_ns: End of the last one.
        progress_ns: The last step or mark of a phase, by the same clock.
        phase_ns: Time of each phase since the end of the first step, in the order of `PHASES`.
        compilations: Compilations, since the process began.
        compile_ns: Their time.
        ends_ns: Ends of the last steps, for who compares steps; it takes them out.
    """

    __slots__ = (
        "_durations",
        "_is_explicit",
        "_lengths_ns",
        "_part",
        "_progress",
        "_summing",
        "begun_ns",
        "compilations",
        "compile_ns",
        "ends_ns",
        "first_ns",
        "flops",
        "items",
        "last_ns",
        "phase_ns",
        "progress_ns",
        "skipped",
        "steps",
    )

    def __init__(self) -> None:
        self.steps = 0
        self.items = 0
        self.flops = 0.0
        self.skipped = 0
        self.begun_ns = 0
        self.first_ns = 0
        self.last_ns = 0
        self.progress_ns = 0
        self.phase_ns: PhaseTimes = [0] * len(PHASES)
        self.compilations = 0
        self.compile_ns = 0
        self.ends_ns: deque[int] = deque(maxlen=MAX_STEP_ENDS)
        self._part = 0.0
        self._progress = (0, 0)
        self._durations = DurationTotals()
        self._lengths_ns: deque[int] = deque()  # not in `_durations` yet, whose bounds the program's caches do not hold
        self._summing = Lock()
        self._is_explicit = False

    @property
    def step_ns(self) -> int:
        """Wall time between the ends of steps."""
        return self.last_ns - self.first_ns

    @property
    def first_step_ns(self) -> int:
        """Wall time of the first step, which neither `step_ns` nor the phases have; 0 where it is not known."""
        return self.first_ns - self.begun_ns if self.begun_ns and self.steps else 0

    @property
    def megaflops(self) -> int:
        """Millions of floating-point operations."""
        return int(self.flops) // FLOPS_PER_MEGAFLOP

    def adopt(self, earlier: "StepTotals") -> None:
        """Take over the steps of the time before the probe started; this one has none yet."""
        for name in self.__slots__:
            setattr(self, name, getattr(earlier, name))

    def durations(self) -> DurationTotals | None:
        """A copy of the lengths of all steps but the first; None before there is one."""
        with self._summing:
            self._sum_lengths()
            return self._durations.copy() if self._durations.count else None

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Phases that the program has had, and their time; none before the first step, or if only `other` is known."""
        if not self.steps:
            return ()
        known = tuple((name, ns) for name, ns in zip(PHASES, self.phase_ns, strict=True) if ns)
        return known if len(known) > 1 or (known and known[0][0] != PHASES[-1]) else ()

    def progressed_at(self) -> int:
        """Unix nanoseconds of the last progress; 0 before the first."""
        if self._progress[0] != self.progress_ns:
            self._progress = self.progress_ns, time_ns() - (perf_counter_ns() - self.progress_ns)
        return self._progress[1]

    def advance(self, now_ns: int, items: float = 0) -> None:
        """Add an explicit step; a number of items that is none, or too large for a total, is left out."""
        if not self._is_explicit:
            self._is_explicit = True
            if self.steps:
                if not self.items:
                    self._add_items(items)
                return
        self._add(now_ns, items)

    def add_flops(self, flops: float) -> None:
        """Add the operations of a step; what is no number above 0 is left out."""
        more = _number(flops)
        if self.flops + more < TOTAL_LIMIT * FLOPS_PER_MEGAFLOP:
            self.flops += more

    def advance_by_itself(self, now_ns: int, items: float = 0, *, skipped: bool = False) -> None:
        """Add an automatic step, unless the program has made an explicit one."""
        if not self._is_explicit:
            self.skipped += skipped
            self._add(now_ns, items)

    def _add(self, now_ns: int, items: float) -> None:
        if self.steps:
            lengths_ns = self._lengths_ns
            lengths_ns.append(now_ns - self.last_ns)
            if len(lengths_ns) >= MAX_LENGTHS and self._summing.acquire(blocking=False):
                try:
                    self._sum_lengths()
                finally:
                    self._summing.release()
        else:
            self.first_ns = now_ns
            self.phase_ns = [0] * len(PHASES)
        self.steps += 1
        self.last_ns = self.progress_ns = now_ns
        self.ends_ns.append(now_ns)
        self._add_items(items)

    def _sum_lengths(self) -> None:
        lengths_ns, observe = self._lengths_ns, self._durations.observe
        while lengths_ns:
            observe(lengths_ns.popleft())

    def _add_items(self, items: float) -> None:
        if items:
            if type(items) is int:
                more = items
            else:
                exact = _number(items) + self._part
                more = int(exact)
                self._part = exact - more
            if 0 < more < TOTAL_LIMIT - self.items:
                self.items += more


def _number(value: Any) -> float:
    """A number of items as a float; 0 for anything that is none, or that is too large for a total."""
    try:
        number = float(value)
    except Exception:  # noqa: BLE001  nothing here may reach the program
        return 0.0
    return number if 0 < number < TOTAL_LIMIT else 0.0
