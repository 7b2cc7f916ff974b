"""Small jobs for the comparison with peers: compute times by stage and data-parallel rank."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from kernelcast.predictor.peers import Links, PeerDetector, PeerGroups, PeerStep, WorkerFinding


@dataclass
class Job:
    """A worker for each stage and replica, with compute times of 1 s and 0.5 % noise; `factors` change single steps."""

    stages: int
    replicas: int
    steps: int = 30
    units: int = 4
    seed: int = 1
    stage_seconds: tuple[float, ...] = ()
    transfer_seconds: np.ndarray | None = None
    factors: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.factors = np.ones((self.steps, self.stages, self.replicas, self.units))
        stage, replica = np.divmod(np.arange(self.stages * self.replicas), self.replicas)
        self.groups = PeerGroups.of(stage, replica)
        group, column = np.divmod(np.arange((self.stages - 1) * self.replicas), self.replicas)
        source = group * self.replicas + column
        self.links = Links(source, source + self.replicas, group, np.zeros_like(group))
        self.detector = PeerDetector(self.groups, self.links)

    def run(self) -> list[WorkerFinding]:
        """Show all steps to the detector.

        Returns:
            Findings that began or ended, in this order.
        """
        noise = np.exp(np.random.default_rng(self.seed).normal(0, 0.005, self.factors.shape))
        seconds = self.factors * noise
        if self.stage_seconds:
            seconds *= np.array(self.stage_seconds)[:, np.newaxis, np.newaxis]
        transfers = np.full(len(self.links.source), self.units)
        changes = []
        for at in range(self.steps):
            units = seconds[at].reshape(-1, self.units)
            transfer = np.full(len(transfers), 0.01) if self.transfer_seconds is None else self.transfer_seconds[at]
            changes += self.detector.observe(PeerStep(at, units, transfer, transfers))
        return changes


@pytest.fixture
def job() -> type[Job]:
    return Job
