"""Claims whose block has not ended yet, as columns of arrays; `intervals` and `probabilities` have one table each."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints

MAX_PENDING: Final = 100_000
"""Claims that may wait in a table; further ones are dropped and counted."""
LATE_BLOCKS: Final = 2
"""Blocks by which a series may be behind the others before its claims are given up."""

Column: TypeAlias = NDArray[Any]
"""Whole numbers, float32 or flags; shape (claims,) or (claims, ...)."""


class Pending:
    """A table with one row for each claim; at most one claim of a series and horizon is pending.

    Attributes:
        dropped: Claims that were refused because `MAX_PENDING` were waiting.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        """Begin a table.

        Args:
            columns: Empty arrays with the right types and widths; besides `series`, `horizon` (its number) and `due`
                (a block), which every table has.
        """
        zero = np.zeros(0, np.int64)
        self.columns: dict[str, Column] = {"series": zero, "horizon": zero, "due": zero, **columns}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self.columns["due"])

    def ints(self, name: str) -> Ints:
        """A column of whole numbers."""
        return self.columns[name].astype(np.int64, copy=False)

    def floats(self, name: str) -> Floats:
        """A column of numbers."""
        return self.columns[name].astype(np.float64)

    def open_for(self, series: Ints, horizon: int) -> Bools:
        """Mask of the series without a pending claim for a horizon."""
        taken = self.columns["series"][self.columns["horizon"] == horizon]
        return ~np.isin(series, taken)

    def add(self, rows: Mapping[str, Column]) -> int:
        """Append claims as far as there is room; returns how many."""
        wanted = len(rows["due"])
        room = min(wanted, MAX_PENDING - len(self))
        self.dropped += wanted - room
        for name, column in self.columns.items():
            new = rows[name][:room].astype(column.dtype, copy=False)
            self.columns[name] = np.concatenate([column, new])
        return room

    def take(self, chosen: Bools) -> dict[str, Column]:
        """Remove claims; returns their columns."""
        taken = {name: column[chosen] for name, column in self.columns.items()}
        self.columns = {name: column[~chosen] for name, column in self.columns.items()}
        return taken

    def matched(self, series: Ints) -> tuple[Bools, Ints]:
        """Place of each claim's series among some series.

        Args:
            series: Shape (n,), without repetitions.

        Returns:
            Shape (claims,): whether it is among them, and its place; 0 where it is not.
        """
        if not len(series) or not len(self):
            return np.zeros(len(self), np.bool_), np.zeros(len(self), np.int64)
        order = np.argsort(series)
        mine = self.ints("series")
        place = order[np.minimum(np.searchsorted(series, mine, sorter=order), len(series) - 1)]
        return series[place] == mine, place
