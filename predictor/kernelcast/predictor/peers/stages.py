"""Hidden stages: members of one group that have had more, or less, work than the rest from their first step on.

Stages of a pipeline can launch the same kernels for different work. Members that differ from the rest of their group
alike, in most of their first steps, are taken for a stage and are compared with their own past. A single member that
was always slow is not: it may be a slow GPU.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.peers.compare import median, others_median
from kernelcast.predictor.peers.groups import PeerGroups

FIRST_STEPS: Final = 3
"""Steps of a member in which it is decided whether it belongs to a stage."""
STEPS: Final = 16
"""Newest steps whose median is a member's usual ratio."""
ALIKE: Final = float(np.log(1.03))
ALIKE_SHARE: Final = 1 / 3
"""Members of a stage differ by at most 3 %, and by at most this share of their distance from the rest."""


class HiddenStages:
    """The usual log ratio of each member of a hidden stage to its group; one thread uses it."""

    def __init__(self, groups: PeerGroups) -> None:
        self._groups = groups
        self._recent: Floats = np.full((STEPS, groups.size), np.nan)
        self._learnt = np.zeros(groups.size, dtype=np.int64)
        self.members: Bools = np.zeros(groups.size, dtype=np.bool_)

    def usual(self, ratios: Floats, active: Bools, limit: float) -> Floats:
        """Log ratio to the group that is usual for each worker at this step, shape (n,); 0 outside of hidden stages.

        Args:
            ratios: Shape (n,), log ratios to the rest of the group at this step; NaN where unknown.
            active: Shape (n,), workers that were found slow: they say nothing about their stage.
            limit: Excess above which a step is slow.
        """
        young = ~np.isnan(ratios) & (self._learnt < FIRST_STEPS)
        level = median(self._recent, axis=0)
        if young.any():
            level = np.where(young, self._first_level(ratios), level)
        apart = np.abs(level) > limit / 2
        chosen = (young & apart) | self.members
        if not chosen.any():
            return np.zeros(self._groups.size)
        stages = self._alike(level, chosen)
        several = np.bincount(stages)[stages] > 1
        self.members = np.where(young, several, self.members) & apart
        if not self.members.any():
            return np.zeros(self._groups.size)
        change = np.where(self.members, ratios - level, np.nan)
        layout = PeerGroups.of(stages)
        others = others_median(layout.grid(np.where(active, np.nan, change)), lower=True)
        shared = np.nan_to_num(layout.members(others), nan=0.0)
        return np.where(self.members, level + np.maximum(shared, 0.0), 0.0)

    def learn(self, ratios: Floats, excluded: Bools) -> None:
        """Take in the log ratios of a step, except those of excluded workers that are not young."""
        usable = ~np.isnan(ratios) & (~excluded | (self._learnt < FIRST_STEPS))
        self._recent[self._learnt[usable] % STEPS, usable] = ratios[usable]
        self._learnt += usable

    def _first_level(self, ratios: Floats) -> Floats:
        """The middle one of the first steps; of two, the one that is nearer to the group, as single steps are slow."""
        seen = np.vstack([self._recent[:FIRST_STEPS], ratios])
        side: Floats = np.sign(np.nansum(seen, axis=0))
        return side * median(np.abs(seen), axis=0, lower=True)

    def _alike(self, level: Floats, chosen: Bools) -> Ints:
        """Number of the stage of each worker, shape (n,): chosen neighbours by level; others are alone."""
        order = np.lexsort((level, self._groups.row, ~chosen))
        ranked, row, among = level[order], self._groups.row[order], chosen[order]
        nearest = np.minimum(np.abs(ranked[1:]), np.abs(ranked[:-1]))
        near = np.diff(ranked) <= np.minimum(ALIKE, ALIKE_SHARE * nearest)
        joined = near & (row[1:] == row[:-1]) & among[1:] & among[:-1]
        stages = np.zeros(len(level), dtype=np.int64)
        stages[order] = np.r_[0, np.cumsum(~joined)]
        return stages
