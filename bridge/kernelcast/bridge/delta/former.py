"""Former totals: those that the snapshots of other replicas have of series that are counted here now.

`adoption` searches the snapshots for them, and adds some.
"""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.delta.joining import alone
from kernelcast.bridge.delta.persistence.freeze import Columns, as_table, chosen_totals
from kernelcast.bridge.delta.persistence.snapshot import TotalsSnapshot
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.partitions.partition import Key
from kernelcast.bridge.tables.columns import Int64Array
from kernelcast.wire.errors import WireError


class SnapshotTable:
    """Some totals of a snapshot, as columns and as a table."""

    def __init__(self, columns: Columns, chosen: NDArray[np.bool_] | None = None) -> None:
        """Convert nothing yet: most totals of most snapshots are not added.

        Args:
            columns: The snapshot's.
            chosen: By total, whether it may be added; None for all.
        """
        self.columns = columns
        self._chosen: NDArray[np.bool_] = np.ones(len(columns["kind"]), np.bool_) if chosen is None else chosen

    @cached_property
    def _row_of(self) -> Int64Array:
        return np.cumsum(self._chosen) - 1

    @cached_property
    def _rows(self) -> TotalRows | None:
        """The chosen totals as a table, made once, which takes as long for one of them; None if one is damaged."""
        try:
            return as_table(chosen_totals(self.columns, self._chosen))
        except (WireError, ValueError):  # numpy refuses negative counts of gaps or words
            return None

    def row(self, i: int) -> tuple[TotalRows, int]:
        """Return a table with a total, and its row.

        Raises:
            WireError: The total is damaged.
        """
        return (self._rows, int(self._row_of[i])) if self._rows is not None else (alone(self.columns, i), 0)


class AdoptedTotal(NamedTuple):
    """One total of another replica's snapshot.

    Attributes:
        snapshot: The snapshot.
        i: Index of the total.
        behind: Whether its replica lags, or did until recently, see `Adoption._behind`.
    """

    snapshot: SnapshotTable
    i: int
    behind: bool

    def get(self, name: str) -> int:
        """Return the value of a column."""
        return int(self.snapshot.columns[name][self.i])


def former_totals(
    rows: TotalRows, waiting: Int64Array, snapshots: Mapping[Key, TotalsSnapshot], behind: Collection[Key]
) -> dict[int, list[AdoptedTotal]]:
    """Return, by row, the totals of its series in snapshots."""
    row_of = {rows.columns.digest[row].tobytes(): row for row in waiting.tolist()}
    halves = _first_halves(rows.columns.digest[waiting])
    found: dict[int, list[AdoptedTotal]] = {}
    for key, snapshot in snapshots.items() if row_of else ():
        digests = snapshot.columns["digest"]
        meets = np.isin(_first_halves(digests), halves)
        table = SnapshotTable(snapshot.columns, meets)
        for i in np.flatnonzero(meets).tolist():
            row = row_of.get(digests[i].tobytes())
            if row is not None:
                found.setdefault(row, []).append(AdoptedTotal(table, i, key in behind))
    return found


def _first_halves(digests: NDArray[np.uint8]) -> Int64Array:
    """Return the first 8 bytes of each digest as a number, for a comparison of all at once."""
    return np.ascontiguousarray(digests[:, :8]).view(np.int64)[:, 0]
