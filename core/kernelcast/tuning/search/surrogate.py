"""Gaussian process over configurations that were measured, extended by one observation at a time.

`guided` adds observations, `candidates` reads predictions, `weights` compares likelihoods. A *place* is the index of a
value among its parameter's values.
"""

# Rasmussen & Williams, Gaussian Processes for Machine Learning, algorithm 2.1, with a constant mean estimated by
# generalised least squares. `_factor` is the Cholesky factor of the similarity matrix; every candidate keeps its own
# column of the solved system, so that a new observation costs O(n) a candidate.

from collections.abc import Sequence
from math import log, sqrt
from operator import mul
from typing import Final

from kernelcast.tuning.search.similarity import Similarity, Table, log_prior

NUGGET: Final = 2e-3
"""Share of the variance that is noise; also keeps the matrix well conditioned."""


class UnmeasuredConfiguration:
    """A configuration that is not measured yet, with its column of the solved system.

    Attributes:
        ordinal: Its ordinal in the space.
        places: Its places, of the parameters that vary.
        solved: The column: L⁻¹ k, with the Cholesky factor L and the similarities k to all observations.
        mean_part, unit_part, squares: Products of the column with the solved times, with the solved ones, with itself;
            from them `candidates` computes the predicted mean and variance.
        version, working: Probability of working, and the version of `failing.Failing` that it belongs to.
    """

    __slots__ = ("mean_part", "ordinal", "places", "solved", "squares", "unit_part", "version", "working")

    def __init__(self, ordinal: int, places: tuple[int, ...]) -> None:
        self.ordinal = ordinal
        self.places = places
        self.version = -1
        self.working = 1.0
        self.clear()

    def clear(self) -> None:
        """Forget the solved system."""
        self.solved: list[float] = []
        self.mean_part = self.unit_part = self.squares = 0.0


