"""Chooses configurations to begin with, from measurements on other devices; a campaign passes them to its search.

The best configuration of one device can be slow on another; the geometric mean over several devices is a better
guess. A wrong guess costs little: at most five are tried, and the rest is dropped when they do not help.
"""

from collections.abc import Mapping, Sequence
from math import exp, fsum, log
from typing import Final

from kernelcast.tuning.space import Space, Value
from kernelcast.wire.errors import SpaceError

MAX_SEEDS: Final = 5

Measurements = Mapping[tuple[Value, ...], float | None]
"""Times by configuration, values in the order of the space's parameters; None for a failing one."""


def seeds(space: Space, devices: Sequence[Measurements], *, count: int = MAX_SEEDS) -> list[int]:
    """Return the configurations with the least geometric mean of their times, each relative to its device's best.

    A configuration that failed on any device is left out. Where devices have measured different configurations, those
    that more devices know come first.

    Args:
        space: The space to search.
        devices: Measurements of other devices, one mapping each.
        count: Most configurations.
    """
    ratios: dict[int, list[float]] = {}
    failing: set[int] = set()
    for device in devices:
        best = min((time for time in device.values() if time is not None), default=None)
        if best is None:
            continue
        for configuration, time in device.items():
            try:
                ordinal = space.ordinal(configuration)
            except SpaceError:
                continue
            if time is None:
                failing.add(ordinal)
            else:
                ratios.setdefault(ordinal, []).append(log(time / best))
    known = max(map(len, ratios.values()), default=0)
    pooled = {
        ordinal: exp(fsum(logs) / len(logs))
        for ordinal, logs in ratios.items()
        if ordinal not in failing and len(logs) == known
    }
    return sorted(pooled, key=lambda ordinal: (pooled[ordinal], ordinal))[:count]
