"""The noise of the kept configuration, which quick rejections of a candidate must exceed; `comparison` asks for it.

A slow candidate is dropped after two launches or three blocks. On a busy machine one launch can take twice the time
of the next without any change; there such a difference proves nothing yet.
"""

from math import pi, sqrt
from statistics import fmean, median
from typing import Final

from kernelcast.tuning.experiment.arms import Rules
from kernelcast.tuning.experiment.evidence import SCALE_OF_MEDIAN

MIN_CHANGES: Final = 3
"""Differences of neighbouring launches that an estimate needs."""

RACE_DEVIATIONS: Final = 2.5
"""Both of two launches in a row exceed this by chance in 1 of 25,000 races, where the noise is normal."""

MEDIAN_ERROR: Final = 1.25
"""Standard error of a median over that of a mean, for normal noise."""
HARM_ERRORS: Final = 3.0
"""Standard errors that the median of some blocks exceeds by chance in 1 of 700 cases, with normal noise."""


class Noise:
    """Estimates the standard deviation of log times from neighbouring launches of the kept configuration."""

    def __init__(self) -> None:
        self._changes: list[float] = []
        self._last: tuple[int, float] | None = None

    def add(self, number: int, log_time: float) -> None:
        """Add a launch of the kept configuration."""
        if self._last is not None and self._last[0] == number - 1:
            self._changes.append(abs(log_time - self._last[1]))
        self._last = number, log_time

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 while too little is known."""
        return SCALE_OF_MEDIAN * median(self._changes) / sqrt(2) if len(self._changes) >= MIN_CHANGES else 0.0

    def race_limit(self) -> float:
        """Return the log-ratio that two launches in a row hardly exceed by chance."""
        return RACE_DEVIATIONS * self.deviation

    def harm_limit(self, rules: Rules, blocks: int) -> float:
        """Return the log-ratio that the median of some blocks hardly exceeds by chance."""
        # The mean change has long launches, too, which the median one hides: of one launch in five, say.
        by_mean = fmean(self._changes) * sqrt(pi) / 2 if self._changes else 0.0
        one_block = sqrt(1 / rules.short_launches)
        return HARM_ERRORS * MEDIAN_ERROR * max(self.deviation, by_mean) * one_block / sqrt(blocks)
