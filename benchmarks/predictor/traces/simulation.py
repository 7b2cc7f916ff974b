"""Simulated training jobs with slow workers or a heavier stage; the truth is known."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from benchmarks.predictor.traces.reading import Trace
from numpy.typing import NDArray

from kernelcast.predictor.peers import PeerStep

STEPS: Final = 40
KINDS: Final = (
    "healthy",
    "one slow",
    "two slow",
    "slow from step k",
    "stage",
    "few peers, healthy",
    "few peers, slow from step k",
    "hidden stage",
    "hidden stage, slow from step k",
)


@dataclass(frozen=True)
class Job:
    """A simulated job.

    Attributes:
        kind: One of `KINDS`.
        trace: The recording.
        slow: Index of each slow worker, with the index of its first slow step.
    """

    kind: str
    trace: Trace
    slow: dict[int, int]


def simulate(kind: str, rng: np.random.Generator) -> Job:
    """Draw a job: 1 to 6 stages, 4 to 12 replicas (1 or 2 for few peers), 4 to 24 microbatches.

    With "hidden" the detector does not know the stages.
    """
    few = kind.startswith("few")
    stages = int(rng.integers(2, 7) if few or "stage" in kind else rng.integers(1, 7))
    replicas = int(rng.integers(1, 3) if few else rng.integers(4, 13))
    times = _healthy(rng, stages, replicas, int(rng.integers(4, 25)))
    slow = _slow_workers(kind, rng, times)
    if "stage" in kind:
        times[:, -1] *= rng.uniform(1.25, 1.8)
    stage, dp_rank = np.divmod(np.arange(stages * replicas), replicas)
    steps = [PeerStep(at, each.reshape(stages * replicas, -1)) for at, each in enumerate(times)]
    return Job(kind, Trace(stage, dp_rank, steps, stages_known="hidden" not in kind), slow)


def _healthy(rng: np.random.Generator, stages: int, replicas: int, units: int) -> NDArray[np.float64]:
    """Times of shape (steps, stages, replicas, units).

    Workers differ by about 0.5 to 1 %; one worker-step in 200 has a hiccup of 20 to 100 %.
    """
    shape = (STEPS, stages, replicas, units)
    log = np.log(rng.uniform(0.1, 1.0)) + rng.normal(0, rng.uniform(0.004, 0.01), (1, stages, replicas, 1))
    log = log + rng.normal(0, rng.uniform(0.003, 0.01), (STEPS, stages, replicas, 1))
    log = log + rng.normal(0, rng.uniform(0.005, 0.03), (STEPS, 1, replicas, units))
    times: NDArray[np.float64] = np.exp(log + rng.normal(0, 0.01, shape))
    hiccup = rng.random((STEPS, stages, replicas, 1)) < 1 / 200
    times *= np.where(hiccup, rng.uniform(1.2, 2.0, hiccup.shape), 1.0)
    times[:, -1] *= rng.uniform(1.0, 1.03)
    return times


def _slow_workers(kind: str, rng: np.random.Generator, times: NDArray[np.float64]) -> dict[int, int]:
    count = {"one slow": 1, "two slow": 2}.get(kind, int(kind.endswith("slow from step k")))
    stages, replicas = times.shape[1:3]
    slow: dict[int, int] = {}
    for worker in rng.choice(stages * replicas, size=count, replace=False):
        start = int(rng.integers(8, STEPS - 10)) if kind.endswith("step k") else 0
        times[start:, worker // replicas, worker % replicas] *= rng.uniform(1.2, 2.5)
        slow[int(worker)] = start
    return slow
