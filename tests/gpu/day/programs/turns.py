"""Compares the speed of a program in several ways by turns within one process, in random order."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.gpu.day.programs.kernels import median
from tests.gpu.day.programs.records import Switch

OFF = "off"


def by_turns(
    ways: Mapping[str, Switch | None], section: Callable[[Callable[[], None]], float], seconds: float
) -> dict[str, list[float]]:
    """Run a section in each way again and again.

    Args:
        ways: Records by name, switched on around the section; none for `off`.
        section: Runs the work and returns the time of one unit of it; calls its argument once a second.
        seconds: Time for all turns; at least two rounds are made.

    Returns:
        Times by way, one for each round.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    order = random.Random(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times[OFF]) < 2:
        for name in order.sample(list(ways), len(ways)):
            switch = ways[name]
            if switch is not None:
                switch.start()
            times[name].append(section(switch.tick if switch is not None else _nothing))
            if switch is not None:
                switch.stop()
    return times


def summary(times: Mapping[str, list[float]]) -> dict[str, Any]:
    """Return medians and the cost ratios of rounds, each way's time divided by that of `off` in the same round."""
    ratios = {name: sorted(own / off for own, off in zip(own, times[OFF], strict=True)) for name, own in times.items()}
    return {
        "rounds": len(times[OFF]),
        "median": {name: median(values) for name, values in times.items()},
        "cost_ratio": {name: round(median(values), 4) for name, values in ratios.items()},
        "cost_ratios": {name: [round(value, 3) for value in values] for name, values in ratios.items()},
    }


def _nothing() -> None:
    """Tick nothing."""


class Ticker:
    """Calls a function once a second when asked often."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._due = time.monotonic() + 1.0

    def __call__(self) -> None:
        """Call the function if a second has passed."""
        if time.monotonic() >= self._due:
            self._tick()
            self._due = time.monotonic() + 1.0
