"""Gaussian process over configurations that were measured, extended by one observation at a time.

`guided` adds observations, `candidates` reads predictions, `weights` compares likelihoods. A *place* is the index of a
value among its parameter's values.

Rasmussen & Williams, Gaussian Processes for Machine Learning (GPML), algorithm 2.1, with a constant mean m estimated
by generalised least squares. y are the logarithms of the n measured times, 1 is a vector of ones:

  K = L Lᵀ           similarities of the observations, noise included, and their Cholesky factor
  z = L⁻¹ y          `_solved_times`
  u = L⁻¹ 1          `_solved_ones`
  m = z·u / u·u      the mean; the variance is s² = (z·z - m z·u) / n, with a prior
  v = L⁻¹ k          `UnmeasuredConfiguration.solved`; k are the similarities of the configuration to the observations
  m + v·z - m v·u    its predicted value; its variance is s² (1 - v·v)
  c = K⁻¹ (y - m 1)  `coefficients`: the predicted value is also m + k·c

A new observation adds a row to L, and a number to z, u and every v: O(n) for a candidate.
"""

from collections.abc import Sequence
from math import log, sqrt
from operator import mul
from typing import Final

from kernelcast.tuning.search.similarity import Similarity, Table, log_prior

NUGGET: Final = 2e-3
"""Share of the variance that is noise; also keeps the matrix well conditioned."""


class UnmeasuredConfiguration:
    """A configuration that is not measured yet, with the numbers from which `candidates` predicts its time.

    Attributes:
        ordinal: Its ordinal in the space.
        places: Its places, of the parameters that vary.
        solved: v = L⁻¹ k, with the Cholesky factor L and the similarities k to all observations.
        times_product, ones_product, squared_norm: v·z, v·u and v·v, with z = L⁻¹ y and u = L⁻¹ 1.
        version, working: Probability of working, and the version of `failing.Failing` that it belongs to.
    """

    __slots__ = ("ones_product", "ordinal", "places", "solved", "squared_norm", "times_product", "version", "working")

    def __init__(self, ordinal: int, places: tuple[int, ...]) -> None:
        self.ordinal = ordinal
        self.places = places
        self.version = -1
        self.working = 1.0
        self.clear()

    def clear(self) -> None:
        """Forget the observations; `Surrogate.add` or `update` computes the numbers again."""
        self.solved: list[float] = []
        self.times_product = self.ones_product = self.squared_norm = 0.0


