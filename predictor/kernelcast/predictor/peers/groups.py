"""Peer groups: which members do equal work, and a grid with a row for each group to compare them in."""

from dataclasses import dataclass, field

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class PeerGroups:
    """Members by group: members of one group do equal work, such as GPUs of one model under one program.

    Attributes:
        row: int64, shape (n,), index of the member's group, from 0.
        column: int64, shape (n,), number of the member within its group, from 0.
    """

    row: Ints
    column: Ints
    _shape: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = (int(self.row.max(initial=-1)) + 1, int(self.column.max(initial=-1)) + 1)
        object.__setattr__(self, "_shape", shape)

    @classmethod
    def of(cls, group: Ints) -> "PeerGroups":
        """Number the groups; any integers may name them."""
        order = np.argsort(group, kind="stable")
        ranked = group[order]
        column = np.zeros(len(group), dtype=np.int64)
        column[order] = np.arange(len(group)) - np.searchsorted(ranked, ranked)
        return cls(np.unique(group, return_inverse=True)[1].astype(np.int64), column)

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.row)

    @property
    def rows(self) -> int:
        """Number of groups."""
        return self._shape[0]

    @property
    def peers(self) -> Ints:
        """Shape (n,), how many other members each member's group has."""
        return np.bincount(self.row, minlength=self.rows)[self.row].astype(np.int64) - 1

    def grid(self, values: Floats) -> Floats:
        """Lay values of members out as a grid.

        Args:
            values: Shape (n,) or (n, k).

        Returns:
            Shape (groups, members) or (groups, members, k); NaN where there is no member.
        """
        laid = np.full((*self._shape, *values.shape[1:]), np.nan)
        laid[self.row, self.column] = values
        return laid

    def members(self, grid: Floats) -> Floats:
        """Read a grid back in the members' order; the inverse of `grid`."""
        return grid[self.row, self.column]
