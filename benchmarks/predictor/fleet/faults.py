"""Faults of a simulated fleet, and the events that are none: each changes what acts on the GPUs over time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from benchmarks.predictor.fleet.layout import DAY_STEPS, HOUR_STEPS, STEP_SECONDS, FleetSize, Job

from kernelcast.exporter.simulate import faults, physics, shapes
from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Scope

RACK_HEAT: Final = "rack-heat"
AGEING: Final = "ageing"
HOUR_SECONDS: Final = 3600.0
USABLE_MIB: Final = physics.MEMORY_TOTAL_MIB - physics.MEMORY_RESERVED_MIB
USUAL_C: Final = 59.0
"""Temperature of a simulated GPU at the usual load, without extra heat."""


@dataclass(frozen=True, slots=True)
class Injected:
    """One fault of the truth.

    Attributes:
        kind: Its kind.
        causes: Causes that are right.
        scope: Extent that is right.
        gpus: GPUs that it concerns.
        onset, end: First interval, and the one after its last.
    """

    kind: str
    causes: frozenset[Cause]
    scope: Scope
    gpus: Ints
    onset: int
    end: int


class Acting:
    """Everything that acts on the GPUs, arrays of shape (gpus, steps), changed by faults and events."""

    def __init__(self, size: FleetSize) -> None:
        shape = (size.gpus, size.steps)
        self.heat_c: Floats = np.zeros(shape)
        self.load: Floats = np.zeros(shape)
        self.kernel: Floats = np.ones(shape)
        self.bandwidth: Floats = np.ones(shape)
        self.clock_ratio: Floats = np.ones(shape)
        self.braked: Bools = np.zeros(shape, dtype=np.bool_)
        self.capped: Bools = np.zeros(shape, dtype=np.bool_)
        self.lanes: Floats = np.full(shape, 16.0)
        self.bit_errors: Floats = np.zeros(shape)
        self.rows: Floats = np.zeros(shape)
        self.silent: Bools = np.zeros(shape, dtype=np.bool_)
        self.leaked_mib: Floats = np.zeros(shape)
        self.programs: Floats = np.ones(shape)


Draw = Callable[[np.random.Generator, FleetSize, Job, int, Acting], Injected]
"""Draws a fault that begins within a job at an interval, and lets it act."""


def since(size: FleetSize, step: int) -> Floats:
    """Seconds since an interval, shape (steps,); negative before it."""
    return np.arange(-step, size.steps - step, dtype=np.float64) * STEP_SECONDS


def one_gpu(rng: np.random.Generator, job: Job) -> Ints:
    """One of a job's GPUs."""
    return rng.choice(job.gpus, 1)


