"""Small jobs for the comparison with peers: compute times by stage and data-parallel rank."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from kernelcast.predictor.peers import PeerDetector, PeerGroups, PeerStep, WorkerFinding


@dataclass
class Job:
    """A worker for each stage and replica, with compute times of 1 s and 0.5 % noise; `factors` change single steps."""

    stages: int
    replicas: int
    steps: int = 30
    units: int = 4
    seed: int = 1
    stage_seconds: tuple[float, ...] = ()
    factors: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.factors = np.ones((self.steps, self.stages, self.replicas, self.units))
        self.detector = PeerDetector(PeerGroups.of(np.repeat(np.arange(self.stages), self.replicas)))

    def run(self) -> list[WorkerFinding]:
        """Show all steps to the detector.

        Returns:
            Findings that began or ended, in this order.
        """
        noise = np.exp(np.random.default_rng(self.seed).normal(0, 0.005, self.factors.shape))
        seconds = self.factors * noise
        if self.stage_seconds:
            seconds *= np.array(self.stage_seconds)[:, np.newaxis, np.newaxis]
        changes = []
        for at in range(self.steps):
            changes += self.detector.observe(PeerStep(at, seconds[at].reshape(-1, self.units)))
        return changes


@pytest.fixture
def job() -> type[Job]:
    return Job
