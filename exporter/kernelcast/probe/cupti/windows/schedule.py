"""Says when kernels are measured, by the wall clock, so that the ranks of a job switch in the same moments.

A rank that is measured alone slows the job, and its steps hide the cost: all ranks wait for it. So the moments follow
from the job's id and from Unix time alone.
"""

from dataclasses import dataclass
from hashlib import blake2s
from math import ceil, log
from typing import Final, NamedTuple

from kernelcast.probe.cupti.windows.levels import NANOSECONDS, Level

SHORTEST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 64.0
GROWTH: Final = 1.05
"""Lengths of windows are powers of it in seconds: ranks whose steps last about as long choose the same one."""
CLOSED_ONE_IN: Final = 20
"""Where measuring is continuous, it pauses for one window in so many, to learn its cost."""


class Moment(NamedTuple):
    """What the schedule says of a moment.

    Attributes:
        measuring: Whether kernels are measured.
        next_ns: Nanoseconds until that changes.
    """

    measuring: bool
    next_ns: int


def window_seconds(needed_seconds: float) -> float:
    """Length of a window in which so much time is needed, to compare ten steps with ten others.

    >>> window_seconds(0.2), round(window_seconds(1.2), 3)
    (1.0, 1.216)
    """
    powers = ceil(log(min(max(needed_seconds, SHORTEST_SECONDS), LONGEST_SECONDS), GROWTH) - 1e-9)
    return float(GROWTH**powers)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The windows of one job.

    Attributes:
        job: The job's id, the same in all of its ranks.
        seconds: Length of a window.

    >>> Schedule("run-7").at(Level.FULL, 0, pauses=False)
    Moment(measuring=True, next_ns=9223372036854775807)
    """

    job: str
    seconds: float = SHORTEST_SECONDS

    def at(self, level: Level, unix_ns: int, *, pauses: bool) -> Moment:
        """Return whether kernels are measured at a moment.

        Args:
            level: How much is measured.
            unix_ns: The moment.
            pauses: Whether continuous measuring pauses, to learn its cost.
        """
        window_ns = round(self.seconds * NANOSECONDS)
        if level.windows_apart > 1:
            return self._moment(unix_ns, window_ns, level.windows_apart * window_ns, inside=True)
        if pauses:
            return self._moment(unix_ns, window_ns, CLOSED_ONE_IN * window_ns, inside=False)
        return Moment(True, 2**63 - 1)

    def _moment(self, unix_ns: int, window_ns: int, period_ns: int, *, inside: bool) -> Moment:
        digest = blake2s(self.job.encode(), digest_size=8).digest()
        position_ns = (unix_ns - int.from_bytes(digest, "little")) % period_ns
        in_window = position_ns < window_ns
        return Moment(in_window == inside, (window_ns if in_window else period_ns) - position_ns)
