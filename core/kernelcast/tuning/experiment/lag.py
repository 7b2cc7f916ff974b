"""Finds the number of launches by which times follow the configuration late; `comparison` asks before a decision.

A host that runs ahead of its device measures in one step the work of an earlier one. Then times of the candidate are
recorded for launches of the kept configuration, and a comparison can have the wrong sign. The order of the arms is
random, so the change of the times correlates with the change of the arm at the true lag, and hardly at others.
"""

from statistics import median
from typing import Final

MAX_LAG_LAUNCHES: Final = 16
"""Longest lag that is found, in launches."""
MIN_RESPONSE_RATIO: Final = 1.3
"""A later response counts if it is this many times the immediate one: noise hardly reaches that in a decided case."""
MIN_NOISE_RATIO: Final = 3.5
"""It must also be this many times the median response of all lags."""
CLIP_MEDIANS: Final = 4.0
"""Changes are cut at this many medians, so that a spike counts little."""


class Lag:
    """Collects launches in order, and finds the lag with which times follow the arm. For one thread."""

    def __init__(self) -> None:
        self._new: list[bool] = []
        self._times: dict[int, float] = {}

    def launched(self, number: int, *, new: bool) -> None:
        """Add a launch; numbers count from 0 without gaps."""
        if number == len(self._new):
            self._new.append(new)

    def timed(self, number: int, log_time: float) -> None:
        """Add a launch's time."""
        self._times[number] = log_time

    def value(self) -> int:
        """Return the launches by which times follow the arm; 0 if they follow at once or with the next launch."""
        times = self._times
        changes = {number: time - times[number - 1] for number, time in times.items() if number - 1 in times}
        if not changes:
            return 0
        limit = CLIP_MEDIANS * median([abs(change) for change in changes.values()])
        clipped = {number: min(max(change, -limit), limit) for number, change in changes.items()}
        responses = [abs(self._response(clipped, lag)) for lag in range(MAX_LAG_LAUNCHES + 1)]
        later = max(range(2, MAX_LAG_LAUNCHES + 1), key=responses.__getitem__)
        noise = median(responses[2:])
        clear = responses[later] > max(MIN_RESPONSE_RATIO * max(responses[:2]), MIN_NOISE_RATIO * noise)
        return later if clear else 0

    def _response(self, changes: dict[int, float], lag: int) -> float:
        total = 0.0
        for number, change in changes.items():
            if number > lag:
                total += change * (self._new[number - lag] - self._new[number - lag - 1])
        return total