def _hours(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _thermal(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus, hours = one_gpu(rng, job), _hours(rng, 4, 20)
    rate = (physics.SLOWDOWN_TEMP_C - USUAL_C) / (hours * HOUR_SECONDS)
    acting.heat_c[gpus] += shapes.linear(since(size, onset), rate)
    return Injected(faults.THERMAL_DRIFT, frozenset({Cause.THERMAL}), Scope.GPU, gpus, onset, size.steps)


def _rack_heat(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus = np.flatnonzero(size.rack == size.rack[job.gpus[0]])
    rate = (physics.SLOWDOWN_TEMP_C - USUAL_C) / (_hours(rng, 5, 15) * HOUR_SECONDS)
    end = min(onset + DAY_STEPS, size.steps)
    grown = shapes.linear(since(size, onset), rate)
    grown[end:] = 0.0
    acting.heat_c[gpus] += np.minimum(grown, 45.0) * rng.uniform(0.9, 1.1, (len(gpus), 1))
    return Injected(RACK_HEAT, frozenset({Cause.THERMAL}), Scope.RACK, gpus, onset, end)


def _leak(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus = one_gpu(rng, job)
    free_mib = (1.0 - job.memory_share - job.sawtooth_share) * USABLE_MIB
    leaked = shapes.linear(since(size, onset), free_mib / (_hours(rng, 4, 20) * HOUR_SECONDS))
    leaked[job.end :] = 0.0
    acting.leaked_mib[gpus] += np.floor(leaked / 64.0) * 64.0
    return Injected(faults.MEMORY_LEAK, frozenset({Cause.MEMORY_LEAK}), Scope.GPU, gpus, onset, job.end)


def _ageing(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus, hours = one_gpu(rng, job), _hours(rng, 4, 15)
    acting.kernel[gpus] *= 1.0 + 0.4 * shapes.ramp(since(size, onset), hours * HOUR_SECONDS)
    return Injected(AGEING, frozenset({Cause.AGEING}), Scope.GPU, gpus, onset, size.steps)


def _brake(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus = np.flatnonzero(size.node == size.node[one_gpu(rng, job)[0]])
    acting.braked[gpus, onset:] = True
    acting.clock_ratio[gpus, onset:] *= 0.5
    return Injected(faults.POWER_BRAKE, frozenset({Cause.POWER_BRAKE}), Scope.NODE, gpus, onset, size.steps)


def _low_clock(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus = one_gpu(rng, job)
    acting.clock_ratio[gpus, onset:] *= rng.uniform(0.6, 0.8)
    return Injected(faults.LOW_CLOCK, frozenset({Cause.CLOCK_LOW}), Scope.GPU, gpus, onset, size.steps)


def _pcie(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus = one_gpu(rng, job)
    acting.lanes[gpus, onset:] = rng.choice([4.0, 8.0])
    return Injected(faults.PCIE_LINK, frozenset({Cause.PCIE_LINK}), Scope.GPU, gpus, onset, size.steps)


def _memory_errors(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus = one_gpu(rng, job)
    acting.bit_errors[gpus, onset:] += rng.uniform(60, 600) / HOUR_SECONDS
    acting.rows[gpus, onset:] += rng.uniform(0.5, 3.0) / HOUR_SECONDS
    right = frozenset({Cause.MEMORY_ERRORS, Cause.ROW_REMAPPING})
    return Injected(faults.MEMORY_ERRORS, right, Scope.GPU, gpus, onset, size.steps)


def _contention(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    del size
    gpus, end = one_gpu(rng, job), min(onset + round(_hours(rng, 2, 10) * HOUR_STEPS), job.end)
    acting.bandwidth[gpus, onset:end] *= 1.0 + rng.uniform(0.5, 1.2) / job.memory_bound
    acting.programs[gpus, onset:end] += 1
    return Injected(faults.CONTENTION, frozenset({Cause.CONTENTION}), Scope.GPU, gpus, onset, end)


def _straggler(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    """Slow from the job's first step on: its own past does not show it."""
    del size, onset
    gpus, begin = one_gpu(rng, job), max(job.begin, DAY_STEPS)
    acting.kernel[gpus, job.begin : job.end] *= rng.uniform(1.2, 1.5)
    return Injected(faults.STRAGGLER, frozenset({Cause.STRAGGLER}), Scope.GPU, gpus, begin, job.end)


def _telemetry(rng: np.random.Generator, size: FleetSize, job: Job, onset: int, acting: Acting) -> Injected:
    gpus, end = one_gpu(rng, job), min(onset + DAY_STEPS, size.steps)
    acting.silent[gpus, onset:end] = True
    return Injected(faults.TELEMETRY_LOST, frozenset({Cause.TELEMETRY_LOST}), Scope.GPU, gpus, onset, end)


DRAWS: Final[Mapping[str, Draw]] = {
    faults.THERMAL_DRIFT: _thermal,
    faults.MEMORY_LEAK: _leak,
    AGEING: _ageing,
    faults.POWER_BRAKE: _brake,
    faults.PCIE_LINK: _pcie,
    faults.MEMORY_ERRORS: _memory_errors,
    faults.CONTENTION: _contention,
    faults.STRAGGLER: _straggler,
    faults.TELEMETRY_LOST: _telemetry,
    faults.LOW_CLOCK: _low_clock,
    RACK_HEAT: _rack_heat,
}
_LEAST_HOURS: Final = 22
_FULL_SHARE: Final = 0.85


def inject(rng: np.random.Generator, size: FleetSize, jobs: list[Job], acting: Acting, *, first: int) -> list[Injected]:
    """Inject faults of kinds in turn, on different racks where there are enough.

    Args:
        rng: Draws them.
        size: The fleet.
        jobs: Its jobs; a fault begins within one that runs on for most of a day.
        acting: Changed.
        first: Place of the first kind; another one for each seed, so that all kinds occur.
    """
    kinds = list(DRAWS)
    made: list[Injected] = []
    used: set[int] = set()
    for number in range(2 * len(kinds) + size.faults):
        if len(made) == size.faults:
            break
        kind = kinds[(first + number) % len(kinds)]
        places = _places(size, jobs, kind, used)
        if not places:
            continue
        job, begin, end = places[int(rng.integers(len(places)))]
        fault = DRAWS[kind](rng, size, job, int(rng.integers(begin, end)), acting)
        used |= set(size.node[job.gpus].tolist()) | set(size.node[fault.gpus].tolist())
        made.append(fault)
    return made


def _places(size: FleetSize, jobs: list[Job], kind: str, used: set[int]) -> list[tuple[Job, int, int]]:
    """Jobs on nodes without a fault, and the intervals at which they run on for most of a day."""
    found = []
    for job in jobs:
        begin, end = max(job.begin + 3 * HOUR_STEPS, DAY_STEPS), job.end - _LEAST_HOURS * HOUR_STEPS
        if kind == faults.STRAGGLER:
            # It is seen from the job's begin on, which must not lie before the evaluation.
            begin = job.begin if job.begin >= DAY_STEPS else size.steps
        rack = size.node[size.rack == size.rack[job.gpus[0]]]
        nodes = set((rack if kind == RACK_HEAT else size.node[job.gpus]).tolist())
        is_full = kind == faults.MEMORY_LEAK and job.memory_share + job.sawtooth_share > _FULL_SHARE
        if begin < end and not nodes & used and not is_full:
            found.append((job, begin, end))
    return found
