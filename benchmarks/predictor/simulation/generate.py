"""Generates simulated series with the exporter's physics: `exporter/simulate`'s GPUs, one for each series."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from benchmarks.predictor.simulation.classes import BUSY_PERCENT, DRAWS, FULL_MIB, SLOWER_RATIO, USABLE_MIB
from benchmarks.predictor.simulation.profile import Grid, Profile
from benchmarks.predictor.simulation.scenario import CLASSES, Scenarios, breaches, first_breach
from numpy.typing import NDArray

from kernelcast.exporter.simulate import physics
from kernelcast.exporter.simulate.influence import Influence
from kernelcast.exporter.simulate.physics import Gpus
from kernelcast.exporter.simulate.program import USUAL_BUSY_RATIO
from kernelcast.exporter.simulate.workload import slowdown_ratio
from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device

PER_CLASS: Final = 40
_NOISE_MINUTES: Final = 8.0
_WHITE_SHARE: Final = 0.5
_MEMORY_BOUND: Final = 0.85
_SIBLINGS_MEMORY_BOUND: Final = (0.3, 0.6, 0.9)
_SIBLING_NOISE: Final = 0.01
METRICS: Final[Mapping[str, str]] = {
    "temperature": device.GPU_TEMP.prometheus_name,
    "memory": device.FB_USED.prometheus_name,
    "load": device.GPU_UTIL.prometheus_name,
    "kernel": kernel.DURATION.prometheus_name,
}


def generate(seed: int, counts: Mapping[str, int] | None = None, grid: Grid | None = None) -> Scenarios:
    """Simulate series of each class; every other one has the companions that a GPU reports.

    Args:
        seed: Same seed, same series.
        counts: How many of each class; 40 of each by default.
        grid: 24 hours of history and 24 hours of evaluation, a value a minute, by default.
    """
    grid, counts = grid or Grid(), counts or dict.fromkeys(CLASSES, PER_CLASS)
    rng = np.random.default_rng(seed)
    classes = [name for name in CLASSES for _ in range(counts.get(name, 0))]
    numbers = [number for name in CLASSES for number in range(counts.get(name, 0))]
    profiles = [DRAWS[name](rng, grid, number) for name, number in zip(classes, numbers, strict=True)]
    shown = np.array([rng.random() < 0.5 for _ in classes])
    return observe(rng, np.array(classes), profiles, shown)


def observe(rng: np.random.Generator, classes: NDArray[np.str_], profiles: list[Profile], shown: Bools) -> Scenarios:
    """Simulate GPUs that follow profiles, with the values that monitoring sees.

    Args:
        rng: Draws the noise.
        classes: Shape (n,), of `CLASSES`.
        profiles: One for each series, on one grid.
        shown: Shape (n,), which series have companions.
    """
    grid = profiles[0].grid
    state = _drive(rng, profiles)
    kinds = np.array([profile.metric for profile in profiles])
    base_seconds = np.exp(rng.uniform(np.log(20e-6), np.log(5e-3), len(profiles)))
    expected = np.stack([profile.expected for profile in profiles])
    limits = {
        "temperature": np.full(expected.shape, physics.SLOWDOWN_TEMP_C),
        "memory": np.full(expected.shape, FULL_MIB),
        "load": np.full(expected.shape, BUSY_PERCENT),
        "kernel": SLOWER_RATIO * base_seconds[:, None] * expected,
    }
    observed = {
        "temperature": state["temperature"],
        "memory": np.rint(np.minimum(np.stack([profile.memory_mib for profile in profiles]), USABLE_MIB)),
        "load": state["load"],
        "kernel": state["ratio"] * base_seconds[:, None],
    }
    values = np.select([(kinds == name)[:, None] for name in METRICS], [observed[name] for name in METRICS])
    limit = np.select([(kinds == name)[:, None] for name in METRICS], [limits[name] for name in METRICS])
    version = np.stack([profile.version for profile in profiles])
    version[~shown] = -1
    companions = {
        device.POWER_USAGE.prometheus_name: state["power"],
        device.GPU_UTIL.prometheus_name: state["load"],
        device.SM_CLOCK.prometheus_name: state["clock"],
        device.CLOCK_EVENT_REASONS.prometheus_name: state["reasons"],
        device.GPU_TEMP.prometheus_name: state["temperature"],
        device.SLOWDOWN_TEMP.prometheus_name: np.full(values.shape, physics.SLOWDOWN_TEMP_C),
    }
    for companion in companions.values():
        companion[~shown] = np.nan
    beyond = breaches(values, limit, grid.interval_seconds)
    return Scenarios(
        classes=classes,
        metrics=np.array([METRICS[kind] for kind in kinds]),
        interval_seconds=grid.interval_seconds,
        history=grid.history,
        values=values,
        limit=limit,
        limit_is_known=kinds != "kernel",
        process=np.stack([profile.process for profile in profiles]),
        version=version,
        companions=companions,
        onset=np.array([profile.onset for profile in profiles], dtype=np.int64),
        breach=first_breach(beyond, grid.history),
        programs=np.where(shown[:, None], _programs(profiles), np.nan),
        siblings=np.where(shown[:, None, None], _siblings(rng, profiles, state["clock"], base_seconds), np.nan),
    )


def _programs(profiles: list[Profile]) -> Floats:
    """Programs on the GPU: one, and the neighbour that takes memory bandwidth."""
    return np.stack([1.0 + (profile.bandwidth > 1.0) for profile in profiles])


def _siblings(rng: np.random.Generator, profiles: list[Profile], clock_mhz: Floats, base_seconds: Floats) -> Floats:
    """Durations of three other kernels of the program, which depend more or less on memory bandwidth.

    A deploy changes them as it changes the kernel itself; ageing concerns that kernel alone.
    """
    bandwidth = np.stack([profile.bandwidth for profile in profiles])
    expected = np.stack([profile.expected for profile in profiles]) * base_seconds[:, None]
    found = []
    for bound in _SIBLINGS_MEMORY_BOUND:
        slower = slowdown_ratio(bandwidth, clock_mhz, np.full(bandwidth.shape, bound))
        found.append(expected * slower * (1.0 + _SIBLING_NOISE * rng.standard_normal(bandwidth.shape)))
    return np.stack(found, axis=1)


def _drive(rng: np.random.Generator, profiles: list[Profile]) -> dict[str, Floats]:
    """Drive one GPU for each series through its profile.

    Returns:
        Temperature, power, clock, reasons, load in per cent, and the kernel's duration over its undisturbed one;
        all of shape (n, t), in NVML's resolution.
    """
    grid, count = profiles[0].grid, len(profiles)
    load = np.stack([profile.load for profile in profiles])
    load = np.maximum(load * (1.0 + _wander(rng, profiles, [profile.load_noise for profile in profiles])), 0.0)
    heat = np.stack([profile.heat_c for profile in profiles])
    bandwidth = np.stack([profile.bandwidth for profile in profiles])
    factor = np.stack([profile.kernel for profile in profiles])
    gpus = Gpus(count, rng)
    names = ("temperature", "power", "clock", "reasons", "ratio", "load")
    state = {name: np.zeros((count, grid.length)) for name in names}
    acting = Influence.none(count, 1)
    for place in range(grid.length):
        acting.load, acting.heat_c = load[:, place], heat[:, place]
        gpus.busy_ratio = np.minimum(USUAL_BUSY_RATIO * load[:, place], 1.0)
        if place == 0:
            gpus.settle(acting)
        gpus.advance(acting, rng.standard_normal(count), grid.interval_seconds)
        state["temperature"][:, place] = gpus.temp_c
        state["power"][:, place] = gpus.power_w
        state["clock"][:, place] = gpus.clock_mhz
        state["reasons"][:, place] = gpus.reasons
        state["load"][:, place] = 100.0 * gpus.busy_ratio
        slower = slowdown_ratio(bandwidth[:, place], gpus.clock_mhz, np.full(count, _MEMORY_BOUND))
        state["ratio"][:, place] = factor[:, place] * slower
    state["temperature"], state["load"] = np.rint(state["temperature"]), np.rint(state["load"])
    noise = _wander(rng, profiles, [profile.kernel_noise for profile in profiles])
    state["ratio"] *= (1.0 + noise) * np.stack([profile.spike for profile in profiles])
    return state


def _wander(rng: np.random.Generator, profiles: list[Profile], deviations: list[float]) -> Floats:
    """Noise of the given standard deviations, half of its variance white, half with a memory of minutes."""
    grid = profiles[0].grid
    memory = float(np.exp(-grid.interval_seconds / (60.0 * _NOISE_MINUTES)))
    white, slow = rng.standard_normal((2, len(profiles), grid.length))
    for place in range(1, grid.length):
        slow[:, place] = memory * slow[:, place - 1] + np.sqrt(1 - memory**2) * slow[:, place]
    mixed: Floats = np.sqrt(_WHITE_SHARE) * white + np.sqrt(1 - _WHITE_SHARE) * slow
    mixed *= np.array(deviations)[:, None]
    return mixed
