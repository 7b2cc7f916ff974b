"""Faults of known shapes in given noise, with a limit that is set from the first half only."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from benchmarks.predictor.simulation.profile import HOUR, Grid
from benchmarks.predictor.simulation.scenario import NEVER, Scenarios, breaches, first_breach

from kernelcast.exporter.simulate import shapes
from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device

GRID: Final = Grid()
SHORTEST_HOURS: Final = 2.0
LONGEST_HOURS: Final = 12.0
HEADROOMS: Final = (1.25, 2.0, 3.0)
"""The limit is that far above the usual level, in distances of the highest mean of 5 minutes of the first half."""
LEAST_ABOVE: Final = 1.1
"""The limit is at least that multiple of the usual level."""
HEALTHY: Final = "healthy-kernel"
_TRIES: Final = 20
_PIECES: Final = 24

Grow = Callable[[Floats, Floats, float], Floats]
"""From noise, seconds since the onset over those to the limit, and the height of the limit: values with a fault."""


def _rise(noise: Floats, share: Floats, height: float) -> Floats:
    return noise + height * share


def _stairs(noise: Floats, share: Floats, height: float) -> Floats:
    return noise + height * np.floor(share * _PIECES) / _PIECES


def _slower(noise: Floats, share: Floats, height: float) -> Floats:
    return noise * (1 + height / max(float(np.median(noise)), 1e-12) * share)


SHAPES: Final[Mapping[str, Grow]] = MappingProxyType(
    {"thermal-drift": _rise, "memory-leak": _stairs, "ageing-kernel": _slower}
)
"""By the simulated class that has the same shape: a constant rise, one in pieces, and a growing factor."""


def limit_of(first_half: Floats, headroom: float) -> float:
    """Limit of a healthy series, from its first half alone; the series is positive."""
    usual = float(np.median(first_half))
    width = 5
    means = np.convolve(first_half, np.full(width, 1 / width), mode="valid")
    return max(usual + headroom * (float(means.max()) - usual), LEAST_ABOVE * usual)


def inject(rng: np.random.Generator, noises: list[Floats], headroom: float) -> tuple[Scenarios, Ints]:
    """Put each shape of fault into each series of noise, and keep each once without a fault.

    Args:
        rng: Draws onsets and durations.
        noises: Each of shape (t,), of the grid's length.
        headroom: One of `HEADROOMS`.

    Returns:
        The series, and the place of the noise of each.
    """
    values, limits, classes, onsets, places = [], [], [], [], []
    for place, noise in enumerate(noises):
        healthy = noise - min(float(noise.min()), 0.0)
        limit = limit_of(healthy[: GRID.history], headroom)
        rows = [(HEALTHY, healthy, NEVER)]
        rows += [(name, *found) for name in SHAPES if (found := _faulty(rng, healthy, limit, SHAPES[name]))]
        for name, series, onset in rows:
            values.append(series)
            limits.append(limit)
            classes.append(name)
            onsets.append(onset)
            places.append(place)
    return _scenarios(np.stack(values), np.array(limits), classes, onsets), np.array(places, dtype=np.int64)


def _faulty(rng: np.random.Generator, healthy: Floats, limit: float, grow: Grow) -> tuple[Floats, int] | None:
    """A fault that breaches 2 to 12 hours after its onset; None where the noise does not let one."""
    height = limit - float(np.median(healthy[: GRID.history]))
    bound = np.full((1, 1), limit)
    for _ in range(_TRIES):
        hours = float(rng.uniform(SHORTEST_HOURS, LONGEST_HOURS))
        onset_seconds = float(rng.uniform(GRID.begin_seconds, GRID.end_seconds - hours * HOUR))
        share = shapes.linear(GRID.seconds - onset_seconds, 1 / (hours * HOUR))
        series = grow(healthy, share, height)
        onset = int(np.searchsorted(GRID.seconds, onset_seconds))
        breach = int(first_breach(breaches(series[None], bound, GRID.interval_seconds), GRID.history)[0])
        took = (breach - onset) * GRID.interval_seconds / HOUR
        if breach != NEVER and SHORTEST_HOURS <= took <= LONGEST_HOURS:
            return series, onset
    return None


def _scenarios(values: Floats, limits: Floats, classes: list[str], onsets: list[int]) -> Scenarios:
    rows = len(values)
    limit = np.repeat(limits[:, None], values.shape[1], axis=1)
    return Scenarios(
        classes=np.array(classes),
        metrics=np.full(rows, kernel.DURATION.prometheus_name),
        interval_seconds=GRID.interval_seconds,
        history=GRID.history,
        values=values,
        limit=limit,
        limit_is_known=np.ones(rows, dtype=np.bool_),
        process=np.zeros(values.shape, dtype=np.int64),
        version=np.full(values.shape, -1, dtype=np.int64),
        companions={device.POWER_USAGE.prometheus_name: np.full(values.shape, np.nan)},
        onset=np.array(onsets, dtype=np.int64),
        breach=first_breach(breaches(values, limit, GRID.interval_seconds), GRID.history),
    )
