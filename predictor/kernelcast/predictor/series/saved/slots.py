"""Slots: the places of series in the pages of a saved state; a series keeps its slot while it has a row."""

import numpy as np

from kernelcast.predictor.arrays import Bools, Ints

FREE = -1
"""Row of a slot without a series."""


class RowSlots:
    """The row in each slot.

    Attributes:
        row: Row of each slot; FREE where there is none.
        generation: Generation of that row when the slot was taken.
    """

    def __init__(self) -> None:
        self.row: Ints = np.zeros(0, np.int64)
        self.generation: Ints = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.row)

    def put(self, slots: Ints, rows: Ints, generations: Ints) -> None:
        """Give slots to rows; of several calls with a slot or a row, the last one counts. Shape (n,) each."""
        more = max(int(slots.max(initial=-1)) + 1 - len(self.row), 0)
        self.row = np.concatenate([self.row, np.full(more, FREE, np.int64)])
        self.generation = np.concatenate([self.generation, np.zeros(more, np.int64)])
        self.row[np.isin(self.row, rows)] = FREE
        self.row[slots], self.generation[slots] = rows, generations

    def assign(self, rows: Ints, generations: Ints) -> Ints:
        """Free the slots of rows that are gone and give slots to new rows; returns the slots with another series.

        Args:
            rows: Shape (n,), ascending: all rows of the partition.
            generations: Shape (n,).
        """
        stays = self._stays(rows, generations)
        freed = np.flatnonzero((self.row != FREE) & ~stays)
        self.row[freed] = FREE
        fresh = np.flatnonzero(~np.isin(rows, self.row[stays], assume_unique=True))
        free = np.flatnonzero(self.row == FREE)[: len(fresh)]
        added = np.arange(len(self.row), len(self.row) + len(fresh) - len(free))
        self.row = np.concatenate([self.row, np.full(len(added), FREE, np.int64)])
        self.generation = np.concatenate([self.generation, np.zeros(len(added), np.int64)])
        taken = np.concatenate([free, added])
        self.row[taken] = rows[fresh]
        self.generation[taken] = generations[fresh]
        self._trim()
        return np.union1d(freed[freed < len(self.row)], taken)

    def _stays(self, rows: Ints, generations: Ints) -> Bools:
        if not len(rows):
            return np.zeros(len(self.row), np.bool_)
        place = np.minimum(np.searchsorted(rows, self.row), len(rows) - 1)
        stays: Bools = (rows[place] == self.row) & (generations[place] == self.generation)
        return stays

    def _trim(self) -> None:
        used = np.flatnonzero(self.row != FREE)
        size = int(used[-1]) + 1 if len(used) else 0
        self.row, self.generation = self.row[:size], self.generation[:size]
