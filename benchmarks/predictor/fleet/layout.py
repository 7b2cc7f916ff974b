"""Layout of a simulated fleet: GPUs in nodes in racks, and the jobs that come and go on them."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Ints

STEP_SECONDS: Final = 300.0
HOUR_STEPS: Final = 12
DAY_STEPS: Final = 288
IDLE: Final = -1
RACK_PATTERN: Final = r"^(r[0-9]+)-"


@dataclass(frozen=True, slots=True)
class FleetSize:
    """Size of a fleet.

    Attributes:
        gpus: GPUs in all.
        days: Length; the first day is history and has no fault.
        faults: Faults injected.
        gpus_per_node: GPUs of a node.
        nodes_per_rack: Nodes of a rack.
    """

    gpus: int = 1000
    days: int = 7
    faults: int = 10
    gpus_per_node: int = 8
    nodes_per_rack: int = 8

    @property
    def steps(self) -> int:
        """Intervals of five minutes."""
        return self.days * DAY_STEPS

    @property
    def node(self) -> Ints:
        """Node of each GPU, shape (gpus,)."""
        return np.arange(self.gpus) // self.gpus_per_node

    @property
    def rack(self) -> Ints:
        """Rack of each GPU, shape (gpus,)."""
        return self.node // self.nodes_per_rack

    def host(self, node: int) -> str:
        """Name of a node, which begins with that of its rack."""
        return f"r{node // self.nodes_per_rack:02}-n{node % self.nodes_per_rack}"


@dataclass(frozen=True, slots=True)
class Job:
    """One job: a program with a rank on each GPU of its nodes.

    Attributes:
        number: Number of the job.
        gpus: Its GPUs.
        begin, end: First interval, and the one after its last.
        base_seconds: Usual duration of its kernel.
        load: Work, as a share of the usual.
        memory_bound: Share of its kernel that depends on memory bandwidth.
        memory_share: Share of the memory in use.
        sawtooth_share: Share of the memory that a cache fills and empties; 0 for none.
    """

    number: int
    gpus: Ints
    begin: int
    end: int
    base_seconds: float
    load: float
    memory_bound: float
    memory_share: float
    sawtooth_share: float

    @property
    def program(self) -> str:
        """Name of its program."""
        return f"train-{self.number}"


def draw_jobs(rng: np.random.Generator, size: FleetSize) -> list[Job]:
    """Jobs of one to four nodes, of half a day to six days, with short gaps in between."""
    nodes = int(size.node[-1]) + 1
    jobs: list[Job] = []
    first = 0
    while first < nodes:
        width = min(int(rng.choice([1, 1, 2, 4])), nodes - first)
        gpus = np.flatnonzero((size.node >= first) & (size.node < first + width))
        # Jobs run when the recording begins.
        at = -int(rng.integers(0, DAY_STEPS))
        while at < size.steps:
            length = round(float(np.exp(rng.uniform(np.log(0.5), np.log(6.0)))) * DAY_STEPS)
            jobs.append(_job(rng, len(jobs), gpus, max(at, 0), min(at + length, size.steps)))
            at += length + int(rng.integers(1, 2 * HOUR_STEPS))
        first += width
    return [job for job in jobs if job.end > job.begin]


def _job(rng: np.random.Generator, number: int, gpus: Ints, begin: int, end: int) -> Job:
    preallocates = rng.random() < 0.2
    return Job(
        number=number,
        gpus=gpus,
        begin=begin,
        end=end,
        base_seconds=float(np.exp(rng.uniform(np.log(2e-4), np.log(5e-3)))),
        load=float(rng.uniform(0.8, 1.2)),
        memory_bound=float(rng.uniform(0.3, 0.9)),
        memory_share=float(rng.uniform(0.9, 0.95) if preallocates else rng.uniform(0.3, 0.8)),
        sawtooth_share=0.0 if preallocates or rng.random() < 0.7 else float(rng.uniform(0.05, 0.15)),
    )
