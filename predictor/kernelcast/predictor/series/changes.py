"""Changes of a whole number over event time: number of the process, of the code version or of the regime of a series.

A row keeps its last changes only, not a number per block. `Histories` and `Cycle` hold one object for each meaning.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Ints

MAX_CHANGES: Final = 8
"""Changes kept per row; the oldest is dropped first."""

_NEVER: Final = np.iinfo(np.int32).max
"""Block of a change that has not happened."""


class ChangePoints:
    """The last changes of a number in each row. Not safe for several threads."""

    def __init__(self, unknown: int) -> None:
        """Begin without rows.

        Args:
            unknown: Number of a row before its first change.
        """
        self._unknown = unknown
        self._block = np.zeros((0, MAX_CHANGES), np.int32)
        self._number = np.zeros((0, MAX_CHANGES + 1), np.int32)  # the first: before all changes

    def grow(self, capacity: int) -> None:
        """Extend to this number of rows."""
        more = capacity - len(self._block)
        if more > 0:
            self._block = np.concatenate([self._block, np.full((more, MAX_CHANGES), _NEVER, np.int32)])
            fresh = np.full((more, MAX_CHANGES + 1), self._unknown, np.int32)
            self._number = np.concatenate([self._number, fresh])

    def clear(self, rows: Ints) -> None:
        """Remove the changes of rows."""
        self._block[rows] = _NEVER
        self._number[rows] = self._unknown

    def latest(self, rows: Ints) -> Ints:
        """The present number of each row."""
        numbers: Ints = self._number[rows, (self._block[rows] != _NEVER).sum(axis=1)].astype(np.int64)
        return numbers

    def since(self, row: int) -> int | None:
        """The block of the last change of a row; None without one."""
        count = int((self._block[row] != _NEVER).sum())
        return int(self._block[row, count - 1]) if count else None

    def put(self, rows: Ints, blocks: Ints, numbers: Ints) -> None:
        """Record a number from a block on; a row that has it already stays as it is.

        Args:
            rows: Shape (n,), each at most once.
            blocks: Shape (n,), the first block with the number; one before the last change counts as that.
            numbers: Shape (n,).
        """
        changed = np.flatnonzero(self.latest(rows) != numbers)
        rows, blocks, numbers = rows[changed], blocks[changed], numbers[changed]
        count = (self._block[rows] != _NEVER).sum(axis=1)
        full = rows[count == MAX_CHANGES]
        self._block[full, :-1] = self._block[full, 1:]
        self._number[full, :-1] = self._number[full, 1:]
        column = np.minimum(count, MAX_CHANGES - 1)
        before = np.where(column > 0, self._block[rows, np.maximum(column - 1, 0)], np.iinfo(np.int32).min)
        self._block[rows, column] = np.maximum(blocks, before)
        self._number[rows, column + 1] = numbers

    def save(self, rows: Ints) -> NDArray[np.int32]:
        """The changes of rows as numbers, for `restore`."""
        return np.concatenate([self._block[rows], self._number[rows]], axis=1)

    def restore(self, rows: Ints, saved: NDArray[np.int32]) -> None:
        """Replace the changes of rows by saved ones."""
        self._block[rows], self._number[rows] = saved[:, :MAX_CHANGES], saved[:, MAX_CHANGES:]

    def expand(self, rows: Ints, last: int, count: int) -> Ints:
        """The number at the end of each of `count` blocks up to `last`, shape (n, count)."""
        expanded = np.repeat(self._number[rows, :1], count, axis=1).astype(np.int64)
        numbers = last + np.arange(1 - count, 1)
        for place in range(MAX_CHANGES):
            some = np.flatnonzero(self._block[rows, place] != _NEVER)
            if not len(some):
                break
            after = numbers >= self._block[rows[some], place][:, None]
            expanded[some] = np.where(after, self._number[rows[some], place + 1][:, None], expanded[some])
        return expanded
