"""Events of a simulated fleet that are no faults: warm rooms and racks, power caps, deploys, restarts, reboots."""

from typing import Final

import numpy as np
from benchmarks.predictor.fleet.faults import Acting, since
from benchmarks.predictor.fleet.layout import DAY_STEPS, HOUR_STEPS, FleetSize, Job

from kernelcast.exporter.simulate import shapes
from kernelcast.predictor.arrays import Ints

DAY_SECONDS: Final = 86_400.0
HOT_SHARE: Final = 0.03
HOTTEST_C: Final = 18.0
_ROOM_C: Final = 1.5
_WARM_RACK_C: Final = 4.0


def heat(rng: np.random.Generator, size: FleetSize, acting: Acting) -> None:
    """Room, racks that are warmer for hours, and GPUs that are hot and stay so; none reaches its limit."""
    acting.heat_c += _ROOM_C * shapes.periodic(since(size, int(rng.integers(DAY_STEPS))), DAY_SECONDS)
    racks = int(size.rack[-1]) + 1
    acting.heat_c += rng.uniform(-1.5, 1.5, racks)[size.rack][:, None]
    hot = rng.random(size.gpus) < HOT_SHARE
    acting.heat_c[hot] += rng.uniform(10.0, HOTTEST_C, (int(hot.sum()), 1))
    for _ in range(max(racks * size.days // 28, 1)):
        begin = int(rng.integers(size.steps))
        end = begin + int(rng.integers(3, 12)) * HOUR_STEPS
        warm = _WARM_RACK_C * shapes.saturating(since(size, begin), 2700.0)
        warm -= warm * shapes.saturating(since(size, end), 2700.0)
        acting.heat_c[size.rack == rng.integers(racks)] += warm


def power(rng: np.random.Generator, size: FleetSize, acting: Acting) -> None:
    """Hours in which the operator lowers the power limit of a third of the fleet."""
    for _ in range(max(size.days // 3, 1)):
        begin = int(rng.integers(size.steps))
        part = slice(begin, begin + int(rng.integers(6, 4 * HOUR_STEPS)))
        third = size.node % 3 == rng.integers(3)
        acting.capped[third, part] = True
        acting.clock_ratio[third, part] *= 0.93


def reboots(rng: np.random.Generator, size: FleetSize, acting: Acting) -> None:
    """Nodes that report nothing for a quarter of an hour."""
    for _ in range(max(size.gpus * size.days // 500, 1)):
        node, begin = rng.integers(int(size.node[-1]) + 1), int(rng.integers(size.steps))
        acting.silent[size.node == node, begin : begin + 3] = True


def work(rng: np.random.Generator, size: FleetSize, jobs: list[Job], acting: Acting) -> tuple[Ints, Ints]:
    """Jobs, their first minutes, deploys and restarts.

    Returns:
        Numbers of the process and of the code version, both of shape (gpus, steps).
    """
    process = np.zeros((size.gpus, size.steps), dtype=np.int64)
    version = np.zeros((size.gpus, size.steps), dtype=np.int64)
    for job in jobs:
        span = slice(job.begin, job.end)
        acting.load[job.gpus, span] = job.load
        for array in (process, version):
            array[job.gpus, job.begin :] += 1000
        _open(rng, job, job.begin, acting)
        for _ in range(int(rng.poisson((job.end - job.begin) / (5 * DAY_STEPS)))):
            at = int(rng.integers(job.begin, job.end))
            process[job.gpus, at : job.end] += 1
            if rng.random() < 0.5:
                version[job.gpus, at : job.end] += 1
                acting.kernel[job.gpus, at : job.end] *= rng.choice([0.8, 0.9, 1.1, 1.25])
            _open(rng, job, at, acting)
    swing = 1.0 + 0.03 * shapes.periodic(since(size, 0), DAY_SECONDS)
    acting.load *= swing
    return process, version


def _open(rng: np.random.Generator, job: Job, begin: int, acting: Acting) -> None:
    """The first interval of a process is slower: compilation, autotuning."""
    acting.kernel[job.gpus, begin : min(begin + 1, job.end)] *= rng.uniform(1.0, 1.4)
