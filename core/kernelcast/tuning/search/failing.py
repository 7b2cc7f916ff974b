"""Probability that a configuration fails: a logistic regression on the values' ranks and their products.

`candidates` lowers the rank of candidates by it.

Launches fail where a product of parameters exceeds a resource: threads times registers, tiles times shared memory.
Products of ranks describe such a limit with few coefficients, so that few failures are enough to avoid the next.
"""

from collections.abc import Sequence
from itertools import combinations
from math import exp, sqrt
from operator import mul
from random import Random
from typing import Final

from kernelcast.tuning.space import Space

MAX_PRODUCTS: Final = 66
"""Largest number of products: the pairs of twelve coordinates. A space with more coordinates has no products."""
RIDGE: Final = 0.3
"""Weight of the squared coefficients in the loss."""
RATE: Final = 0.5
"""Step size of AdaGrad."""
SAMPLE: Final = 24
"""Results of each kind that a step uses, so that a suggestion stays cheap."""
STEPS: Final = 8
NEGLIGIBLE: Final = 1e-3
"""Errors below it change no coefficient."""
PRIOR_LOGIT: Final = -4.0
"""Constant term at the start: 2 % of configurations fail."""


class Failing:
    """Learns which configurations fail. For one thread."""

    def __init__(self, space: Space, columns: Sequence[int], *, seed: int) -> None:
        self._random = Random(f"failing {seed}")
        self._coordinates: list[list[list[float]]] = []
        for column in columns:
            parameter = space.parameters[column]
            count = len(parameter.values)
            if parameter.numeric or count == 2:
                order = sorted(range(count), key=parameter.values.__getitem__) if parameter.numeric else range(count)
                ranks = {place: rank / (count - 1) for rank, place in enumerate(order)}
                self._coordinates.append([[ranks[place]] for place in range(count)])
            else:
                self._coordinates.append([[float(place == other) for other in range(count)] for place in range(count)])
        width = sum(len(one[0]) for one in self._coordinates)
        self._pairs = list(combinations(range(width), 2)) if width * (width - 1) // 2 <= MAX_PRODUCTS else []
        size = 1 + width + len(self._pairs)
        self._weights = [PRIOR_LOGIT] + [0.0] * (size - 1)
        self._squares = [1e-3] * size
        self.version = 0
        self._failed: list[list[float]] = []
        self._worked: list[list[float]] = []

    def _features(self, places: Sequence[int]) -> list[float]:
        single = [value for table, place in zip(self._coordinates, places, strict=True) for value in table[place]]
        return [1.0, *single, *[single[a] * single[b] for a, b in self._pairs]]

    def add(self, places: Sequence[int], *, failed: bool) -> None:
        """Add a result and improve the coefficients by a few steps of AdaGrad (Duchi et al., JMLR 12, 2011)."""
        (self._failed if failed else self._worked).append(self._features(places))
        # A success changes the coefficients little: they are improved at every fourth.
        if not self._failed or (not failed and len(self._worked) % 4):
            return
        self.version += 1
        sets = [(1.0, self._sample(self._failed), self._failed), (0.0, self._sample(self._worked), self._worked)]
        for _ in range(STEPS):
            gradient = [0.0, *[RIDGE * weight for weight in self._weights[1:]]]
            for target, sample, every in sets:
                for row in sample:
                    error = (_logistic(sum(map(mul, self._weights, row))) - target) * len(every) / len(sample)
                    if abs(error) > NEGLIGIBLE:
                        gradient = [total + error * value for total, value in zip(gradient, row, strict=True)]
            for place, slope in enumerate(gradient):
                self._squares[place] += slope * slope
                self._weights[place] -= RATE * slope / sqrt(self._squares[place])

    def _sample(self, rows: list[list[float]]) -> list[list[float]]:
        return rows if len(rows) <= SAMPLE else self._random.sample(rows, SAMPLE)

    def probability(self, places: Sequence[int]) -> float:
        """Return the probability that a configuration fails; 0 before the first failure."""
        return _logistic(sum(map(mul, self._weights, self._features(places)))) if self._failed else 0.0


def _logistic(value: float) -> float:
    return 1 / (1 + exp(-min(max(value, -30.0), 30.0)))
