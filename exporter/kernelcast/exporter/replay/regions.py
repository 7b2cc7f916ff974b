"""Cumulative totals of a recording's regions: launches within them, their GPU time, and wall time.

`TraceSource.poll` calls `advance` with positions in the trace's columns, and puts `rows` into its counters.
"""

import re
from typing import Final

import numpy as np

from kernelcast.exporter.replay.trace import IntArray, Trace
from kernelcast.wire.kernels import OTHER

MAX_REGIONS: Final = 32
"""The probe's limit of regions; those with the most wall time come first."""
MAX_NAME_CHARACTERS: Final = 64
"""The probe's limit of a region's name."""
_NUMBER: Final = re.compile(r"#\d+\b")

RegionRow = tuple[str, int, int, int]
"""Name, launches, GPU time and wall time, both in nanoseconds."""


class Regions:
    """Totals of all regions, exact. Wall time is the program's, so only the recording's first GPU has it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.names, self._row = _rows(trace)
        self._launched = np.zeros((len(trace.devices), len(self.names), 2), dtype=np.int64)  # launches, ns
        self._wall_ns = np.zeros(len(self.names), dtype=np.int64)
        self._launches_counted = 0
        self._ranges_counted = 0

    def advance(self, launches: int, ranges: int) -> None:
        """Count all launches and ranges before these positions that are not counted yet."""
        first, self._launches_counted = self._launches_counted, max(launches, self._launches_counted)
        chosen = slice(first, self._launches_counted)
        columns = self._trace.launches
        region = columns.region[chosen]
        within = region >= 0
        duration_ns = columns.spans.duration_ns[chosen][within]
        amounts = np.stack([np.ones_like(duration_ns), duration_ns], axis=1)
        np.add.at(self._launched, (columns.spans.device[chosen][within], self._row[region[within]]), amounts)

        first, self._ranges_counted = self._ranges_counted, max(ranges, self._ranges_counted)
        chosen = slice(first, self._ranges_counted)
        known = self._trace.ranges
        np.add.at(self._wall_ns, self._row[known.name[chosen]], known.duration_ns[chosen])

    def rows(self, device: int) -> tuple[RegionRow, ...]:
        """Return the rows of `Counters.regions` for one GPU; a region that has not begun has zeros."""
        wall_ns = self._wall_ns.tolist() if device == 0 else [0] * len(self.names)
        launched = self._launched[device].tolist()
        return tuple(
            (name, launches, gpu_ns, wall)
            for name, (launches, gpu_ns), wall in zip(self.names, launched, wall_ns, strict=True)
        )


def plain_name(name: str) -> str:
    """Return a region's name as a label, without a step's number: `ProfilerStep#1009` becomes `ProfilerStep`."""
    return _NUMBER.sub("", name).strip()[:MAX_NAME_CHARACTERS].strip() or OTHER


def _rows(trace: Trace) -> tuple[tuple[str, ...], IntArray]:
    """Names of the rows, and for each of the trace's regions the row it counts towards."""
    wall_ns = np.bincount(trace.ranges.name, trace.ranges.duration_ns, minlength=len(trace.regions)).tolist()
    order = sorted(range(len(trace.regions)), key=lambda region: (-wall_ns[region], trace.regions[region]))
    names = [trace.regions[region] for region in order if trace.regions[region] != OTHER][:MAX_REGIONS]
    if len(names) < len(trace.regions):
        names.append(OTHER)
    number = {name: row for row, name in enumerate(names)}
    return tuple(names), np.array([number.get(name, len(names) - 1) for name in trace.regions], dtype=np.int64)
