"""Simulates a fleet with the exporter's physics, and records its metrics every five minutes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from benchmarks.predictor.fleet import events
from benchmarks.predictor.fleet.faults import USABLE_MIB, Acting, Injected, inject, since
from benchmarks.predictor.fleet.layout import IDLE, STEP_SECONDS, FleetSize, Job, draw_jobs

from kernelcast.exporter.simulate import physics, shapes
from kernelcast.exporter.simulate.influence import Influence
from kernelcast.exporter.simulate.physics import Gpus
from kernelcast.exporter.simulate.program import USUAL_BUSY_RATIO
from kernelcast.exporter.simulate.workload import slowdown_ratio
from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device

_LOAD_NOISE = 0.01
_KERNEL_NOISE = 0.01
_SAWTOOTH_SECONDS = 3 * 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A fleet as its monitoring sees it, with the truth.

    Attributes:
        size: The fleet.
        jobs: Its jobs, by number.
        faults: The truth.
        values: By Prometheus name, shape (gpus, steps); NaN where there is no sample.
        job: Shape (gpus, steps), number of the job; `IDLE` for none.
        process, version: Shape (gpus, steps).
        programs: Shape (gpus, steps), programs on each GPU.
    """

    size: FleetSize
    jobs: Mapping[int, Job]
    faults: list[Injected]
    values: Mapping[str, Floats]
    job: Ints
    process: Ints
    version: Ints
    programs: Floats


def record(seed: int, size: FleetSize) -> Recording:
    """Simulate a fleet.

    Args:
        seed: Same seed, same fleet.
        size: The fleet.
    """
    rng = np.random.default_rng([seed, size.gpus])
    acting = Acting(size)
    jobs = draw_jobs(rng, size)
    process, version = events.work(rng, size, jobs, acting)
    events.heat(rng, size, acting)
    events.power(rng, size, acting)
    events.reboots(rng, size, acting)
    injected = inject(rng, size, jobs, acting, first=seed * size.faults)
    number, base, memory_bound, memory_mib = _of_jobs(rng, size, jobs)
    memory_mib = np.where(number == IDLE, 0.0, np.minimum(memory_mib + acting.leaked_mib, USABLE_MIB))
    values = _drive(rng, size, acting, base, memory_bound)
    values[device.FB_USED.prometheus_name] = np.rint(memory_mib)
    values[device.FB_FREE.prometheus_name] = np.rint(USABLE_MIB - memory_mib)
    for name, array in values.items():
        if name != kernel.DURATION.prometheus_name:
            array[acting.silent] = np.nan
    by_number = {job.number: job for job in jobs}
    return Recording(size, by_number, injected, values, number, process, version, acting.programs)


def _of_jobs(rng: np.random.Generator, size: FleetSize, jobs: list[Job]) -> tuple[Ints, Floats, Floats, Floats]:
    """Number of the job, duration and boundness of its kernel, and its memory, all of shape (gpus, steps)."""
    shape = (size.gpus, size.steps)
    number = np.full(shape, IDLE, dtype=np.int64)
    base, bound, memory = np.full(shape, np.nan), np.full(shape, 0.5), np.zeros(shape)
    seconds = since(size, 0)
    for job in jobs:
        span = slice(job.begin, job.end)
        number[job.gpus, span], base[job.gpus, span] = job.number, job.base_seconds
        bound[job.gpus, span] = job.memory_bound
        cache = job.sawtooth_share * shapes.sawtooth(seconds[span], _SAWTOOTH_SECONDS)
        memory[job.gpus, span] = USABLE_MIB * (job.memory_share + cache)
    memory *= 1.0 + 0.002 * rng.standard_normal(shape)
    return number, base, bound, memory


def _drive(
    rng: np.random.Generator, size: FleetSize, acting: Acting, base: Floats, memory_bound: Floats
) -> dict[str, Floats]:
    """Drive the GPUs through everything that acts; returns the metrics in NVML's resolution."""
    shape = (size.gpus, size.steps)
    load = np.maximum(acting.load * (1.0 + _LOAD_NOISE * rng.standard_normal(shape)), 0.0)
    gpus, influence = Gpus(size.gpus, rng), Influence.none(size.gpus, 1)
    rows = (
        device.GPU_TEMP,
        device.POWER_USAGE,
        device.SM_CLOCK,
        device.CLOCK_EVENT_REASONS,
        device.GPU_UTIL,
        device.ECC_SBE_VOLATILE,
        device.ECC_DBE_VOLATILE,
        device.UNCORRECTABLE_REMAPPED_ROWS,
        device.PCIE_LINK_WIDTH,
        kernel.DURATION,
    )
    values = {row.prometheus_name: np.full(shape, np.nan) for row in rows}
    noise = 1.0 + _KERNEL_NOISE * rng.standard_normal(shape)
    for step in range(size.steps):
        _influence(influence, acting, load, step)
        gpus.busy_ratio = np.minimum(USUAL_BUSY_RATIO * load[:, step], 1.0)
        if step == 0:
            gpus.settle(influence)
        gpus.advance(influence, rng.standard_normal(size.gpus), STEP_SECONDS)
        slower = slowdown_ratio(acting.bandwidth[:, step], gpus.clock_mhz, memory_bound[:, step])
        now = (
            np.rint(gpus.temp_c),
            gpus.power_w,
            gpus.clock_mhz,
            gpus.reasons,
            np.rint(100 * gpus.busy_ratio),
            np.floor(gpus.bit_errors),
            np.floor(gpus.remapped_rows),
            np.floor(gpus.remapped_rows),
            gpus.pcie_lanes,
            base[:, step] * acting.kernel[:, step] * slower * noise[:, step],
        )
        for array, column in zip(values.values(), now, strict=True):
            array[:, step] = column
    values[device.SLOWDOWN_TEMP.prometheus_name] = np.full(shape, physics.SLOWDOWN_TEMP_C)
    values[device.POWER_LIMIT.prometheus_name] = np.full(shape, physics.POWER_LIMIT_W)
    values[device.PCIE_MAX_LINK_WIDTH.prometheus_name] = np.full(shape, 16.0)
    return values


def _influence(influence: Influence, acting: Acting, load: Floats, step: int) -> None:
    """Set what acts in one interval."""
    influence.load, influence.heat_c = load[:, step], acting.heat_c[:, step]
    influence.clock_ratio, influence.braked = acting.clock_ratio[:, step], acting.braked[:, step]
    influence.capped, influence.silent = acting.capped[:, step], acting.silent[:, step]
    influence.pcie_lanes, influence.bit_errors = acting.lanes[:, step], acting.bit_errors[:, step]
    influence.remapped_rows = acting.rows[:, step]
