"""Similarity of two configurations: the product over the parameters of a table of their values' similarity.

It is the kernel function (covariance) of the Gaussian process in `surrogate`.

Two values of a number parameter are the more similar the closer their ranks are. Integers with five or more values
have a second term, the power of two that divides them: on a GPU 128 is often closer to 256 than to 112. A difference
in one parameter lowers the similarity to a floor and not to 0, so that the effects of the other parameters are learnt
from all configurations.
"""

from collections.abc import Sequence
from math import exp, log, log2
from typing import Final

from kernelcast.tuning.space import Parameter, Space

FLOOR: Final = 0.4
"""Similarity of the most different values of a parameter."""
POWERS_FLOOR: Final = 0.6
"""The same of the term for powers of two."""
MANY_VALUES: Final = 5
"""Values from which on an integer parameter has that term."""
WEIGHT_MIN: Final = 0.05
WEIGHT_MAX: Final = 40.0
"""With the least weight a term has hardly any effect; with the largest, all different values have its floor."""

Table = list[list[float]]


class Similarity:
    """Tables of similarity, with a weight for each term: the larger, the faster the similarity falls.

    Attributes:
        weights: The weight of each term.
    """

    def __init__(self, space: Space) -> None:
        self._axes: list[tuple[int, int, list[list[float]], float]] = []
        varied = [place for place, count in enumerate(space.counts) if count > 1]
        self.columns = varied
        for column, place in enumerate(varied):
            parameter = space.parameters[place]
            self._axes.append((column, len(self._axes), _distances(_ranks(parameter), space.counts[place]), FLOOR))
            if powers := _powers_of_two(parameter):
                self._axes.append((column, len(self._axes), _distances(powers), POWERS_FLOOR))
        self.weights = [1.0] * len(self._axes)
        self._tables: list[Table] = [self._table(column) for column in range(len(varied))]

    def _table(self, column: int, changed: tuple[int, float] | None = None) -> Table:
        size = 0
        table: Table = []
        for owner, axis, distances, floor in self._axes:
            if owner != column:
                continue
            weight = changed[1] if changed and changed[0] == axis else self.weights[axis]
            rows = [[floor + (1 - floor) * _decay(weight * d) for d in row] for row in distances]
            if size:
                table = [[a * b for a, b in zip(one, two, strict=True)] for one, two in zip(table, rows, strict=True)]
            else:
                table, size = rows, len(rows)
        return table

    def tables(self, axis: int = -1, weight: float = 0.0) -> list[Table]:
        """Return the tables; with an axis, those that a changed weight would give."""
        if axis < 0:
            return self._tables
        column = self._axes[axis][0]
        return [
            self._table(place, (axis, weight)) if place == column else table for place, table in enumerate(self._tables)
        ]

    def change(self, axis: int, weight: float) -> None:
        """Set the weight of a term."""
        self.weights[axis] = weight
        column = self._axes[axis][0]
        self._tables[column] = self._table(column)

    def project(self, places: Sequence[int]) -> tuple[int, ...]:
        """Return the places of those parameters that vary."""
        return tuple([places[column] for column in self.columns])


def similarity_of(tables: list[Table], one: Sequence[int], two: Sequence[int]) -> float:
    """Return the similarity of two configurations, 1 for equal ones."""
    value = 1.0
    for table, a, b in zip(tables, one, two, strict=True):
        value *= table[a][b]
    return value


def log_prior(weights: Sequence[float]) -> float:
    """Return the logarithm of the weights' prior density, up to a constant."""
    # Log-normal: the median weight is exp(0.5), the logarithm's standard deviation is 2.
    return -sum((log(weight) - 0.5) ** 2 for weight in weights) / 8


def _decay(distance: float) -> float:
    """Return the Matérn function of smoothness 3/2: 1 for distance 0, falling to 0 (Rasmussen & Williams, 4.17)."""
    scaled = 1.7 * distance
    return (1 + scaled) * exp(-scaled)


def _ranks(parameter: Parameter) -> list[float] | None:
    if not parameter.numeric or len(parameter.values) < 3:
        return None
    order = sorted(range(len(parameter.values)), key=lambda place: parameter.values[place])
    ranks = [0.0] * len(order)
    for rank, place in enumerate(order):
        ranks[place] = rank / (len(order) - 1)
    return ranks


def _powers_of_two(parameter: Parameter) -> list[float] | None:
    """Return the exponent of the power of two that divides each value, over the largest; None where it says little."""
    values = parameter.values
    if len(values) < MANY_VALUES or not all(type(value) is int and value > 0 for value in values):
        return None
    # `v & -v` is the lowest set bit: 96 gives 32, so 5. Above 64 a larger power means nothing more.
    powers = [min(log2(int(value) & -int(value)), 6.0) for value in values]
    top = max(powers)
    if not top or len(set(powers)) > len(values) // 2:
        return None
    return [power / top for power in powers]


def _distances(coordinates: list[float] | None, count: int = 2) -> list[list[float]]:
    if coordinates is None:
        return [[float(a != b) for b in range(count)] for a in range(count)]
    return [[abs(a - b) for b in coordinates] for a in coordinates]
