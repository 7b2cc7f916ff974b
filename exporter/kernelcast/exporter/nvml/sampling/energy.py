"""Judges readings of a GPU's energy counter: one that the GPU cannot have reached since the last is left out."""

from dataclasses import dataclass
from typing import Final

from kernelcast.exporter.nvml.sampling.fields import MAX_WATTS
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

LIMIT_FACTOR: Final = 2
"""A board exceeds its power limit for moments, and the limit may have been lowered since the last reading."""
SLACK_SECONDS: Final = 1.0
"""Added to the time between two readings: the driver updates the counter at moments of its own."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading: millijoules, and its running time in nanoseconds."""

    energy_mj: float
    time_ns: int


class EnergyJudge:
    """Judges the energy readings of all GPUs, one after the other.

    A counter that is reset (the driver was loaded again) falls for good, a wrong reading only once. So a reading out of
    range is left out, and the next one counts if it follows from the last good reading or from the one left out.
    `Sampler` has one.
    """

    def __init__(self) -> None:
        self._good: dict[str, _Reading] = {}
        self._left_out: dict[str, _Reading] = {}

    def accepts(self, uuid: str, energy_mj: float, limit_watts: float | None, time_ns: int) -> bool:
        """Return whether a GPU can have this reading now."""
        now, good, left_out = _Reading(energy_mj, time_ns), self._good.get(uuid), self._left_out.pop(uuid, None)
        if good is None or _follows(now, good, limit_watts) or (left_out and _follows(now, left_out, limit_watts)):
            self._good[uuid] = now
            return True
        self._left_out[uuid] = now
        return False

    def forget(self, uuid: str) -> None:
        """Accept any next reading of a GPU: it was gone, and its counter may have restarted."""
        self._good.pop(uuid, None)
        self._left_out.pop(uuid, None)


def _follows(now: _Reading, before: _Reading, limit_watts: float | None) -> bool:
    """Return whether the limit allows the difference."""
    seconds = (now.time_ns - before.time_ns) / NANOSECONDS_PER_SECOND
    most_mj = LIMIT_FACTOR * (limit_watts or MAX_WATTS) * (seconds + SLACK_SECONDS) * 1000
    return 0 <= now.energy_mj - before.energy_mj <= most_mj
