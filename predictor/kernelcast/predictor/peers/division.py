"""Unequal division of work: by pipeline stage, or by sequences of different length in turn. `PeerDetector` asks it."""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.peers.compare import mean, median
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.panel import PeerStep

STEPS: Final = 64
"""Newest steps that are kept."""
SMALLEST_SHARE_OF_STEPS: Final = 0.2
"""Share of the steps that a prolongation must reach, so that rare hiccups do not count."""


class WorkHistory:
    """Compute times of the last steps by group and replica; one thread uses it."""

    def __init__(self, groups: PeerGroups) -> None:
        self._groups = groups
        shape = groups.grid(np.zeros(groups.size)).shape
        self._means: Floats = np.full((STEPS, *shape), np.nan)
        self._longest: Floats = np.full((STEPS, *shape), np.nan)
        self._units = 1
        self._steps = 0

    def add(self, step: PeerStep) -> None:
        """Take in one step."""
        slot = self._steps % STEPS
        units = self._groups.grid(step.unit_seconds)
        self._means[slot] = self._groups.grid(step.mean_seconds)
        self._longest[slot] = np.max(np.nan_to_num(units, nan=-np.inf), axis=2)
        self._units = step.unit_seconds.shape[1]
        self._steps += 1

    def forget(self, worker: int, steps: int) -> None:
        """Leave out the last steps of a worker: it was slow then, so they say nothing about the division."""
        slots = (self._steps - 1 - np.arange(min(steps, STEPS))) % STEPS
        self._means[slots, self._groups.row[worker], self._groups.column[worker]] = np.nan

    def stage_share(self) -> float:
        """Estimated prolongation of a step by groups with more work than others.

        A pipeline of p stages and m units with stage times t takes sum(t) + (m - 1) max(t); evenly divided
        (m + p - 1) mean(t).
        """
        times = self._levels()
        times = times[~np.isnan(times)]
        if len(times) < 2:
            return 0.0
        even = (self._units + len(times) - 1) * times.mean()
        return float((times.sum() + (self._units - 1) * times.max()) / even - 1)

    def sequence_share(self) -> float:
        """Estimated prolongation of a step by replicas that have more work than others in turn; 0 without replicas.

        A replica with unit times t takes sum(t) + (p - 1) max(t), and all wait for the slowest replica. The
        difference counts only as far as it changes between replicas: one that is always slow is none of this.
        """
        stages = self._means.shape[1]
        if not self._groups.aligned:
            return 0.0
        level = self._levels()[:, np.newaxis]
        longest = np.where(np.isnan(self._means), np.nan, self._longest) / level
        work = self._means / level
        usual = median(work, axis=0)
        flow = (self._units * work + (stages - 1) * longest) / (self._units + stages - 1)
        shared = _prolongation(median(flow, axis=1), median(work, axis=1))
        alone = [_prolongation(_without_worst(work[:, s] / usual[s]), work[:, s]) for s in range(stages)]
        return max(shared, *alone)

    def _levels(self) -> Floats:
        """Shape (groups,), usual compute time of a unit: the lower median over replicas of the median over steps.

        Of two replicas the faster one counts; the other may be slow.
        """
        return median(median(self._means, axis=0), axis=1, lower=True)


def _prolongation(flow: Floats, work: Floats) -> float:
    """Mean over steps of the slowest replica by the mean of all; 0 with fewer than two replicas.

    One step in five must exceed it, so that rare hiccups of single workers do not count.
    """
    several = np.sum(~np.isnan(flow), axis=1) > 1
    if not several.any():
        return 0.0
    longer = np.max(np.nan_to_num(flow[several], nan=-np.inf), axis=1) / np.nanmean(work[several]) - 1
    return float(min(np.mean(longer), np.quantile(longer, 1 - SMALLEST_SHARE_OF_STEPS)))


def _without_worst(work: Floats) -> Floats:
    """Leave out the replica that is slow most: one member alone does not take turns."""
    kept = work.copy()
    kept[:, np.argmax(np.nan_to_num(mean(work, axis=0), nan=-np.inf))] = np.nan
    return kept