class Surrogate:
    """Predicts logarithms of times. For one thread."""

    def __init__(self, similarity: Similarity) -> None:
        self._similarity = similarity
        self.clear()

    def clear(self) -> None:
        """Forget all observations."""
        self._tables = list(self._similarity.tables())
        self.points: list[tuple[int, ...]] = []
        self._factor: list[list[float]] = []
        self._diagonal: list[float] = []
        self._mean: list[float] = []
        self._unit: list[float] = []
        self._cross = self._units = self._squares = 0.0

    def add(
        self,
        places: tuple[int, ...],
        value: float,
        *,
        candidates: Sequence[UnmeasuredConfiguration],
        solved: list[float] | None = None,
    ) -> None:
        """Add an observation and bring the candidates up to date.

        Args:
            places: The configuration.
            value: Logarithm of its time.
            candidates: The candidates, up to date with all earlier observations.
            solved: The solved system of this configuration, where it was a candidate.
        """
        row = solved if solved is not None and len(solved) == len(self.points) else self._solve(places)
        diagonal = sqrt(max(1 + NUGGET - sum(map(mul, row, row)), NUGGET))
        mean = (value - sum(map(mul, row, self._mean))) / diagonal
        unit = (1 - sum(map(mul, row, self._unit))) / diagonal
        lines = [table[place] for table, place in zip(self._tables, places, strict=True)]
        for candidate in candidates:
            covariance = 1.0
            for line, place in zip(lines, candidate.places, strict=True):
                covariance *= line[place]
            part = (covariance - sum(map(mul, row, candidate.solved))) / diagonal
            candidate.solved.append(part)
            candidate.mean_part += part * mean
            candidate.unit_part += part * unit
            candidate.squares += part * part
        self.points.append(places)
        self._factor.append(row)
        self._diagonal.append(diagonal)
        self._mean.append(mean)
        self._unit.append(unit)
        self._cross += mean * unit
        self._units += unit * unit
        self._squares += mean * mean

    def admit(self, candidate: UnmeasuredConfiguration) -> None:
        """Bring a candidate up to date with all observations."""
        solved = candidate.solved = self._solve(candidate.places)
        candidate.mean_part = sum(map(mul, solved, self._mean))
        candidate.unit_part = sum(map(mul, solved, self._unit))
        candidate.squares = sum(map(mul, solved, solved))

    def weights(self) -> list[float]:
        """Return the weight of each observation in the predicted mean: K⁻¹ (y - m)."""
        mean = self.level()[0]
        rest = [value - mean * unit for value, unit in zip(self._mean, self._unit, strict=True)]
        weights = []
        for row, diagonal in zip(reversed(self._factor), reversed(self._diagonal), strict=True):
            weight = rest.pop() / diagonal
            weights.append(weight)
            rest = [value - weight * part for value, part in zip(rest, row, strict=True)]
        return weights[::-1]

    def level(self) -> tuple[float, float]:
        """Return the constant mean and the variance."""
        mean = self._cross / self._units
        # 0.02 and 0.2 are a weak prior: a variance of 0.1, with the weight of a fifth of an observation.
        variance = (self._squares - mean * self._cross + 0.02) / (len(self.points) + 0.2)
        return mean, max(variance, 1e-8)

    def neighbours(self, places: tuple[int, ...], weights: Sequence[float]) -> list[list[float]]:
        """Return the predicted mean, less the constant mean, after changing one parameter.

        Each observation's part is a product over the parameters; one factor is replaced, and the observations are
        first summed by their value of that parameter. All neighbours together cost hardly more than one of them.

        Args:
            places: A configuration.
            weights: `weights()`.

        Returns:
            For each parameter, the predictions by place of its new value.
        """
        rows = [table[place] for table, place in zip(self._tables, places, strict=True)]
        sums = [[0.0] * len(row) for row in rows]
        for point, weight in zip(self.points, weights, strict=True):
            part = weight
            for line, place in zip(rows, point, strict=True):
                part *= line[place]
            for total, place in zip(sums, point, strict=True):
                total[place] += part
        found = []
        for table, row, total in zip(self._tables, rows, sums, strict=True):
            scaled = [one / covariance for one, covariance in zip(total, row, strict=True)]
            found.append([sum(map(mul, scaled, line)) for line in table])
        return found

    def _solve(self, places: tuple[int, ...]) -> list[float]:
        rows = [table[place] for table, place in zip(self._tables, places, strict=True)]
        solved: list[float] = []
        for point, factor, diagonal in zip(self.points, self._factor, self._diagonal, strict=True):
            covariance = 1.0
            for line, place in zip(rows, point, strict=True):
                covariance *= line[place]
            solved.append((covariance - sum(map(mul, factor, solved))) / diagonal)
        return solved


def evidence(
    tables: list[Table], weights: Sequence[float], points: Sequence[tuple[int, ...]], values: Sequence[float]
) -> float:
    """Return the logarithm of the marginal likelihood of values with the variance and the mean integrated out."""
    factor: list[list[float]] = []
    diagonals: list[float] = []
    means: list[float] = []
    units: list[float] = []
    for point, value in zip(points, values, strict=True):
        lines = [table[place] for table, place in zip(tables, point, strict=True)]
        row: list[float] = []
        for other, earlier, below in zip(points, factor, diagonals, strict=False):
            covariance = 1.0
            for line, place in zip(lines, other, strict=True):
                covariance *= line[place]
            row.append((covariance - sum(map(mul, earlier, row))) / below)
        diagonal = sqrt(max(1 + NUGGET - sum(map(mul, row, row)), NUGGET))
        means.append((value - sum(map(mul, row, means))) / diagonal)
        units.append((1 - sum(map(mul, row, units))) / diagonal)
        factor.append(row)
        diagonals.append(diagonal)
    # The same prior of the variance as in `Surrogate.level`.
    cross, unit = sum(map(mul, means, units)), sum(map(mul, units, units))
    rest = sum(map(mul, means, means)) - cross * cross / unit
    variance = (rest + 0.02) / (len(points) + 0.2)
    return -0.5 * len(points) * log(variance) - sum(map(log, diagonals)) + log_prior(weights)
