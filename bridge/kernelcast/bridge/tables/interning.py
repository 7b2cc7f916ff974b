"""Interning: small numbers for values that many series share: `Writers`, `Producers` and `DeltaProducers` use it."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

SWEPT_ABOVE: Final = 1024
"""Below this number of values, a sweep for unused ones is not worth its time."""

K = TypeVar("K", bound=Hashable)


class Interning(Generic[K]):
    """Assigns a number to each value, and reuses the numbers of removed values; not thread-safe."""

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self._free: list[int] = []
        self._swept_to = SWEPT_ABOVE

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
        """Whether there are more than twice as many values as after the last sweep, so that a sweep is due."""
        return len(self._numbers) > 2 * self._swept_to

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
        self._swept_to = max(SWEPT_ABOVE, len(self._numbers))
        return list(gone.values())
