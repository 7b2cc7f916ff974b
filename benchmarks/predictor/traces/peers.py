"""Detectors that the comparison with peers is measured against; each names workers step by step.

A detector takes compute times of shape (steps, workers) and the workers' stages, and returns shape (steps, workers):
whether it names the worker at that step.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints

Detector: TypeAlias = Callable[[Floats, Ints], Bools]


def relative_score(threshold: float, *, by_stage: bool = True) -> Detector:
    """Relative score as in NVIDIA's resiliency extension: the median of the peers by the own time.

    Args:
        threshold: A worker below it is named; the extension's documents use 0.7 and 0.75.
        by_stage: Peers are the workers of the same stage; else all workers, as the extension does it.
    """

    def detect(seconds: Floats, stage: Ints) -> Bools:
        peers = stage if by_stage else np.zeros_like(stage)
        named = np.zeros(seconds.shape, dtype=np.bool_)
        for worker in range(seconds.shape[1]):
            others = (peers == peers[worker]) & (np.arange(len(peers)) != worker)
            if others.any():
                named[:, worker] = np.nanmedian(seconds[:, others], axis=1) / seconds[:, worker] < threshold
        return named

    return detect


def z_score(threshold: float) -> Detector:
    """Distance from the mean of all workers in standard deviations, step by step."""

    def detect(seconds: Floats, _stage: Ints) -> Bools:
        center = np.nanmean(seconds, axis=1, keepdims=True)
        spread = np.nanstd(seconds, axis=1, keepdims=True)
        return np.asarray(seconds - center > threshold * spread)

    return detect


PEERS: Final[dict[str, Detector]] = {
    "relative score of the stage < 0.7": relative_score(0.7),
    "relative score of the stage < 0.75": relative_score(0.75),
    "relative score of all ranks < 0.7": relative_score(0.7, by_stage=False),
    "z-score of all ranks > 3": z_score(3.0),
}
