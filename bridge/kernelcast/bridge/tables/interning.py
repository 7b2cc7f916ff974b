"""Interning: small numbers for values that many series share: `Writers` and `Producers` use it."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

FEWEST_SWEPT: Final = 2 * 1024
"""Up to this number of values, a sweep for unused ones is not worth its time."""

K = TypeVar("K", bound=Hashable)


class Interning(Generic[K]):
    """Assigns a number to each value, and reuses the numbers of removed values; not thread-safe."""

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self._free: list[int] = []
        self._limit = FEWEST_SWEPT

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, value: K) -> bool:
        return value in self._numbers

    @property
    def used(self) -> int:
        """Number of numbers ever used; every number is below it."""
        return len(self._numbers) + len(self._free)

    @property
    def overgrown(self) -> bool:
        """Whether a sweep is due: there are more than twice as many values as after the last one."""
        return len(self._numbers) > self._limit

    def number(self, value: K) -> int:
        """Return the number of a value, a new one if needed."""
        known = self._numbers.get(value)
        if known is None:
            known = self._free.pop() if self._free else len(self._numbers)
            self._numbers[value] = known
        return known

    def sweep(self, in_use: NDArray[np.bool_]) -> list[int]:
        """Remove values whose numbers are not in use.

        Args:
            in_use: Shape (used,), whether a number is in use.

        Returns:
            The freed numbers.
        """
        gone = {value: number for value, number in self._numbers.items() if not in_use[number]}
        for value in gone:
            del self._numbers[value]
        self._free += gone.values()
        self._limit = max(FEWEST_SWEPT, 2 * len(self._numbers))
        return list(gone.values())
