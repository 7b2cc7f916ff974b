"""Sums by class of metric and horizon (a cell), from which `intervals` and `probabilities` make scores."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Floats, Ints

MOST_CLAIMS: Final = 10_000.0
"""Claims of a cell after which all its sums are halved, so that a score follows changes."""


class Cells:
    """Named sums, each of shape (classes, horizons, ...); cells forget by halves."""

    def __init__(self, classes: int, horizons: int, sums: dict[str, tuple[int, ...]]) -> None:
        """Begin at 0.

        Args:
            classes: Number of classes.
            horizons: Number of horizons.
            sums: Further axes of each sum, by name; `count` is added.
        """
        self.shape = (classes, horizons)
        self.sums: dict[str, Floats] = {
            name: np.zeros((classes, horizons, *axes)) for name, axes in {"count": (), **sums}.items()
        }

    def __getitem__(self, name: str) -> Floats:
        return self.sums[name]

    def add(self, name: str, classes: Ints, horizons: Ints, values: NDArray[Any]) -> None:
        """Add values of claims, shape (claims, ...), to the cells of their class and horizon; NaN counts as 0."""
        np.add.at(self.sums[name], (classes, horizons), np.nan_to_num(values))

    def forget(self) -> None:
        """Halve all sums of the cells with more than `MOST_CLAIMS` claims."""
        full = self.sums["count"] > MOST_CLAIMS
        for sums in self.sums.values():
            sums[full] /= 2.0


def ratio(part: Floats, whole: Floats) -> Floats:
    """Quotient of two arrays; NaN where the divisor is 0."""
    ratios: Floats = np.divide(
        part, whole, out=np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan), where=whole > 0
    )
    return ratios
