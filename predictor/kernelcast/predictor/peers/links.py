"""Detection of slow links, step by step; `PeerDetector` calls it with each step."""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.peers.compare import log_ratio, median, others_median
from kernelcast.predictor.peers.findings import LinkFinding
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.panel import Links, PeerStep
from kernelcast.predictor.peers.persistence import Persistence

FEWEST_PEERS: Final = 3
"""Links of a group below which links of the same kind are the peers."""
SMALLEST_EXCESS: Final = float(np.log(1.5))
"""Links of one group carry equal messages over like paths; healthy ones were seen to differ by a tenth."""
EXCESS_TO_OTHER_GROUPS: Final = float(np.log(3.0))
"""Paths between different groups differ by a factor of two in healthy jobs."""
SMALLEST_COST: Final = 0.001
"""Cost of a link, as a ratio of the step's compute time, below which it does not count."""


class LinkTest:
    """Compares links with their peers and keeps the sequential evidence; one thread uses it.

    A slow worker also slows its transfers, so links of workers that are slow or under suspicion are left out.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._groups = PeerGroups.unaligned(links.group)
        self._kinds = PeerGroups.unaligned(links.kind)
        self._persistence = Persistence(self._groups)

    @property
    def active(self) -> Bools:
        """Shape (links,), links with a finding."""
        return self._persistence.active

    def update(self, step: PeerStep, suspects: Bools) -> tuple[Floats, list[LinkFinding]]:
        """Take in one step.

        Args:
            step: The measurements.
            suspects: Shape (workers,), workers whose links are left out.

        Returns:
            Shape (links,), the estimated cost of each link as a ratio of the step's compute time, and the findings
            that begin.
        """
        if not len(self._links.group):
            return np.zeros(0), []
        own = np.where(suspects[self._links.source] | suspects[self._links.target], np.nan, step.transfer_seconds)
        reference, allowed = self._reference(own)
        excess = log_ratio(own, reference)
        work = float(np.nan_to_num(median(np.nansum(step.unit_seconds, axis=1), axis=0), nan=0.0))
        cost = np.maximum(own - reference, 0.0) * step.transfers / max(work, 1e-9)
        cheap = ~np.isnan(excess) & (cost < SMALLEST_COST)
        started = self._persistence.update(np.where(cheap, 0.0, excess), allowed)[1]
        found = [self._finding(link, step, own, reference, cost) for link in np.flatnonzero(started).tolist()]
        return np.where(self.active, np.nan_to_num(cost, nan=0.0), 0.0), found

    def _reference(self, own: Floats) -> tuple[Floats, Floats]:
        """Median of the peers and the excess allowed: links of the same group, or of the same kind if they are few."""
        same = self._groups.members(others_median(self._groups.grid(own)))
        known = np.bincount(self._groups.row, weights=~np.isnan(own), minlength=self._groups.rows)[self._groups.row]
        enough = known - 1 >= FEWEST_PEERS
        other = self._kinds.members(others_median(self._kinds.grid(own)))
        return np.where(enough, same, other), np.where(enough, SMALLEST_EXCESS, EXCESS_TO_OTHER_GROUPS)

    @staticmethod
    def _finding(link: int, step: PeerStep, own: Floats, reference: Floats, cost: Floats) -> LinkFinding:
        return LinkFinding(
            link=link,
            ratio=float(own[link] / reference[link]),
            step=step.step,
            own_seconds=float(own[link]),
            peers_seconds=float(reference[link]),
            cost_ratio=float(cost[link]),
        )
