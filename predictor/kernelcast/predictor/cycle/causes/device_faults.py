"""Findings about GPUs that need no limit: the rules about causes, once per block and host, and at a new XID at once.

`Publication` runs it once a cycle.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.find import FoundCause, find
from kernelcast.predictor.causes.observed import Around
from kernelcast.predictor.cycle.causes.device_panels import DevicePanels, DeviceRows, Labels
from kernelcast.predictor.series.attributes import DEVICE_METRICS
from kernelcast.wire.catalogue.devices import device, gpu
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Scope

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
"""Causes that are findings by themselves; others explain a series that reaches its limit."""
_SUDDEN: Final = tuple(
    DEVICE_METRICS.index(row.prometheus_name)
    for row in (device.XID_ERRORS, gpu.XID_ERRORS, device.RECOVERY_ACTION, device.ROW_REMAP_FAILURE)
)
"""Metrics whose change is evaluated in the same cycle, without waiting for the end of the block."""


class DeviceFaults:
    """Findings of all GPUs, kept from one evaluation to the next. Only the thread that runs cycles uses it."""

    def __init__(self, panels: DevicePanels) -> None:
        self._panels = panels
        self._blocks: dict[int, int] = {}
        self._sudden_values: dict[tuple[int, int], float] = {}
        self._findings: dict[int, list[Finding]] = {}
        self._numbering = 0

    def run(self) -> tuple[DeviceRows, list[Finding]]:
        """Evaluate the hosts with a new block or a sudden change.

        Returns:
            The rows of all GPUs, and the findings that hold now.
        """
        known = self._panels.known()
        numbering = self._panels.source.attributes.numbering
        if numbering != self._numbering:
            self._numbering = numbering
            self._blocks.clear()
            self._findings.clear()
        block = known.newest // self._panels.source.histories.block_intervals - 1
        due = self._due(known, block)
        for number in np.unique(block[due]).tolist():
            self._evaluate(known, np.unique(known.device[due & (block == number)]))
        here = set(known.device.tolist())
        self._findings = {number: found for number, found in self._findings.items() if number in here}
        return known, [one for found in self._findings.values() for one in found]

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
        found: Bools = np.isin(known.host, list(due))
        return found

    def _evaluate(self, known: DeviceRows, devices: Ints) -> None:
        rows = self._panels.features(known, devices, Around())
        for number, found, labels, end_ns in zip(devices.tolist(), find(rows), rows.labels, rows.end_ns, strict=True):
            # Without labels, the GPU's series have ended since `known` was read.
            causes = found.causes if labels else ()
            self._findings[number] = [observed_finding(one, labels, end_ns) for one in causes if one.cause in OBSERVED]


def observed_finding(found: FoundCause, labels: Labels, end_ns: int, metric: str = "") -> Finding:
    """A candidate finding of a cause that needs no limit.

    Args:
        found: The cause.
        labels: Labels of the GPU or of the kernel.
        end_ns: Time of the newest value, Unix nanoseconds.
        metric: Series that shows it; that of the first fact where it is empty.
    """
    fact = found.evidence[0]
    return Finding(
        finding_id="",
        cause=found.cause,
        state=FindingState.OBSERVED,
        severity=found.severity,
        scope=Scope.SERIES,
        labels=labels,
        metric=metric or fact.metric,
        value=fact.value,
        limit=fact.reference,
        began_ns=fact.begin_ns,
        updated_ns=end_ns,
        evidence=found.evidence,
    )


def one_of_each_series(findings: Iterable[Finding]) -> list[Finding]:
    """The first finding of each metric and labels; a deploy that made a kernel slower is a finding beside it."""
    kept: dict[tuple[str, Labels, bool], Finding] = {}
    for one in findings:
        kept.setdefault((one.metric, one.labels, one.cause is Cause.DEPLOY), one)
    return list(kept.values())
