"""Reference of workers with few peers: their own past, shifted by the change that all workers share.

`WorkerTest` asks it at each step.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.peers.compare import median, others_median
from kernelcast.predictor.peers.groups import PeerGroups

FEWEST_STEPS: Final = 5
"""Steps that a worker's usual time needs."""
STEPS: Final = 16
"""Newest steps whose median it is."""


class OwnPast:
    """Usual compute time of each worker, learnt while nothing is slow; one thread uses it.

    The levels are logarithms in the frame of the first steps: the shift that all workers share since then is taken
    out of a step before it is learnt.
    """

    def __init__(self, workers: int) -> None:
        self._recent: Floats = np.full((STEPS, workers), np.nan)
        self._learnt = np.zeros(workers, dtype=np.int64)
        self._level: Floats = np.full(workers, np.nan)

    def reference(self, seconds: Floats) -> Floats:
        """Expected compute time at this step.

        Args:
            seconds: Shape (n,), compute times of this step.

        Returns:
            Shape (n,). The own level times the shift of the other workers, the lower median of them. NaN until
            five steps are known, and where no other worker has a level: then more work looks like a slow worker.
        """
        shift = others_median((_log(seconds) - self._level)[np.newaxis, :], lower=True)[0]
        return np.asarray(np.exp(self._level + shift))

    def learn(self, seconds: Floats, excluded: Bools) -> None:
        """Take in a step's compute times, except those of excluded workers."""
        logs = _log(seconds)
        shift = np.nan_to_num(median((logs - self._level), axis=0), nan=0.0)
        usable = ~np.isnan(logs) & ~excluded
        self._recent[self._learnt[usable] % STEPS, usable] = (logs - shift)[usable]
        self._learnt += usable
        self._level = np.where(self._learnt >= FEWEST_STEPS, median(self._recent, axis=0), np.nan)


def without_stage(groups: PeerGroups, raw: Floats, reference: Floats) -> Floats:
    """Excess of the members without the part that their group shares: work that moved to one stage."""
    common = others_median(groups.grid(reference), lower=True)
    return raw - np.maximum(np.nan_to_num(groups.members(common), nan=0.0), 0.0)


def _log(seconds: Floats) -> Floats:
    return np.log(np.where(seconds > 0, seconds, np.nan))
