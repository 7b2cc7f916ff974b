"""Detection of slow workers, step by step; `PeerDetector` calls it with each step."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.peers.compare import log_ratio, median, others_known, others_median, scatter
from kernelcast.predictor.peers.findings import Basis
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.panel import PeerStep
from kernelcast.predictor.peers.past import OwnPast, without_stage
from kernelcast.predictor.peers.persistence import Persistence
from kernelcast.predictor.peers.stages import HiddenStages

FEWEST_PEERS: Final = 3
"""With fewer, the median of the peers says little; a worker is compared with its own past."""
SMALLEST_EXCESS: Final = float(np.log(1.03))
"""Smallest deviation that matters; healthy workers of one job differ by 1 % or 2 %."""
LIMIT_IN_SIGMA: Final = 4.0
"""Excess above which a step is slow, in standard deviations of healthy workers.

With 3, 4 and 5, 116, 117 and 117 of 120 simulated slow workers are named within three steps and none falsely
(`benchmarks.predictor stragglers`, 20 jobs of each kind, seed 33).
"""
SCALE_STEPS: Final = 16
"""Newest steps from which that deviation is estimated."""
LARGEST_STATIC_SIGMA: Final = 0.02
"""Healthy workers of one group do not differ by more for good; a greater scatter must also be seen between steps."""


@dataclass(frozen=True, slots=True)
class WorkerRatios:
    """Comparison of all workers at one step.

    Attributes:
        excess: Shape (n,), evidence: log ratio to the reference.
        log_ratio: Shape (n,), log ratio of the mean compute times.
        reference_seconds: Shape (n,), compute time of the reference.
        peers: Shape (n,), number of peers that reported.
        to_group: Shape (n,), log ratio to the peers whatever is usual for the worker; NaN with too few of them.
    """

    excess: Floats
    log_ratio: Floats
    reference_seconds: Floats
    peers: Ints
    to_group: Floats


class WorkerTest:
    """Compares workers with their peers and keeps the sequential evidence; one thread uses it."""

    def __init__(self, groups: PeerGroups) -> None:
        self._groups = groups
        self._by_peers: Bools = groups.peers >= FEWEST_PEERS
        self._past = None if self._by_peers.all() else OwnPast(groups.size)
        self._stages = HiddenStages(groups)
        self._recent: Floats = np.full((SCALE_STEPS, groups.size), np.nan)
        self._changes: Floats = np.full((SCALE_STEPS, groups.size), np.nan)
        self._steps = 0
        self.persistence = Persistence(groups)

    @property
    def suspects(self) -> Bools:
        """Shape (n,), workers with evidence against them, found slow or not yet."""
        return self.persistence.suspects

    def basis(self, worker: int) -> Basis:
        """The reference of a worker."""
        in_hidden_stage = self._stages.members[worker]
        return Basis.PEERS if self._by_peers[worker] and not in_hidden_stage else Basis.OWN_PAST

    def update(self, step: PeerStep) -> tuple[WorkerRatios, Bools, Bools, Bools]:
        """Take in one step.

        Returns:
            The comparison, then as `Persistence.update`: slow now, finding started, finding ended.
        """
        ratios = self._compare(step)
        slot = self._steps % SCALE_STEPS
        self._changes[slot] = (ratios.excess - self._recent[slot - 1]) / np.sqrt(2)
        self._recent[slot] = ratios.excess
        self._steps += 1
        slow, started, ended = self.persistence.update(ratios.excess, self.limit())
        if self._past is not None:
            self._past.learn(median(step.unit_seconds, axis=1), self.suspects)
        self._stages.learn(ratios.to_group, self.suspects)
        return ratios, slow, started, ended

    def limit(self) -> float:
        """Excess above which a step is slow: four times the scatter of workers without a finding, at least 3 %."""
        healthy = ~self.persistence.active
        between_steps = scatter(self._changes[:, healthy])
        sigma = scatter(self._recent[:, healthy])
        if not np.isnan(between_steps):
            sigma = min(sigma, max(between_steps, LARGEST_STATIC_SIGMA))
        return float(np.fmax(SMALLEST_EXCESS, LIMIT_IN_SIGMA * sigma))

    def _compare(self, step: PeerStep) -> WorkerRatios:
        groups, limit = self._groups, self.limit()
        own = step.mean_seconds
        peers = groups.members(others_known(groups.grid(own))).astype(np.int64)
        peers_seconds = groups.members(others_median(groups.grid(own)))
        enough = self._by_peers & (peers >= FEWEST_PEERS)
        ratio = np.where(enough, log_ratio(own, peers_seconds), np.nan)
        to_group = np.minimum(ratio, self._typical(step)) if step.unit_seconds.shape[1] > 1 else ratio
        usual = self._stages.usual(to_group, self.persistence.active, limit)
        past_seconds, from_past, against_past = self._against_past(step)
        reference = np.where(enough, peers_seconds, np.where(self._by_peers, np.nan, past_seconds))
        raw = np.where(enough, to_group - usual, np.where(self._by_peers, np.nan, against_past))
        return WorkerRatios(
            raw,
            np.where(enough, ratio - usual, from_past),
            reference * np.where(enough, np.exp(usual), 1.0),
            peers,
            to_group,
        )

    def _typical(self, step: PeerStep) -> Floats:
        """Log ratio to the peers that is typical for the units of each worker, shape (n,)."""
        units = self._groups.grid(step.unit_seconds)
        return self._groups.members(median(log_ratio(units, others_median(units)), axis=2))

    def _against_past(self, step: PeerStep) -> tuple[Floats, Floats, Floats]:
        """Expected time by the own past, log ratio to it, and that without the part of the group, shape (n,) each.

        All are NaN where every worker has peers: then nothing needs them.
        """
        if self._past is None:
            unknown = np.full(self._groups.size, np.nan)
            return unknown, unknown, unknown
        typical_seconds = median(step.unit_seconds, axis=1)
        past_seconds = self._past.reference(typical_seconds)
        ratio = log_ratio(typical_seconds, past_seconds)
        without = without_stage(self._groups, ratio, np.where(self.persistence.active, np.nan, ratio))
        return past_seconds, ratio, without
