"""Distinct numbers in an array, without sorting it: numbers are small and dense where series share their parts."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

IndexArray = NDArray[np.int64]
IntegerArray = NDArray[np.signedinteger]

SPARSE: Final = 16
"""With a range this many times longer than the array, sorting the array is cheaper than counting through its range."""


def distinct_numbers(numbers: IntegerArray) -> tuple[IndexArray, IndexArray]:
    """The distinct ones among numbers that are not negative, and which of them each is.

    Equal to `np.unique(numbers, return_inverse=True)`.

    Args:
        numbers: Shape (n,).

    Returns:
        Shape (d,), rising; shape (n,), the index of each number in it.
    """
    low, end = (int(numbers.min()), int(numbers.max()) + 1) if len(numbers) else (0, 0)
    if end - low > SPARSE * (len(numbers) + 1):
        values, index = np.unique(numbers, return_inverse=True)
        return values.astype(np.int64), index
    used, places = np.zeros(end - low, np.bool_), numbers - low
    used[places] = True
    return np.flatnonzero(used) + low, (np.cumsum(used) - 1)[places]


def first_uses(numbers: IntegerArray, end: int) -> list[int]:
    """The distinct ones among numbers from 0 up to `end`, in the order in which they come first."""
    first = np.full(end, len(numbers), np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of assignments to one place, the last one stays
    order = np.argsort(first, kind="stable")
    found: list[int] = order[: int(np.count_nonzero(first < len(numbers)))].tolist()
    return found
