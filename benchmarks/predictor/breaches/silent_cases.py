"""Two faults that an outside review found to pass in silence: both must raise an alert."""

from typing import Any

import numpy as np
from benchmarks.predictor.breaches.passage_run import run
from benchmarks.predictor.simulation.classes import USUAL_C
from benchmarks.predictor.simulation.generate import observe
from benchmarks.predictor.simulation.profile import HOUR, Grid, Profile
from benchmarks.predictor.simulation.scenario import Scenarios

from kernelcast.exporter.simulate import shapes
from kernelcast.predictor.arrays import Bools, Floats

_FROM_C, _PER_HOUR_C = 76.0, 2.0
_COMPILING_RATIO, _COMPILING_SECONDS, _SLOW_RATIO, _SLOW_SECONDS = 1.4, 180.0, 1.2, 3 * HOUR
_COUNT = 20


def rising_temperature(seed: int) -> Scenarios:
    """GPUs that rise by 2 degrees an hour from 76, past their slowdown temperature, with an hour of history."""
    grid = Grid(history=60, length=600)
    profiles = []
    for _ in range(_COUNT):
        profile = Profile("temperature", grid)
        profile.onset_seconds = grid.begin_seconds
        profile.heat_c += _FROM_C - USUAL_C
        profile.heat_c += shapes.linear(profile.since(grid.begin_seconds), _PER_HOUR_C / HOUR)
        profiles.append(profile)
    return _made(seed, "thermal-drift", profiles)


def slow_after_compilation(seed: int) -> Scenarios:
    """Kernels 40 per cent slow for the first three minutes, then 20 per cent slow from the third hour on."""
    grid = Grid(history=60, length=480)
    profiles = []
    for _ in range(_COUNT):
        profile = Profile("kernel", grid)
        profile.onset_seconds = _SLOW_SECONDS
        profile.kernel *= 1.0 + (_COMPILING_RATIO - 1.0) * shapes.opening(profile.seconds, _COMPILING_SECONDS)
        profile.kernel *= 1.0 + (_SLOW_RATIO - 1.0) * shapes.ramp(profile.since(_SLOW_SECONDS), 0.0)
        profiles.append(profile)
    return _made(seed, "ageing-kernel", profiles)


def score(seed: int) -> dict[str, Any]:
    """Share of series with an alert, and minutes from the reference moment to the first alert.

    The reference is the breach for the temperature, and the third hour for the kernel.
    """
    hot, slow = rising_temperature(seed), slow_after_compilation(seed)
    first_hot, first_slow = (_first(run(one).alerts, one.history) for one in (hot, slow))
    breach = np.where(hot.breach >= 0, hot.breach, np.nan)
    return {
        "rising temperature": _figures(first_hot - breach),
        "slow after compilation": _figures(first_slow - _SLOW_SECONDS / slow.interval_seconds),
    }


def _made(seed: int, name: str, profiles: list[Profile]) -> Scenarios:
    return observe(np.random.default_rng(seed), np.full(_COUNT, name), profiles, np.arange(_COUNT) % 2 == 0)


def _first(alerts: Bools, since: int) -> Floats:
    later = alerts[:, since:]
    found: Floats = np.where(later.any(axis=1), np.argmax(later, axis=1) + float(since), np.nan)
    return found


def _figures(minutes: Floats) -> dict[str, Any]:
    alarmed = np.isfinite(minutes)
    return {
        "series": len(minutes),
        "alarmed": int(alarmed.sum()),
        "minutes_after": {
            name: round(float(np.quantile(minutes[alarmed], q)), 1) if alarmed.any() else None
            for name, q in (("least", 0.0), ("median", 0.5), ("most", 1.0))
        },
    }
