"""Peer groups: which members do equal work, and a grid of groups and replicas to compare them in."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints

ALONE_MEMBERS: Final = (3, 4)
"""Members of a single group: with fewer there is no majority, with more their scatter is known."""


@dataclass(frozen=True, slots=True)
class PeerGroups:
    """Members by group and replica.

    Members of one group do equal work: workers of one pipeline stage, GPUs of one model under one program.
    Members of one replica, one in each group, work on the same data: the stages of one data-parallel rank.

    Attributes:
        row: int64, shape (n,), index of the member's group, from 0.
        column: int64, shape (n,), index of the member's replica, from 0.
        aligned: Whether members of one column work on the same data.
    """

    row: Ints
    column: Ints
    aligned: bool = True
    _shape: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = (int(self.row.max(initial=-1)) + 1, int(self.column.max(initial=-1)) + 1)
        object.__setattr__(self, "_shape", shape)

    @classmethod
    def unaligned(cls, group: Ints) -> "PeerGroups":
        """Groups without replicas, such as the GPUs of each model; any integers may name the groups."""
        order = np.argsort(group, kind="stable")
        ranked = group[order]
        column = np.zeros(len(group), dtype=np.int64)
        column[order] = np.arange(len(group)) - np.searchsorted(ranked, ranked)
        return cls(np.unique(group, return_inverse=True)[1].astype(np.int64), column, aligned=False)

    @classmethod
    def of(cls, group: Ints, replica: Ints) -> "PeerGroups":
        """Number groups and replicas; any integers may name them.

        Args:
            group: Shape (n,), the group of each member.
            replica: Shape (n,), the replica of each member.

        Raises:
            ValueError: Two members have the same group and replica.
        """
        row, column = (np.unique(ids, return_inverse=True)[1].astype(np.int64) for ids in (group, replica))
        pairs = len(np.unique(np.stack([row, column]), axis=1).T)
        if pairs != len(row):
            message = f"{len(row)} members have {pairs} pairs of group and replica; give each member its own pair"
            raise ValueError(message)
        return cls(row, column)

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.row)

    @property
    def rows(self) -> int:
        """Number of groups."""
        return self._shape[0]

    @property
    def alone(self) -> bool:
        """Whether there is a single group of few members: no other group shows that their data were long."""
        return self.aligned and self.rows == 1 and ALONE_MEMBERS[0] <= self.size <= ALONE_MEMBERS[1]

    @property
    def peers(self) -> Ints:
        """Shape (n,), how many other members each member's group has."""
        return np.bincount(self.row, minlength=self.rows)[self.row].astype(np.int64) - 1

    def grid(self, values: Floats) -> Floats:
        """Lay values of members out as a grid.

        Args:
            values: Shape (n,) or (n, k).

        Returns:
            Shape (groups, replicas) or (groups, replicas, k); NaN where there is no member.
        """
        laid = np.full((*self._shape, *values.shape[1:]), np.nan)
        laid[self.row, self.column] = values
        return laid

    def members(self, grid: Floats) -> Floats:
        """Read a grid back in the members' order; the inverse of `grid`."""
        return grid[self.row, self.column]
