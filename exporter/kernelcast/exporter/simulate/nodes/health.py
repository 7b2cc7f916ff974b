"""Counters of simulated GPUs besides power and memory: errors, links, time lost to limits, traffic, XIDs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.exporter.nvml.sampling.reading import XidTotal
from kernelcast.exporter.simulate import physics
from kernelcast.exporter.simulate.effects import Influence
from kernelcast.exporter.simulate.faults import SimulatedFault
from kernelcast.exporter.simulate.fleet_settings import SimulationSettings
from kernelcast.exporter.simulate.kinds import hardware as faults
from kernelcast.exporter.simulate.physics import NVLINKS, Gpus
from kernelcast.exporter.simulate.program import FloatArray
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

_THERMAL: Final = physics.SW_THERMAL_SLOWDOWN | physics.HW_THERMAL_SLOWDOWN
_POWER: Final = physics.SW_POWER_CAP | physics.HW_POWER_BRAKE
_UNCORRECTED: Final = frozenset({faults.ECC_UNCORRECTED, faults.XID_94})
_RECOVERIES_PER_LINK: Final = 3


@dataclass(frozen=True, slots=True)
class XidRecord:
    """One XID: its GPU by number in the fleet, its number, and when the driver reported it, Unix nanoseconds."""

    gpu: int
    xid: int
    time_ns: int


@dataclass(slots=True, eq=False)
class GpuTraffic:
    """Bytes that a GPU moved in one step, shape (gpus,): copied to it, copied from it, and sent over NVLink."""

    to_device: FloatArray
    from_device: FloatArray
    nvlink: FloatArray


class DeviceHealth:
    """Errors, links and traffic of all GPUs; arrays of shape (gpus,).

    Attributes:
        pcie_replays: Packets sent again; fractions are kept.
        power_lost_ns: Time at clocks that power had lowered.
        thermal_lost_ns: The same of temperature.
        double_bit: Uncorrectable memory errors that came as single events; each remapped a row.
        link_bytes: Shape (gpus, NVLINKS), bytes sent over each NVLink; as many were received.
        link_recoveries: Shape (gpus, NVLINKS), recoveries of each NVLink.
        links_up: Shape (gpus, NVLINKS), whether each is up; the last ones of a GPU fail first.
        recovery: Recovery action that the driver recommends.
        lost: Whether the GPU fell off the bus.
        hung: Whether NVML hangs on its node.
        ahead_seconds: How far its node's clock is ahead.
        rates: Traffic per second in the last step.
        xids: Every XID so far, in order.
        xids_of: The same by GPU.
    """

    def __init__(self, count: int) -> None:
        self.pcie_replays = np.zeros(count)
        self.power_lost_ns = np.zeros(count)
        self.thermal_lost_ns = np.zeros(count)
        self.double_bit = np.zeros(count)
        self.link_bytes = np.zeros((count, NVLINKS))
        self.link_recoveries = np.zeros((count, NVLINKS))
        self.links_up = np.ones((count, NVLINKS), dtype=np.bool_)
        self.recovery = np.zeros(count)
        self.lost = np.zeros(count, dtype=np.bool_)
        self.hung = np.zeros(count, dtype=np.bool_)
        self.ahead_seconds = np.zeros(count)
        self.rates = GpuTraffic(np.zeros(count), np.zeros(count), np.zeros(count))
        self.xids: list[XidRecord] = []
        self.xids_of: dict[int, list[XidRecord]] = {}

    def advance(self, influence: Influence, gpus: Gpus, traffic: GpuTraffic, seconds: float) -> None:
        """Count one step.

        Args:
            influence: The faults and backgrounds that act now.
            gpus: State of the GPUs at the end of the step.
            traffic: Bytes of the step.
            seconds: Length of the step.
        """
        lost_ns = seconds * NANOSECONDS_PER_SECOND
        self.pcie_replays += influence.pcie_replays * seconds
        self.power_lost_ns += np.where(gpus.reasons & _POWER, lost_ns, 0.0)
        self.thermal_lost_ns += np.where(gpus.reasons & _THERMAL, lost_ns, 0.0)
        up = np.arange(NVLINKS) < (NVLINKS - influence.links_down)[:, None]
        self.link_recoveries += _RECOVERIES_PER_LINK * (self.links_up & ~up)
        self.link_bytes += traffic.nvlink[:, None] * up / np.maximum(up.sum(axis=1, keepdims=True), 1)
        self.links_up = up
        self.rates = GpuTraffic(traffic.to_device / seconds, traffic.from_device / seconds, traffic.nvlink / seconds)
        self.recovery = influence.recovery
        self.lost, self.hung, self.ahead_seconds = influence.lost, influence.hung, influence.ahead_seconds

    def begin(self, fault: SimulatedFault, gpu: int, time_ns: int) -> None:
        """A fault begins on a GPU: its XIDs, and an error that is a single event."""
        codes = (round(fault["code"]),) if fault.kind == faults.XID else faults.XIDS.get(fault.kind, ())
        records = [XidRecord(gpu, code, time_ns) for code in codes]
        self.xids += records
        self.xids_of.setdefault(gpu, []).extend(records)
        if fault.kind in _UNCORRECTED:
            self.double_bit[gpu] += 1

    def last_xid(self, gpu: int) -> int:
        """The last XID of a GPU; 0 before the first."""
        own = self.xids_of.get(gpu)
        return own[-1].xid if own else 0


@dataclass(slots=True)
class XidTotals:
    """Counts of each GPU's XIDs; a new number is first reported as 0, as `nvml.isolation.xid_memory` does."""

    announced: set[tuple[int, int]] = field(default_factory=set)

    def of(self, gpu: int, own: list[XidRecord]) -> tuple[XidTotal, ...]:
        """Counts of one GPU, from its own records."""
        return tuple(self._totals(gpu, own))

    def _totals(self, gpu: int, own: list[XidRecord]) -> Iterator[XidTotal]:
        for xid in dict.fromkeys(one.xid for one in own):
            times = [one.time_ns for one in own if one.xid == xid]
            known = (gpu, xid) in self.announced
            self.announced.add((gpu, xid))
            yield XidTotal(xid, len(times) if known else 0, times[-1])


def starting(settings: SimulationSettings, since: float, until: float) -> Iterator[tuple[SimulatedFault, int]]:
    """Faults that begin within a step, with each GPU that they concern."""
    for fault in settings.faults:
        if since < fault.start_seconds <= until or (since == 0 == fault.start_seconds):
            yield from ((fault, int(gpu)) for gpu in np.flatnonzero(settings.where(fault)))
