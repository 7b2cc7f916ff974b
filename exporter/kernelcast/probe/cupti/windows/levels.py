"""Chooses how much is measured: all, all but waits, or all in windows of 1 s in 10, in 30, in 100; never nothing.

A pure state machine. What holds the program's threads and what the decoder computes on a core of its own are two costs
with limits of their own; a third is learnt from the program's steps (`cost`). A cost is known per second of measuring,
so the cost of a level is that figure times the share of time in which the level measures.
"""

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

NANOSECONDS: Final = 1_000_000_000


class Level(IntEnum):
    """How much is measured; each level costs less than the one before."""

    FULL = 0
    NO_WAITS = 1
    """Kernels and copies, but no records of synchronisation."""
    TENTH = 2
    """From here on all in windows, with waits."""
    THIRTIETH = 3
    HUNDREDTH = 4

    @property
    def windows_apart(self) -> int:
        """Length of a period in windows: 1 where measuring is continuous."""
        return (1, 1, 10, 30, 100)[self]


class Spent(NamedTuple):
    """Totals since measuring began, all in nanoseconds.

    Attributes:
        measured_ns: Wall time in which kernels were measured.
        held_ns: Time in which the program's threads were held up.
        decoding_ns: Processor time of the decoder's thread.
    """

    measured_ns: int
    held_ns: int
    decoding_ns: int


@dataclass(frozen=True, slots=True)
class CostLimits:
    """Limits of the cost, and patience.

    Attributes:
        held_ratio: Share of wall time for which the program's threads may be held up.
        decoding_ratio: Share of one core that the decoder may use.
        step_ratio: Share by which a step may last longer, judged by the lower bound of what was measured.
        judged_seconds: Measured time over which costs are averaged.
        settle_seconds: Measured time before a level is judged: a start has costs that come once.
        calm_seconds: How long one level more must have fitted into half of the limits before it is tried.
        longest_calm_seconds: Each try that fails at once doubles the patience, up to this.
    """

    held_ratio: float = 0.01
    decoding_ratio: float = 0.10
    step_ratio: float = 0.02
    judged_seconds: float = 30.0
    settle_seconds: float = 5.0
    calm_seconds: float = 60.0
    longest_calm_seconds: float = 3600.0


class LevelChoice:
    """Chooses the level from costs so far.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: CostLimits | None = None) -> None:
        self._limits = limits or CostLimits()
        self._readings: deque[Spent] = deque()
        self._calm_seconds = self._limits.calm_seconds
        self._calm_since_ns: int | None = None
        self._tried_ns: int | None = None
        # As it was last known, at whatever level: after a change it is unknown for minutes, and not 0.
        self._slower = 0.0
        self.level = Level.FULL
        self.reason = ""
        """Which limit the present level keeps; empty at `FULL`."""

    def feed(
        self, now_ns: int, spent: Spent, *, least: Level = Level.FULL, why: str = "", slower: float | None = None
    ) -> Level:
        """Judge once more.

        Args:
            now_ns: Monotonic time.
            spent: Totals so far.
            least: A level that this program needs for a reason of its own, named by `why`.
            why: That reason.
            slower: Share by which steps last longer while measured, by the lower bound; None where it is unknown.

        Returns:
            The level from now on.
        """
        self._keep(spent)
        self._slower = self._slower if slower is None else slower
        first, last = self._readings[0], self._readings[-1]
        measured_ns = last.measured_ns - first.measured_ns
        if self.level < least:
            self._change(least, why)
            self._calm_seconds = self._limits.calm_seconds
        elif measured_ns >= self._limits.settle_seconds * NANOSECONDS / self.level.windows_apart:
            held = (last.held_ns - first.held_ns) / measured_ns
            decoding = (last.decoding_ns - first.decoding_ns) / measured_ns
            self._judge(now_ns, held, decoding, slower or 0.0, least)
        return self.level

    def _keep(self, spent: Spent) -> None:
        self._readings.append(spent)
        judged_ns = self._limits.judged_seconds * NANOSECONDS / self.level.windows_apart
        while len(self._readings) > 2 and spent.measured_ns - self._readings[1].measured_ns >= judged_ns:
            self._readings.popleft()

    def _judge(self, now_ns: int, held: float, decoding: float, slower: float, least: Level) -> None:
        passed = self._passed(self.level, held, decoding, slower)
        if passed and self.level < Level.HUNDREDTH:
            self._wait_longer(now_ns)
            self._change(Level(self.level + 1), passed)
        elif self.level == least or self._passed(Level(self.level - 1), 2 * held, 2 * decoding, 2 * self._slower):
            self._calm_since_ns = None
        elif self._calm_since_ns is None:
            self._calm_since_ns = now_ns
        elif now_ns - self._calm_since_ns >= self._calm_seconds * NANOSECONDS:
            self._tried_ns = now_ns
            self._change(Level(self.level - 1), self.reason if self.level > Level.NO_WAITS else "")

    def _wait_longer(self, now_ns: int) -> None:
        """Double the patience if the level was tried just now; a level that held for long has earned the first one."""
        limits = self._limits
        soon = self._tried_ns is not None and now_ns - self._tried_ns < 10 * limits.calm_seconds * NANOSECONDS
        self._calm_seconds = min(2 * self._calm_seconds, limits.longest_calm_seconds) if soon else limits.calm_seconds

    def _passed(self, level: Level, held: float, decoding: float, slower: float) -> str:
        """Return the limit that measuring at a level passes; empty if none."""
        limits, share = self._limits, 1 / level.windows_apart
        if held * share > limits.held_ratio:
            return f"measuring held the program's threads for {held:.1%} of the measured time"
        if decoding * share > limits.decoding_ratio:
            return f"decoding took {decoding:.0%} of a core in the measured time"
        if slower * share > limits.step_ratio:
            return f"steps last at least {slower:.1%} longer while they are measured"
        return ""

    def _change(self, level: Level, reason: str) -> None:
        """Set the level and forget the readings: the cost of one level does not predict another's."""
        self.level, self.reason = level, reason
        self._calm_since_ns = None
        last = self._readings[-1]
        self._readings.clear()
        self._readings.append(last)
