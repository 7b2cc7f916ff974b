"""Finds the steps in which a program waits for its device, where it does so every few steps only.

A host that runs ahead of its device takes little time for most steps, and in some it waits for the work of all steps
since the last wait. The time of one step says nothing there; that of all steps from one wait to the next does.
"""

from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Final

LEAST_STEPS: Final = 64
"""Short steps that are watched before anything is tried, or a multiple of them."""
MOST_STEPS: Final = 1024
"""Steps after which too few waits were seen: each step is taken by itself."""
SHORT_SECONDS: Final = 0.05
"""Longer steps launch so much work that the queue of the device makes the host wait in each."""
FIRST_STEPS: Final = 3
"""Steps that say whether they are that long."""
LONG_RATIO: Final = 4.0
"""A step that takes this many times the median may be a wait."""
SHARE: Final = 0.5
"""Share of the time that waits take at least."""
LEAST_WAITS: Final = 4
LONGEST_GAP: Final = 2.0
"""The longest distance of two waits over the median one."""


class DeviceWaits:
    """Says at which steps a program's time can be compared. For the program's thread.

    Args:
        is_watching: Whether it is to look for waits; otherwise each step can be compared.
    """

    def __init__(self, *, is_watching: bool) -> None:
        self._seconds: list[float] | None = [] if is_watching else None
        self._limit = 0.0
        self._gap = 1
        self._since = 0

    def step_ended(self, seconds: float) -> bool:
        """Add a step; return whether the steps since the last such one can be compared with others."""
        if self._seconds is not None:
            self._seconds.append(seconds)
            if len(self._seconds) == FIRST_STEPS and median(self._seconds) > SHORT_SECONDS:
                self._seconds = None
            elif len(self._seconds) % LEAST_STEPS == 0:
                self._decide(self._seconds)
            return False
        self._since += 1
        if seconds < self._limit and self._since < LONGEST_GAP * self._gap:
            return False
        self._since = 0
        return True

    def _decide(self, seconds: list[float]) -> None:
        typical = median(seconds)
        waits = [place for place, one in enumerate(seconds) if one > LONG_RATIO * typical]
        if sum(seconds[place] for place in waits) < SHARE * sum(seconds):
            self._seconds = None
            return
        gaps = [after - before for before, after in pairwise(waits)]
        if len(waits) < LEAST_WAITS:
            self._seconds = None if len(seconds) >= MOST_STEPS else seconds
            return
        self._seconds = None
        if max(gaps) <= LONGEST_GAP * median(gaps):
            self._gap = max(gaps)
            self._limit = sqrt(typical * median([seconds[place] for place in waits]))
