"""Cumulative totals of a recording's kernels, advanced by slices of its columns, without a loop over events.

`TraceSource.poll` calls `advance`, then `changes` for each GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernelcast.exporter.replay.durations import bucket_indices, durations_of
from kernelcast.exporter.replay.trace import IntArray, Trace
from kernelcast.exporter.totals.increments import LaunchTotals
from kernelcast.wire.frames import KernelName, KernelRow, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import kernel_id, normalise

Variant = tuple[int, str]
DeviceChanges = tuple[tuple[KernelName, ...], tuple[KernelRow, ...], dict[Variant, VariantRow]]
"""New names, changed rows and changed variants of one GPU."""


@dataclass(slots=True)
class ReplayedDevice:
    """One GPU's kernels so far; the two sets name what changed since they were last reported."""

    kernels: dict[int, LaunchTotals]
    variants: dict[Variant, DurationTotals]
    names: list[KernelName]
    changed_kernels: set[int]
    changed_variants: set[Variant]


@dataclass(frozen=True, slots=True)
class _Slot:
    """The key of a launch: a kernel in one configuration and region on one GPU."""

    device: int
    kernel: int
    signature: str
    configuration: int
    region: int


class KernelTally:
    """Totals per GPU, kernel and configuration; raw names with one normalised identity add up."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._slots, self._slot = _assign(trace)
        duration_ns = trace.launches.spans.duration_ns
        self._duration_ns = duration_ns
        self._bucket = bucket_indices(duration_ns)
        self._counted = 0
        self.devices = [ReplayedDevice({}, {}, [], set(), set()) for _ in trace.devices]

    @property
    def launches(self) -> int:
        """Launches counted so far."""
        return self._counted

    def advance(self, until: int) -> None:
        """Count all launches before position `until` that are not counted yet."""
        begin, self._counted = self._counted, until
        if until <= begin:
            return
        order = np.argsort(self._slot[begin:until], kind="stable")
        slot = self._slot[begin:until][order]
        edges = np.flatnonzero(np.diff(slot, prepend=-1))
        for first, last in _pairs(edges, len(slot)):
            self._count(self._slots[int(slot[first])], self._launched(begin + order[first:last]))

    def _launched(self, chosen: IntArray) -> LaunchTotals:
        """Sums over some launches, by their positions."""
        columns = self._trace.launches
        delays_ns = columns.queue_delay_ns[chosen]
        known = delays_ns >= 0
        return LaunchTotals(
            len(chosen),
            durations_of(self._duration_ns[chosen], self._bucket[chosen]),
            int(known.sum()),
            int(delays_ns[known].sum()),
            int(columns.graph[chosen].sum()),
        )

    def changes(self, device: int) -> DeviceChanges:
        """Changes on a GPU since the last call: new names, rows, variants."""
        totals = self.devices[device]
        names, totals.names = tuple(totals.names), []
        rows = tuple(_row(kernel, totals.kernels[kernel]) for kernel in sorted(totals.changed_kernels))
        variants = {key: VariantRow.of(*key, totals.variants[key]) for key in sorted(totals.changed_variants)}
        totals.changed_kernels, totals.changed_variants = set(), set()
        return names, rows, variants

    def all_totals(self, device: int) -> DeviceChanges:
        """Return all totals of a GPU, and the names that `changes` has not returned yet."""
        totals = self.devices[device]
        totals.changed_kernels = set(totals.kernels)
        totals.changed_variants = set(totals.variants)
        return self.changes(device)

    def _count(self, slot: _Slot, delta: LaunchTotals) -> None:
        totals = self.devices[slot.device]
        configuration = self._trace.configurations[slot.configuration]
        if slot.kernel not in totals.kernels:
            totals.kernels[slot.kernel] = LaunchTotals()
            totals.names.append(
                KernelName(
                    kernel=slot.kernel,
                    signature=slot.signature,
                    grid=configuration.grid,
                    block=configuration.block,
                    registers=configuration.registers,
                    shared_memory_bytes=configuration.shared_memory_bytes,
                    local_memory_bytes=configuration.local_memory_bytes,
                    occupancy=configuration.occupancy,
                )
            )
        totals.kernels[slot.kernel].add(delta)
        totals.changed_kernels.add(slot.kernel)
        variant = configuration.variant_in(self._trace.regions[slot.region] if slot.region >= 0 else "")
        if variant:
            key = (slot.kernel, variant)
            totals.variants.setdefault(key, DurationTotals()).add(delta.durations)
            totals.changed_variants.add(key)


def _row(kernel: int, totals: LaunchTotals) -> KernelRow:
    queue = (totals.queue_delays, totals.queue_delay_ns, totals.graph_launches)
    return KernelRow(kernel, totals.launches, totals.durations.copy(), *queue)


def _assign(trace: Trace) -> tuple[list[_Slot], IntArray]:
    """Number the combinations of device, name and configuration that occur; shape (n,) says which each launch is."""
    launches = trace.launches
    signatures = [normalise(name) for name in trace.names]
    identities = [kernel_id(signature) for signature in signatures]
    columns = np.stack([launches.spans.device, launches.name, launches.configuration, launches.region])
    combinations, slot = np.unique(columns, axis=1, return_inverse=True)
    slots = [
        _Slot(device, identities[name], signatures[name], configuration, region)
        for device, name, configuration, region in combinations.T.tolist()
    ]
    return slots, slot.reshape(-1)


def _pairs(edges: IntArray, length: int) -> Iterator[tuple[int, int]]:
    return pairwise([*edges.tolist(), length])
