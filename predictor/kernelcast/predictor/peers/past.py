"""Reference of workers with few peers: their own past, relative to the change that all workers share."""

from typing import Final

import numpy as np

from kernelcast.predictor.peers.compare import median, others_median
from kernelcast.predictor.peers.groups import Bools, Floats

STEPS_TO_LEARN: Final = 5
LEARNING_RATE: Final = 0.05


class OwnPast:
    """Usual compute time of each worker, learnt while nothing is slow; one thread uses it."""

    def __init__(self, workers: int) -> None:
        self._first: Floats = np.full((STEPS_TO_LEARN, workers), np.nan)
        self._filled = np.zeros(workers, dtype=np.int64)
        self._level: Floats = np.full(workers, np.nan)

    def reference(self, seconds: Floats) -> Floats:
        """Expected compute time at this step.

        Args:
            seconds: Shape (n,), compute times of this step.

        Returns:
            Shape (n,). The own past times the change of the other workers, the lower median of them. NaN until
            five steps are known, and where no other worker has a past: then more work looks like a slow worker.
        """
        change = _log(seconds) - self._level
        common = others_median(change[np.newaxis, :], lower=True)[0]
        return np.asarray(np.exp(self._level + common))

    def learn(self, seconds: Floats, excluded: Bools) -> None:
        """Take in a step's compute times; the level of excluded workers follows the change of the others."""
        common = others_median((_log(seconds) - self._level)[np.newaxis, :], lower=True)[0]
        logs = _log(seconds)
        usable = ~np.isnan(logs) & ~excluded
        filling = usable & (self._filled < STEPS_TO_LEARN)
        self._first[self._filled[filling], filling] = logs[filling]
        self._filled += filling
        ready = filling & (self._filled == STEPS_TO_LEARN)
        self._level[ready] = median(self._first[:, ready], axis=0)
        change = np.where(usable & ~filling, logs - self._level, np.where(usable, 0.0, common))
        self._level += LEARNING_RATE * np.nan_to_num(change, nan=0.0)


def _log(seconds: Floats) -> Floats:
    return np.log(np.where(seconds > 0, seconds, np.nan))