class Surrogate:
    """Predicts logarithms of times. For one thread.

    `level`, `coefficients` and `neighbours` need an observation.
    """

    def __init__(self, similarity: Similarity) -> None:
        self._similarity = similarity
        self.clear()

    def clear(self) -> None:
        """Forget all observations."""
        self._tables = list(self._similarity.tables())
        self.points: list[tuple[int, ...]] = []
        self._factor: list[list[float]] = []
        self._diagonal: list[float] = []
        self._solved_times: list[float] = []
        self._solved_ones: list[float] = []
        self._times_ones = self._ones_ones = self._times_times = 0.0  # z·u, u·u, z·z

    def add(
        self,
        places: tuple[int, ...],
        value: float,
        *,
        candidates: Sequence[UnmeasuredConfiguration],
        solved: list[float] | None = None,
    ) -> None:
        """Add an observation and update the candidates.

        Args:
            places: The configuration.
            value: Logarithm of its time.
            candidates: Candidates that have all earlier observations; this configuration is not among them.
            solved: That of this configuration, where it was a candidate since the last `clear`.
        """
        row = solved if solved is not None and len(solved) == len(self.points) else self._solve(places)
        diagonal = sqrt(max(1 + NUGGET - sum(map(mul, row, row)), NUGGET))
        time = (value - sum(map(mul, row, self._solved_times))) / diagonal
        one = (1 - sum(map(mul, row, self._solved_ones))) / diagonal
        similarities = [table[place] for table, place in zip(self._tables, places, strict=True)]
        for candidate in candidates:
            covariance = 1.0
            for by_place, place in zip(similarities, candidate.places, strict=True):
                covariance *= by_place[place]
            part = (covariance - sum(map(mul, row, candidate.solved))) / diagonal
            candidate.solved.append(part)
            candidate.times_product += part * time
            candidate.ones_product += part * one
            candidate.squared_norm += part * part
        self.points.append(places)
        self._factor.append(row)
        self._diagonal.append(diagonal)
        self._solved_times.append(time)
        self._solved_ones.append(one)
        self._times_ones += time * one
        self._ones_ones += one * one
        self._times_times += time * time

    def update(self, candidate: UnmeasuredConfiguration) -> None:
        """Compute a candidate's numbers from all observations."""
        solved = candidate.solved = self._solve(candidate.places)
        candidate.times_product = sum(map(mul, solved, self._solved_times))
        candidate.ones_product = sum(map(mul, solved, self._solved_ones))
        candidate.squared_norm = sum(map(mul, solved, solved))

    def coefficients(self) -> list[float]:
        """Return c = K⁻¹ (y - m 1): each observation's coefficient in the predicted value."""
        mean = self.level()[0]
        rest = [time - mean * one for time, one in zip(self._solved_times, self._solved_ones, strict=True)]
        found = []
        for row, diagonal in zip(reversed(self._factor), reversed(self._diagonal), strict=True):
            coefficient = rest.pop() / diagonal
            found.append(coefficient)
            rest = [value - coefficient * part for value, part in zip(rest, row, strict=True)]
        return found[::-1]

    def level(self) -> tuple[float, float]:
        """Return the constant mean and the variance."""
        mean = self._times_ones / self._ones_ones
        # 0.02 and 0.2 are a weak prior: a variance of 0.1, with the weight of a fifth of an observation.
        variance = (self._times_times - mean * self._times_ones + 0.02) / (len(self.points) + 0.2)
        return mean, max(variance, 1e-8)

    def neighbours(self, places: tuple[int, ...], coefficients: Sequence[float]) -> list[list[float]]:
        """Return the predicted values, less the constant mean, after changing one parameter.

        Each observation's term is a product over the parameters; one factor is replaced, and the observations are
        first summed by their value of that parameter. All neighbours together cost hardly more than one of them.

        Args:
            places: A configuration.
            coefficients: `coefficients()`.

        Returns:
            For each parameter, the predictions by place of its new value.
        """
        similarities = [table[place] for table, place in zip(self._tables, places, strict=True)]
        sums = [[0.0] * len(by_place) for by_place in similarities]
        for point, coefficient in zip(self.points, coefficients, strict=True):
            term = coefficient
            for by_place, place in zip(similarities, point, strict=True):
                term *= by_place[place]
            for total, place in zip(sums, point, strict=True):
                total[place] += term
        found = []
        for table, by_place, total in zip(self._tables, similarities, sums, strict=True):
            without = [one / similarity for one, similarity in zip(total, by_place, strict=True)]
            found.append([sum(map(mul, without, row)) for row in table])
        return found

    def _solve(self, places: tuple[int, ...]) -> list[float]:
        """Solve L v = k for a configuration."""
        similarities = [table[place] for table, place in zip(self._tables, places, strict=True)]
        solved: list[float] = []
        for point, row, diagonal in zip(self.points, self._factor, self._diagonal, strict=True):
            covariance = 1.0
            for by_place, place in zip(similarities, point, strict=True):
                covariance *= by_place[place]
            solved.append((covariance - sum(map(mul, row, solved))) / diagonal)
        return solved


def evidence(
    tables: list[Table], weights: Sequence[float], points: Sequence[tuple[int, ...]], values: Sequence[float]
) -> float:
    """Return the logarithm of the likelihood of values times the weights' prior, up to a constant.

    Mean and variance have the estimates of `Surrogate.level`: the concentrated likelihood.

    Args:
        tables: Of the similarity with these weights.
        weights: Of the similarity.
        points: Places of the measured configurations, at least one.
        values: Logarithms of their times.
    """
    factor: list[list[float]] = []
    diagonals: list[float] = []
    times: list[float] = []
    ones: list[float] = []
    for point, value in zip(points, values, strict=True):
        similarities = [table[place] for table, place in zip(tables, point, strict=True)]
        row: list[float] = []
        for other, earlier, below in zip(points, factor, diagonals, strict=False):
            covariance = 1.0
            for by_place, place in zip(similarities, other, strict=True):
                covariance *= by_place[place]
            row.append((covariance - sum(map(mul, earlier, row))) / below)
        diagonal = sqrt(max(1 + NUGGET - sum(map(mul, row, row)), NUGGET))
        times.append((value - sum(map(mul, row, times))) / diagonal)
        ones.append((1 - sum(map(mul, row, ones))) / diagonal)
        factor.append(row)
        diagonals.append(diagonal)
    # The same prior of the variance as in `Surrogate.level`.
    times_ones, ones_ones = sum(map(mul, times, ones)), sum(map(mul, ones, ones))
    rest = sum(map(mul, times, times)) - times_ones * times_ones / ones_ones
    variance = (rest + 0.02) / (len(points) + 0.2)
    return -0.5 * len(points) * log(variance) - sum(map(log, diagonals)) + log_prior(weights)
