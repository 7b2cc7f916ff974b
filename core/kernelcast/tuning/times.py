"""Times of configurations that were measured at different moments, made comparable: `Campaign` adds and reads them.

Configurations are known by their ordinal in the space. Times are logarithms inside, ratios to the reference outside.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean, median
from typing import Final

MIN_DRIFT: Final = 0.02
"""Range of the reference's log level below which it counts as noise."""
NOISE_FACTOR: Final = 4.0
"""The range must also be this many times the noise of the reference within one visit."""
SPIKE: Final = 2.0
"""Times above this many medians are cut."""
COLD_SAMPLE: Final = 50
"""Configurations, the newest, from which the ratio of cold launches is computed."""
COLD_EVERY: Final = 16
"""Launches after which the ratio of cold launches is computed again."""


@dataclass(slots=True)
class Launches:
    """Launches of one configuration: numbers and logarithms of times, in order; the first launch is cold."""

    numbers: list[int] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)


def cut_mean(values: Sequence[float]) -> float:
    """Return the mean of positive values after those above twice the median were lowered to that."""
    limit = SPIKE * median(values)
    return fmean([min(value, limit) for value in values])


class LaunchTimes:
    """Launches of all configurations, corrected for drift by a reference that is measured repeatedly. For one thread.

    The level is the logarithm of the reference's time; between two measurements (visits) of the reference it is
    interpolated. Cold launches are corrected by the median ratio of the first launch to the later ones.

    Args:
        reference: The configuration that is measured again.
    """

    def __init__(self, reference: int) -> None:
        self.reference = reference
        self.launches = 0
        self.measured: dict[int, Launches] = {}
        self._proof_lost = self._usual = 0.0
        self._numbers: list[float] = []
        self._levels: list[float] = []
        self._spreads: list[float] = []
        self._correct = False
        self._cold = 0.0
        self._cold_until = 0

    def add(self, ordinal: int, times: Sequence[float]) -> None:
        """Add consecutive launches of a configuration."""
        first = ordinal not in self.measured
        record = self.measured.setdefault(ordinal, Launches())
        numbers = range(self.launches, self.launches + len(times))
        self.launches += len(times)
        record.numbers.extend(numbers)
        record.logs.extend(map(log, times))
        if ordinal == self.reference:
            self._visit(list(numbers)[first:], record.logs[-len(times) :][first:])

    def add_proof(self, ordinal: int, times: Sequence[float]) -> None:
        """Add launches of an experiment, which has estimates of its own: they count as launches and as lost time."""
        if ordinal not in self.measured:
            self.measured[ordinal] = Launches([self.launches], [log(times[0])])
        self.launches += len(times)
        if ordinal == self.reference:
            self._usual = times[-1]
        usual = self._usual or exp(self.level(self.launches)) * self.estimate(self.reference)
        self._proof_lost += sum(max(0.0, time / usual - 1) for time in times)

    def _visit(self, numbers: list[int], logs: list[float]) -> None:
        if not numbers:
            return
        self._numbers.append(fmean(numbers))
        self._levels.append(median(logs))
        if len(logs) > 1:
            self._spreads.append(max(logs) - min(logs))
        noise = median(self._spreads) if self._spreads else 0.0
        levels = self._smoothed()
        self._correct = max(levels) - min(levels) > max(MIN_DRIFT, NOISE_FACTOR * noise)

    def _smoothed(self) -> list[float]:
        """Return the levels as medians of three neighbouring visits, so that a spike is no drift."""
        levels = self._levels
        if len(levels) < 3:
            return levels
        middle = [median(levels[place - 1 : place + 2]) for place in range(1, len(levels) - 1)]
        return [levels[0], *middle, levels[-1]]

    def level(self, number: float) -> float:
        """Return the logarithm of the reference's time at a launch."""
        numbers, levels = self._numbers, self._levels
        if not numbers:
            return 0.0
        if not self._correct:
            return median(levels)
        place = bisect_right(numbers, number)
        if place in (0, len(numbers)):
            return levels[min(place, len(levels) - 1)]
        share = (number - numbers[place - 1]) / (numbers[place] - numbers[place - 1])
        return levels[place - 1] + share * (levels[place] - levels[place - 1])

    def estimate(self, ordinal: int) -> float:
        """Return the time of a configuration relative to the reference: the mean of its warm launches.

        Launches of one configuration can take one of two times, so that their median says little; spikes are cut. With
        a cold launch alone, that one is corrected.
        """
        record = self.measured[ordinal]
        levelled = [value - self.level(number) for number, value in zip(record.numbers, record.logs, strict=True)]
        if len(levelled) == 1:
            return exp(levelled[0] - self.cold())
        return cut_mean([exp(value) for value in levelled[1:]])

    def cold(self) -> float:
        """Return the median logarithm of first launches over later ones; 0 before three configurations have both."""
        if self.launches >= self._cold_until:
            self._cold_until = self.launches + COLD_EVERY
            found = [
                record.logs[0] - self.level(record.numbers[0]) - log(self.estimate(ordinal))
                for ordinal, record in self.measured.items()
                if len(record.logs) > 1
            ][-COLD_SAMPLE:]
            self._cold = median(found) if len(found) >= 3 else 0.0
        return self._cold

    def lost_ratio(self) -> float:
        """Return the time of all launches above the reference's, over the reference's time for as many launches."""
        reference = self.estimate(self.reference)
        lost = sum(
            max(0.0, exp(value - self.level(number)) - reference)
            for record in self.measured.values()
            for number, value in zip(record.numbers, record.logs, strict=True)
        )
        lost += self._proof_lost * reference
        return lost / (reference * self.launches) if self.launches else 0.0


def duration(seconds: float) -> str:
    """Return a time for people, in the unit that suits it."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
