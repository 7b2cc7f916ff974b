"""Launch noise from recordings of Kernel Tuner: the repetitions of each configuration, relative to their median."""

import gzip
import json
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

SHORTEST: Final = 10
"""Repetitions that a configuration must have."""
SUFFIX: Final = ".json.gz"


class Recording:
    """The launch noise of one recorded space.

    Args:
        path: A cache file.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name.removesuffix(SUFFIX)
        with gzip.open(path) as file:
            cache = json.load(file)["cache"]
        self.noises = [_relative(entry["times"]) for entry in cache.values() if _usable(entry)]

    def draw(self, random: Random) -> list[float]:
        """Return the noise of one configuration: its first launch, then the others."""
        return random.choice(self.noises)


def recordings(folder: Path) -> list[Recording]:
    """Read all recordings of a folder."""
    return [Recording(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def _usable(entry: dict[str, object]) -> bool:
    times = entry.get("times")
    return not isinstance(entry.get("time"), str) and isinstance(times, list) and len(times) >= SHORTEST


def _relative(times: list[float]) -> list[float]:
    middle = median(times[1:])
    return [time / middle for time in times]
