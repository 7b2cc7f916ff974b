"""Small numbers for values that many series share: who writes them, who produced them."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

SWEPT_ABOVE: Final = 1024
"""Fewer numbers than this are not worth looking for ones that nobody uses."""

K = TypeVar("K", bound=Hashable)


class Interning(Generic[K]):
    """Gives each value a number, and the numbers of values that nobody uses any more to others."""

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
        """How many numbers have ever been in use: every number lies below."""
        return len(self._numbers) + len(self._free)

    @property
    def overgrown(self) -> bool:
        """Whether there are twice as many values as after the last sweep, so that another may pay."""
        return len(self._numbers) > 2 * self._swept_to

    def number(self, value: K) -> int:
        """The number of a value."""
        known = self._numbers.get(value)
        if known is None:
            known = self._free.pop() if self._free else len(self._numbers)
            self._numbers[value] = known
        return known

    def sweep(self, in_use: NDArray[np.bool_]) -> list[int]:
        """Forget values whose numbers are not in use.

        Args:
            in_use: Shape (used,).

        Returns:
            The numbers that stand for nothing now.
        """
        gone = {value: number for value, number in self._numbers.items() if not in_use[number]}
        for value in gone:
            del self._numbers[value]
        self._free += gone.values()
        self._swept_to = max(SWEPT_ABOVE, len(self._numbers))
        return list(gone.values())
