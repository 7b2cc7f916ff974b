"""Types of the arrays that the predictor computes with; the docstring of each function states their shapes."""

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
_Scalar = TypeVar("_Scalar", bound=np.generic)


def extended(values: NDArray[_Scalar], rows: int, fill: float) -> NDArray[_Scalar]:
    """An array with at least some rows: itself, or a copy at least twice as long, whose further rows have the fill.

    >>> extended(np.array([1.0, 2.0, 3.0]), 4, np.nan)
    array([ 1.,  2.,  3., nan, nan, nan])
    """
    before = len(values)
    if rows <= before:
        return values
    longer = np.full((max(rows, 2 * before), *values.shape[1:]), fill, values.dtype)
    longer[:before] = values
    return longer
