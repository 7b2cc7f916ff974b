"""Classes of simulated series: four drifts, contention, and nine that only look like faults.

Sizes and rates are drawn; a slow and a fast fault, a near and a far limit occur in every seed. Some choices of a class
(which metric shows it, where it has variants) follow from the series' number in its class, so that each has its share.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from benchmarks.predictor.simulation.profile import DAY, HOUR, Grid, Profile

from kernelcast.exporter.simulate import physics, shapes

Draw = Callable[[np.random.Generator, Grid, int], Profile]

USUAL_C: Final = 59.0
"""Temperature of a simulated GPU at the usual load, without extra heat."""
USABLE_MIB: Final = physics.MEMORY_TOTAL_MIB - physics.MEMORY_RESERVED_MIB
FULL_RATIO: Final = 0.97
FULL_MIB: Final = FULL_RATIO * physics.MEMORY_TOTAL_MIB
BUSY_PERCENT: Final = 99.0
SLOWER_RATIO: Final = 1.2
USUAL_BUSY_PERCENT: Final = 60.0
_SHORTEST_HOURS, _LONGEST_HOURS = 2.0, 20.0
_BREACH_BEFORE_END_SECONDS: Final = 0.5 * HOUR


def _uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(rng.uniform(low, high))


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _rate(rng: np.random.Generator, *, slow: float, fast: float, least: float, most: float) -> tuple[float, float]:
    """A rate per hour and hours to the limit, with a distance between `least` and `most`."""
    while True:
        rate, hours = _log_uniform(rng, slow, fast), _uniform(rng, _SHORTEST_HOURS, _LONGEST_HOURS)
        if least <= rate * hours <= most:
            return rate, hours


def _begin(rng: np.random.Generator, profile: Profile, hours: float) -> float:
    latest = profile.grid.end_seconds - hours * HOUR - _BREACH_BEFORE_END_SECONDS
    profile.onset_seconds = _uniform(rng, profile.grid.begin_seconds, latest)
    return profile.onset_seconds


def _temperature(rng: np.random.Generator, grid: Grid, usual_c: float) -> Profile:
    """A GPU at a temperature, in a room whose temperature changes a little over the day."""
    profile = Profile("temperature", grid)
    profile.load_noise = _log_uniform(rng, 0.003, 0.03)
    room = shapes.periodic(profile.seconds + _uniform(rng, 0, DAY), DAY)
    profile.heat_c += usual_c - USUAL_C + _uniform(rng, 0.0, 0.8) * room
    return profile


def _kernel(rng: np.random.Generator, grid: Grid) -> Profile:
    profile = Profile("kernel", grid)
    profile.kernel_noise = _log_uniform(rng, 0.003, 0.03)
    return profile


def _replaced(profile: Profile, seconds: float, *, deploy: bool) -> None:
    """Another process from a moment on."""
    profile.process[profile.after(seconds)] += 1
    profile.version[profile.after(seconds)] += deploy


def _slow_opening(rng: np.random.Generator, profile: Profile, seconds: float) -> None:
    """The first minutes of a process: compilation slows its kernels, cold clocks speed them up."""
    length = _uniform(rng, 120, 480)
    factor = _uniform(rng, 1.1, 1.5) if rng.random() < 0.6 else _uniform(rng, 0.75, 0.95)
    # The length of the mean that decides on a breach is 5 minutes: a slow opening is expected.
    cold = 1.0 + (factor - 1.0) * shapes.opening(profile.since(seconds), length)
    profile.kernel *= cold
    profile.expected *= np.maximum(cold, 1.0)


def thermal_drift(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """Cooling gets worse, 0.5 to 8 degrees an hour."""
    rate, hours = _rate(rng, slow=0.5, fast=8.0, least=3.0, most=27.0)
    profile = _temperature(rng, grid, physics.SLOWDOWN_TEMP_C - rate * hours)
    profile.heat_c += shapes.linear(profile.since(_begin(rng, profile, hours)), rate / HOUR)
    if number % 5 == 4:
        profile.heat_c += _uniform(rng, 1.0, 2.0) * shapes.periodic(profile.seconds + _uniform(rng, 0, DAY), DAY)
    return profile


def ageing_kernel(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """One kernel takes longer and longer, 1 to 10 per cent an hour."""
    profile = _kernel(rng, grid)
    growth = 0.2
    hours = float(np.clip(growth / _log_uniform(rng, 0.01, 0.1), _SHORTEST_HOURS, _LONGEST_HOURS))
    since = profile.since(_begin(rng, profile, hours))
    profile.kernel *= 1.0 + shapes.linear(since, growth / (hours * HOUR))
    if number % 4 == 3:
        _slow_opening(rng, profile, 0.0)
    return profile


def memory_leak(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """A program allocates and does not free, in pieces of 2 MiB to 2 GiB."""
    profile = Profile("memory", grid)
    hours, share = _uniform(rng, _SHORTEST_HOURS, _LONGEST_HOURS), _uniform(rng, 0.2, 0.85)
    start = share * FULL_MIB
    leaked = shapes.linear(profile.since(_begin(rng, profile, hours)), (FULL_MIB - start) / (hours * HOUR))
    piece = _log_uniform(rng, 2, 2048 if number % 3 == 2 else 128)
    profile.memory_mib += start + np.floor(leaked / piece) * piece
    _breathe(rng, profile, _uniform(rng, 0, 0.01))
    return profile


def load_growth(rng: np.random.Generator, grid: Grid, _number: int) -> Profile:
    """More and more work until the GPU is saturated."""
    profile = Profile("load", grid)
    profile.load_noise = _log_uniform(rng, 0.005, 0.05)
    start, hours = _uniform(rng, 30, 75), _uniform(rng, _SHORTEST_HOURS, _LONGEST_HOURS)
    grown = shapes.linear(profile.since(_begin(rng, profile, hours)), (100.0 / start - 1.0) / (hours * HOUR))
    profile.load *= start / USUAL_BUSY_PERCENT * (1.0 + grown)
    return profile


def contention(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """A neighbour takes memory bandwidth at once; some leave after half an hour to six hours."""
    profile = _kernel(rng, grid)
    profile.onset_seconds = _uniform(rng, grid.begin_seconds, grid.end_seconds - HOUR)
    length = np.inf if number % 2 else _uniform(rng, 0.5, 6.0) * HOUR
    acting = (profile.since(profile.onset_seconds) >= 0) & (profile.since(profile.onset_seconds) < length)
    profile.bandwidth[acting] = 1.0 + _uniform(rng, 0.3, 1.5)
    if number % 4 == 3:
        _slow_opening(rng, profile, 0.0)
    return profile


def hot_but_stable(rng: np.random.Generator, grid: Grid, _number: int) -> Profile:
    """Hotter than others, below its limit, for ever."""
    return _temperature(rng, grid, _uniform(rng, 79.0, 84.5))


def warm_up(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """A job begins on an idle GPU: load at once, then the chassis warms up for an hour or more."""
    profile = _temperature(rng, grid, USUAL_C)
    begin = _uniform(rng, grid.begin_seconds, grid.end_seconds - 4 * HOUR)
    if number % 2:
        profile.load[profile.since(begin) < 0] = _uniform(rng, 0.02, 0.3)
    settled, over = _uniform(rng, 68.0, 83.5), _log_uniform(rng, 600, 4800)
    profile.heat_c += (settled - USUAL_C) * shapes.saturating(profile.since(begin), over)
    return profile


def load_step(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """Load changes at once, one to three times."""
    if number % 2:
        profile = Profile("load", grid)
        profile.load_noise = _log_uniform(rng, 0.005, 0.03)
        levels = rng.uniform(0.5, 1.5, 4)
    else:
        profile = _temperature(rng, grid, _uniform(rng, 60.0, 74.0))
        levels = np.concatenate([[1.0], rng.uniform(0.6, 1.45, 3)])
    moments = np.sort(rng.uniform(grid.begin_seconds, grid.end_seconds, int(rng.integers(1, 4))))
    profile.load *= levels[0]
    for moment, level in zip(moments, levels[1:], strict=False):
        profile.load[profile.after(float(moment))] = level
    return profile


def deploy(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """Another version, 25 per cent slower or faster: that is its normal."""
    profile = _kernel(rng, grid)
    moment = _uniform(rng, grid.begin_seconds, grid.end_seconds - HOUR)
    _replaced(profile, moment, deploy=True)
    factor = np.where(profile.since(moment) >= 0, 1.25 if number % 2 else 0.75, 1.0)
    profile.kernel *= factor
    profile.expected *= factor
    if number % 4 >= 2:
        _slow_opening(rng, profile, moment)
    return profile


def restart(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """The program ends and begins again, once to four times: memory, temperature or a kernel shows it."""
    metric = ("memory", "temperature", "kernel")[number % 3]
    profile = _temperature(rng, grid, _uniform(rng, 65.0, 82.0)) if metric == "temperature" else Profile(metric, grid)
    usual = _uniform(rng, 0.3, 0.93) * FULL_MIB
    profile.memory_mib += usual
    for moment in rng.uniform(0, grid.end_seconds - HOUR, int(rng.integers(1, 5))):
        since, pause = profile.since(float(moment)), _uniform(rng, 20, 900)
        _replaced(profile, float(moment) + pause, deploy=False)
        profile.load[(since >= 0) & (since < pause)] = 0.0
        refill = _log_uniform(rng, 60, 3600)
        refilled = np.where(since < pause, 0.0, shapes.ramp(since - pause, refill) * usual)
        profile.memory_mib = np.where(since < 0, profile.memory_mib, np.minimum(profile.memory_mib, refilled))
        if metric == "kernel":
            _slow_opening(rng, profile, float(moment) + pause)
    _breathe(rng, profile, _uniform(rng, 0, 0.01))
    return profile


def sawtooth(rng: np.random.Generator, grid: Grid, _number: int) -> Profile:
    """A cache fills and is emptied, each time to another height."""
    profile = Profile("memory", grid)
    top, share, period = _uniform(rng, 0.6, 0.93) * FULL_MIB, _uniform(rng, 0.15, 0.7), _log_uniform(rng, 1, 9) * HOUR
    seconds, heights = 0.0, []
    while seconds < grid.end_seconds:
        length, height = period * _uniform(rng, 0.85, 1.15), share * top * _uniform(rng, 0.92, 1.0)
        inside = (profile.seconds >= seconds) & (profile.seconds < seconds + length)
        profile.memory_mib[inside] = (
            top * (1 - share) + height * shapes.sawtooth(profile.since(seconds), length)[inside]
        )
        heights.append(height)
        seconds += length
    _breathe(rng, profile, _uniform(rng, 0, 0.005))
    return profile


def preallocation(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """The program takes nearly all memory at its start, and holds it."""
    profile = Profile("memory", grid)
    begin = 0.0 if number % 2 else _uniform(rng, grid.begin_seconds, grid.end_seconds - HOUR)
    held = _uniform(rng, 0.85, 0.96) * USABLE_MIB
    profile.memory_mib += 600.0 + (held - 600.0) * shapes.ramp(profile.since(begin), _log_uniform(rng, 30, 900))
    if begin:
        _replaced(profile, begin, deploy=False)
    return profile


def diurnal(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """The room or the load follows the time of day: up to 4 degrees, or up to a third of the load."""
    phase = _uniform(rng, 0, DAY)
    if number % 3 == 2:
        profile = Profile("load", grid)
        profile.load_noise = _log_uniform(rng, 0.005, 0.03)
        profile.load *= _uniform(rng, 0.6, 1.15)
        profile.load *= 1.0 + _uniform(rng, 0.1, 0.33) * shapes.periodic(profile.seconds + phase, DAY)
        return profile
    profile = _temperature(rng, grid, _uniform(rng, 68.0, 80.0))
    if number % 3:
        profile.load *= 1.0 + _uniform(rng, 0.05, 0.15) * shapes.periodic(profile.seconds + phase, DAY)
    else:
        profile.heat_c += _uniform(rng, 2.0, 4.0) * shapes.periodic(profile.seconds + phase, DAY)
    return profile


def healthy_kernel(rng: np.random.Generator, grid: Grid, number: int) -> Profile:
    """A kernel that stays as it is: plain, with spikes in one interval of twenty, or with slow first minutes."""
    profile = _kernel(rng, grid)
    if number % 3 == 1:
        places = np.arange(0, grid.length, 20) + rng.integers(0, 14, len(range(0, grid.length, 20)))
        # One spike in the 5 minutes that decide on a breach stays below it.
        profile.spike[places[places < grid.length]] = _uniform(rng, 1.2, 1.7)
    if number % 3 == 2:
        _slow_opening(rng, profile, 0.0)
        _slow_opening(rng, profile, begin := _uniform(rng, grid.begin_seconds, grid.end_seconds - HOUR))
        _replaced(profile, begin, deploy=False)
    return profile


def _breathe(rng: np.random.Generator, profile: Profile, share: float) -> None:
    """Small allocations that come and go."""
    profile.memory_mib *= 1.0 + share * rng.standard_normal(profile.grid.length) * (profile.memory_mib > 0)


DRAWS: Final[Mapping[str, Draw]] = {
    "thermal-drift": thermal_drift,
    "ageing-kernel": ageing_kernel,
    "memory-leak": memory_leak,
    "load-growth": load_growth,
    "contention": contention,
    "hot-but-stable": hot_but_stable,
    "warm-up": warm_up,
    "load-step": load_step,
    "deploy": deploy,
    "restart": restart,
    "sawtooth": sawtooth,
    "preallocation": preallocation,
    "diurnal": diurnal,
    "healthy-kernel": healthy_kernel,
}
