"""Budget of a process for trials: the time that they may cost is a share of its running time.

A probe has one `TrialBudget`; hints, councils and searches charge it, and ask `exhausted` before they try a value.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from math import isfinite
from statistics import median
from time import perf_counter_ns
from typing import Final

SHARE: Final = 0.01
SHARE_VARIABLE: Final = "KERNELCAST_TRIAL_SHARE"
# Usual launches that the first trials of a tunable or space may cost in addition, so that one can begin at all.
FIRST_LAUNCHES: Final = 20
# Time that they may cost in addition, because the host's jitter is large beside launches of microseconds.
FIRST_NS: Final = 100_000_000

# Last launches of the kept value whose median is the usual time.
USUAL_LAUNCHES: Final = 9
# First launches of the kept value, the shortest of which says what the first trials may cost: one may compile.
TYPICAL_LAUNCHES: Final = 2


class TrialBudget:
    """Counts the time that trials cost beyond the kept values. Safe for several threads.

    Args:
        share: Share of the running time that trials may cost.
        clock: Nanoseconds.

    Attributes:
        share: As given.
        lost_ns: Time that trials have cost.
    """

    def __init__(self, share: float = SHARE, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.share = share
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread in here
        self._began_ns = clock()
        self._granted_ns = 0
        self.lost_ns = 0

    @property
    def allowed_ns(self) -> int:
        """Time that trials may have cost by now; it never falls."""
        return round(self.share * (self._clock() - self._began_ns)) + self._granted_ns

    @property
    def is_used(self) -> bool:
        """Whether a trial has begun."""
        return self._granted_ns > 0

    @property
    def exhausted(self) -> bool:
        """Whether trials have cost more than allowed."""
        return self.lost_ns > self.allowed_ns

    def grant(self, launch_ns: float) -> None:
        """Allow the first trials of a value, whose launches usually take this long."""
        with self._lock:
            self._granted_ns += FIRST_NS + max(0, round(FIRST_LAUNCHES * launch_ns))

    def lose(self, lost_ns: float, *, allowed: bool = False) -> None:
        """Add time that a launch of a candidate took longer than the kept value usually does.

        Args:
            lost_ns: Nanoseconds.
            allowed: A share of its own allows them, so that they count as allowed here.
        """
        with self._lock:
            self.lost_ns += max(0, round(lost_ns))
            self._granted_ns += max(0, round(lost_ns)) if allowed else 0


def share_from(environ: Mapping[str, str]) -> float:
    """Return the share of time that the environment sets; an unusable one is replaced: a probe stops no program."""
    try:
        share = float(environ.get(SHARE_VARIABLE, SHARE))
    except ValueError:
        return SHARE
    return min(max(share, 0.0), 1.0) if isfinite(share) else SHARE


class LaunchCost:
    """The cost of one trial or search: time of its candidates' launches beyond the usual time of the kept one's.

    Args:
        budget: The budget of the process.
        share: Share of the time from now on that it may cost, in place of the process's; None for that.
        clock: Nanoseconds.
    """

    def __init__(
        self, budget: TrialBudget, share: float | None = None, clock: Callable[[], int] = perf_counter_ns
    ) -> None:
        self._budget = budget
        self._own_share = share
        self._clock = clock
        self._began_ns = clock()
        self._lost_ns = 0.0
        self._is_granted = False
        self._kept: deque[float] = deque(maxlen=USUAL_LAUNCHES)

    @property
    def share(self) -> float:
        """Share of the time that it may cost."""
        return self._budget.share if self._own_share is None else self._own_share

    @property
    def is_known(self) -> bool:
        """Whether a launch of the kept value was measured."""
        return bool(self._kept)

    @property
    def usual_seconds(self) -> float:
        """Usual time of a launch of the kept value; 0 before one is measured."""
        return median(self._kept) if self._kept else 0.0

    @property
    def first_seconds(self) -> float:
        """Time that it may cost in addition to its share."""
        return FIRST_LAUNCHES * self.usual_seconds + (FIRST_NS / 1e9 if self._own_share is None else 0.0)

    @property
    def is_spent(self) -> bool:
        """Whether it has cost its own share, or all trials that of the process."""
        if self._own_share is None:
            return self._budget.exhausted
        allowed_ns = self._own_share * (self._clock() - self._began_ns) + self.first_seconds * 1e9
        return self.is_known and self._lost_ns > allowed_ns

    def launch(self, seconds: float, *, candidate: bool) -> None:
        """Add a launch; the first few of the kept value grant the first trials."""
        if not candidate:
            self._kept.append(seconds)
            if len(self._kept) == TYPICAL_LAUNCHES and not self._is_granted:
                self._is_granted = True
                self._budget.grant(min(self._kept) * 1e9)
        elif self._kept:
            self.lose(seconds - self.usual_seconds)

    def lose(self, seconds: float) -> None:
        """Charge seconds; a share of its own allows them, so that they count as allowed in the process."""
        self._lost_ns += max(0.0, seconds * 1e9)
        self._budget.lose(seconds * 1e9, allowed=self._own_share is not None)

    def begin_again(self) -> None:
        """Forget the usual time, because another value is kept."""
        self._kept.clear()
