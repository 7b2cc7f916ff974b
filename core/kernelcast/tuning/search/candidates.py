"""The candidates of the guided search: configurations that are not measured yet, ranked by their expected improvement.

`guided.GuidedSearch` adds random configurations and neighbours of good ones, then takes the best.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import erfc, exp, pi, sqrt
from random import Random
from typing import Final

from kernelcast.tuning.search.failing import Failing
from kernelcast.tuning.search.settings import Settings
from kernelcast.tuning.search.similarity import Similarity
from kernelcast.tuning.search.surrogate import Surrogate, UnmeasuredConfiguration
from kernelcast.tuning.space import Space

RANDOM_DRAWS: Final = 50
"""Random draws of a new configuration; after them every ordinal is tried in turn, because few are left."""
SAFE: Final = 0.97
"""Probability of working above which `best_switched` may return a configuration."""
KEPT_AT_REBUILD: Final = 32
"""Candidates that stay when the model is built again."""


@dataclass(frozen=True, slots=True)
class Acquisition:
    """Parameters of the acquisition function, which says how much the measurement of a candidate is worth.

    Attributes:
        best: Logarithm of the best time measured so far.
        exposure: Exponent of the expected slowdown; 0 ignores it.
        failing_cost: Cost of a failing launch, which counts by its probability.
    """

    best: float
    exposure: float
    failing_cost: float


class CandidatePool:
    """Candidates, each with the numbers from which the model predicts its time. For one thread.

    An ordinal is the number of a configuration in mixed radix; a place is the index of one parameter's value.
    """

    def __init__(
        self,
        space: Space,
        similarity: Similarity,
        surrogate: Surrogate,
        failing: Failing,
        *,
        settings: Settings,
        random: Random,
    ) -> None:
        self._space = space
        self._similarity = similarity
        self._surrogate = surrogate
        self._failing = failing
        self._settings = settings
        self._random = random
        self._pool: dict[int, UnmeasuredConfiguration] = {}

    def current(self) -> list[UnmeasuredConfiguration]:
        """Return all candidates."""
        return list(self._pool.values())

    def discard(self, ordinal: int) -> UnmeasuredConfiguration | None:
        """Take a configuration out; return it if it was in."""
        return self._pool.pop(ordinal, None)

    def fresh(self, seen: Container[int]) -> int:
        """Return a random configuration that is not in `seen`.

        Raises:
            StopIteration: All are.
        """
        ordinals = self._space.ordinals
        for _ in range(RANDOM_DRAWS):
            ordinal = ordinals[self._random.randrange(len(ordinals))]
            if ordinal not in seen:
                return ordinal
        first = self._random.randrange(len(ordinals))
        order = (ordinals[(first + place) % len(ordinals)] for place in range(len(ordinals)))
        return next(ordinal for ordinal in order if ordinal not in seen)

    def admit_random(self, seen: Container[int]) -> None:
        """Add random configurations, fewer than the setting where one is drawn twice."""
        for _ in range(self._settings.random):
            self._admit(self.fresh(seen))

    def admit_neighbours(self, elite: int, coefficients: list[float], seen: Container[int]) -> None:
        """Add the neighbours of a configuration, with one parameter changed, whose predicted times are least."""
        space = self._space
        table = self._surrogate.neighbours(self._similarity.project(space.places(elite)), coefficients)
        near = []
        for column, values in zip(self._similarity.columns, table, strict=True):
            stride = space.strides[column]
            place = elite // stride % space.counts[column]
            near += [(value, elite + (other - place) * stride) for other, value in enumerate(values) if other != place]
        near.sort()
        left = self._settings.screened
        for _, ordinal in near:
            if ordinal not in self._pool and ordinal not in seen and ordinal in space:
                self._admit(ordinal)
                left -= 1
                if not left:
                    return

    def best_switched(
        self, elites: Sequence[int], parameter: int, acquisition: Acquisition, seen: Container[int]
    ) -> int | None:
        """Return the best of some configurations after changing one parameter; None without a new one that will work.

        All new ones become candidates.
        """
        stride, count = self._space.strides[parameter], self._space.counts[parameter]
        found = {
            elite + (other - elite // stride % count) * stride
            for elite in elites
            for other in range(count)
            if other != elite // stride % count
        }
        new = [ordinal for ordinal in sorted(found) if ordinal not in seen and ordinal in self._space]
        for ordinal in new:
            self._admit(ordinal)
        safe = [ordinal for ordinal in new if self._probability_of_working(self._pool[ordinal]) > SAFE]
        level = self._surrogate.level()
        return max(
            safe, key=lambda ordinal: self._acquisition_value(self._pool[ordinal], level, acquisition), default=None
        )

    def _admit(self, ordinal: int) -> None:
        if ordinal not in self._pool:
            candidate = UnmeasuredConfiguration(ordinal, self._similarity.project(self._space.places(ordinal)))
            self._surrogate.update(candidate)
            self._pool[ordinal] = candidate

    def best(self, acquisition: Acquisition) -> int:
        """Return the candidate that is worth most, which stays; drop those worth least."""
        level = self._surrogate.level()
        ranked = sorted(
            self._pool.values(), key=lambda one: self._acquisition_value(one, level, acquisition), reverse=True
        )
        for candidate in ranked[self._settings.pool :]:
            del self._pool[candidate.ordinal]
        return ranked[0].ordinal

    def shrink(self, acquisition: Acquisition) -> None:
        """Keep the best few and clear their numbers: the caller builds the model again, which computes them."""
        level = self._surrogate.level()
        ranked = sorted(
            self._pool.values(), key=lambda one: self._acquisition_value(one, level, acquisition), reverse=True
        )
        self._pool = {candidate.ordinal: candidate for candidate in ranked[:KEPT_AT_REBUILD]}
        for candidate in self._pool.values():
            candidate.clear()

    def _acquisition_value(
        self, candidate: UnmeasuredConfiguration, level: tuple[float, float], acquisition: Acquisition
    ) -> float:
        """Expected improvement (Jones et al. 1998) of the time's logarithm, times the probability of working."""
        mean, variance = level
        predicted = mean + candidate.times_product - mean * candidate.ones_product
        deviation = sqrt(max(1 - candidate.squared_norm, 1e-9) * variance)
        gain = (acquisition.best - predicted) / deviation
        if gain < -30:  # the density would be 0 in a double
            return 0.0
        improvement = deviation * (gain * 0.5 * erfc(-gain / sqrt(2)) + exp(-gain * gain / 2) / sqrt(2 * pi))
        log_slowdown = max(0.0, predicted + deviation * deviation / 2 - acquisition.best)
        works = self._probability_of_working(candidate)
        failing_cost = acquisition.failing_cost * (1 - works)
        return improvement * works * exp(-acquisition.exposure * log_slowdown - failing_cost)

    def _probability_of_working(self, candidate: UnmeasuredConfiguration) -> float:
        if candidate.version != self._failing.version:
            candidate.version = self._failing.version
            candidate.working = 1 - self._failing.probability(candidate.places)
        return candidate.working
