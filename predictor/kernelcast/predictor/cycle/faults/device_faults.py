"""Faults of GPUs that need no limit: the rules about causes, once per block and host, and at a new XID at once.

`Publication` runs it once a cycle.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.find import find
from kernelcast.predictor.causes.observed import Around
from kernelcast.predictor.cycle.candidate_findings import observed_candidate
from kernelcast.predictor.cycle.device_panels import DevicePanels, DeviceRows
from kernelcast.predictor.series.attributes import DEVICE_METRICS
from kernelcast.wire.catalogue.devices import device, gpu
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding

OBSERVED: Final = frozenset(
    {
        Cause.POWER_BRAKE,
        Cause.HARDWARE_SLOWDOWN,
        Cause.MEMORY_ERRORS,
        Cause.ROW_REMAPPING,
        Cause.XID,
        Cause.PCIE_ERRORS,
        Cause.PCIE_LINK,
        Cause.NVLINK,
        Cause.TELEMETRY_LOST,
    }
)
"""Causes that are faults by themselves; others explain a series that reaches its limit."""
_SUDDEN: Final = tuple(
    DEVICE_METRICS.index(row.prometheus_name)
    for row in (device.XID_ERRORS, gpu.XID_ERRORS, device.RECOVERY_ACTION, device.ROW_REMAP_FAILURE)
)
"""Metrics whose change is evaluated in the same cycle, without waiting for the end of the block."""


class DeviceFaults:
    """Faults of all GPUs, kept from one evaluation to the next. Only the thread that runs cycles uses it."""

    def __init__(self, panels: DevicePanels) -> None:
        self._panels = panels
        self._blocks: dict[int, int] = {}
        self._sudden_values: dict[tuple[int, int], float] = {}
        self._candidates: dict[int, list[Finding]] = {}
        self._numbering = 0

    def run(self) -> tuple[DeviceRows, list[Finding]]:
        """Evaluate the hosts with a new block or a sudden change.

        Returns:
            The rows of all GPUs, and the candidates that hold now.
        """
        known = self._panels.known()
        numbering = self._panels.source.attributes.numbering
        if numbering != self._numbering:
            self._numbering = numbering
            self._blocks.clear()
            self._candidates.clear()
        block = known.newest // self._panels.source.histories.block_intervals - 1
        due = self._due(known, block)
        for number in np.unique(block[due]).tolist():
            self._evaluate(known, np.unique(known.device[due & (block == number)]))
        here = set(known.device.tolist())
        self._candidates = {number: of_gpu for number, of_gpu in self._candidates.items() if number in here}
        return known, [candidate for of_gpu in self._candidates.values() for candidate in of_gpu]

    def _due(self, known: DeviceRows, block: Ints) -> Bools:
        """Rows of hosts that are evaluated now, shape (m,)."""
        hosts, first = np.unique(known.host, return_index=True)
        newest = dict(zip(hosts.tolist(), block[first].tolist(), strict=True))
        due = {host for host, number in newest.items() if self._blocks.get(host) != number}
        self._blocks = newest
        sudden = np.flatnonzero(np.isin(known.metric, _SUDDEN))
        windows = self._panels.source.windows
        with self._panels.source.lock:
            latest: Floats = np.nan_to_num(windows.latest(known.rows[sudden])) if len(sudden) else np.zeros(0)
            generation = windows.generation[known.rows[sudden]]
        keys = zip(known.rows[sudden].tolist(), generation.tolist(), strict=True)
        values = dict(zip(keys, latest.tolist(), strict=True))
        host = dict(zip(values, known.host[sudden].tolist(), strict=True))
        due |= {host[key] for key, value in values.items() if value != self._sudden_values.get(key, 0.0)}
        self._sudden_values = values
        is_due: Bools = np.isin(known.host, list(due))
        return is_due

    def _evaluate(self, known: DeviceRows, devices: Ints) -> None:
        rows = self._panels.features(known, devices, Around())
        facts = zip(devices.tolist(), find(rows), rows.labels, rows.end_ns, strict=True)
        for number, row_causes, labels, end_ns in facts:
            # Without labels, the GPU's series have ended since `known` was read.
            causes = [cause for cause in row_causes.causes if labels and cause.cause in OBSERVED]
            self._candidates[number] = [observed_candidate(cause, labels, end_ns) for cause in causes]
