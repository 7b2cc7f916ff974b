"""Limits the probe's cost: from 1 % of wall time on it measures less, at 2 % it switches itself off.

A pure state machine: its input is the time spent so far, its output a level. The share is measured over a sliding
window, so one expensive moment leaves the window after a while. One reading lowers the level; raising it needs a long
calm.
"""

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

NANOSECONDS: Final = 1_000_000_000


class SamplingLevel(IntEnum):
    """Amount of measuring; each level costs less than the one before."""

    FULL = 0
    HALF = 1
    QUARTER = 2
    COUNTS = 3
    OFF = 4

    @property
    def sampling(self) -> float:
        """The share of the usual sampling rate, 0 to 1."""
        return (1.0, 0.5, 0.25, 0.0, 0.0)[self]


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """Limits at which measuring is reduced and increased again.

    Attributes:
        back_off_ratio: Share of wall time from which one level less is measured.
        off_ratio: Share from which nothing is.
        calm_ratio: Below this share one level more may be measured; well under `back_off_ratio`, as the next level may
            cost twice as much.
        window_seconds: Length of the window that the share is computed over.
        settle_seconds: A level is not judged before it has lasted this long: a start has costs that come once.
        calm_seconds: How long it must have been calm before one level more.
        first_rest_seconds: How long it stays off the first time; twice as long each time after.
        longest_rest_seconds: At most.
    """

    back_off_ratio: float = 0.01
    off_ratio: float = 0.02
    calm_ratio: float = 0.004
    window_seconds: float = 30.0
    settle_seconds: float = 5.0
    calm_seconds: float = 60.0
    first_rest_seconds: float = 300.0
    longest_rest_seconds: float = 3600.0


class Budget:
    """Judges the probe's cost.

    Args:
        policy: The limits.
    """

    def __init__(self, policy: BudgetPolicy | None = None) -> None:
        self._policy = policy or BudgetPolicy()
        self._readings: deque[tuple[int, int]] = deque()
        self._calm_since_ns: int | None = None
        self.off_at = 0.0
        """The share at which it measured less last, or nothing."""
        self._rest_seconds = self._policy.first_rest_seconds
        self._off_since_ns = 0
        self.level = SamplingLevel.FULL
        self.ratio = 0.0
        """The share of wall time in the window, as of the last reading."""

    def feed(self, now_ns: int, spent_ns: int) -> SamplingLevel:
        """Judge once more.

        Args:
            now_ns: Monotonic time.
            spent_ns: Time that the probe has used since it began.

        Returns:
            The level from now on.
        """
        policy = self._policy
        self._readings.append((now_ns, spent_ns))
        while len(self._readings) > 2 and now_ns - self._readings[1][0] >= policy.window_seconds * NANOSECONDS:
            self._readings.popleft()
        since_ns, spent_then_ns = self._readings[0]
        passed_ns = now_ns - since_ns
        self.ratio = (spent_ns - spent_then_ns) / passed_ns if passed_ns > 0 else 0.0
        if self.level is SamplingLevel.OFF:
            self._rest(now_ns, spent_ns)
        elif passed_ns >= policy.settle_seconds * NANOSECONDS:
            self._judge(now_ns, spent_ns)
        return self.level

    def _judge(self, now_ns: int, spent_ns: int) -> None:
        policy = self._policy
        if self.ratio >= policy.off_ratio:
            self.off_at = self.ratio
            self._change(SamplingLevel.OFF, now_ns, spent_ns)
        elif self.ratio >= policy.back_off_ratio:
            self.off_at = self.ratio
            self._change(SamplingLevel(self.level + 1), now_ns, spent_ns)
        elif self.ratio >= policy.calm_ratio or self.level is SamplingLevel.FULL:
            self._calm_since_ns = None
        elif self._calm_since_ns is None:
            self._calm_since_ns = now_ns
        elif now_ns - self._calm_since_ns >= policy.calm_seconds * NANOSECONDS:
            self._change(SamplingLevel(self.level - 1), now_ns, spent_ns)

    def _rest(self, now_ns: int, spent_ns: int) -> None:
        if now_ns - self._off_since_ns < self._rest_seconds * NANOSECONDS:
            return
        self._rest_seconds = min(2 * self._rest_seconds, self._policy.longest_rest_seconds)
        self._change(SamplingLevel.COUNTS, now_ns, spent_ns)

    def _change(self, level: SamplingLevel, now_ns: int, spent_ns: int) -> None:
        """Set the level and empty the window: the cost of one level does not predict another's."""
        self.level = level
        self._off_since_ns = now_ns
        self._calm_since_ns = None
        self._readings.clear()
        self._readings.append((now_ns, spent_ns))
