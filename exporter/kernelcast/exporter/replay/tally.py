"""Cumulative totals of a recording's kernels, copies and waits, advanced slice by slice without a loop over events."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import mul

import numpy as np

from kernelcast.exporter.replay.trace import IntArray, Launches, Trace
from kernelcast.wire.frames import KernelName, KernelRow
from kernelcast.wire.histogram import DurationTotals, bucket_index
from kernelcast.wire.kernels import kernel_id, normalise

Variant = tuple[int, str]


@dataclass(slots=True)
class DeviceTotals:
    """One GPU's kernels so far; the two sets name what changed since they were last reported."""

    kernels: dict[int, DurationTotals]
    variants: dict[Variant, DurationTotals]
    names: list[KernelName]
    changed_kernels: set[int]
    changed_variants: set[Variant]


@dataclass(frozen=True, slots=True)
class _Slot:
    """What one launch counts towards: a kernel in one configuration on one GPU."""

    device: int
    kernel: int
    signature: str
    configuration: int


class KernelTally:
    """Totals per GPU, kernel and configuration; raw names with one normalised identity add up."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._slots, self._slot = _assign(trace)
        duration_ns = trace.launches.spans.duration_ns
        self._duration_ns = duration_ns
        self._bucket = _buckets(duration_ns)
        self._counted = 0
        self.devices = [DeviceTotals({}, {}, [], set(), set()) for _ in trace.devices]

    @property
    def launches(self) -> int:
        """Launches counted so far."""
        return self._counted

    def advance(self, until: int) -> None:
        """Count all launches before position `until` that are not counted yet."""
        begin, self._counted = self._counted, until
        if until <= begin:
            return
        slot = self._slot[begin:until]
        order = np.argsort(slot, kind="stable")
        slot = slot[order]
        edges = np.flatnonzero(np.diff(slot, prepend=-1))
        durations = self._duration_ns[begin:until][order]
        buckets = self._bucket[begin:until][order]
        for first, last in _pairs(edges, len(slot)):
            delta = _totals(durations[first:last], buckets[first:last])
            self._count(self._slots[int(slot[first])], delta)

    def take(self, device: int) -> tuple[tuple[KernelName, ...], tuple[KernelRow, ...], dict[Variant, KernelRow]]:
        """What changed on a GPU since the last call: new names, rows, variants."""
        totals = self.devices[device]
        names, totals.names = tuple(totals.names), []
        rows = tuple(_row(kernel, totals.kernels[kernel]) for kernel in sorted(totals.changed_kernels))
        variants = {key: _row(key[0], totals.variants[key]) for key in sorted(totals.changed_variants)}
        totals.changed_kernels, totals.changed_variants = set(), set()
        return names, rows, variants

    def everything(self, device: int) -> tuple[tuple[KernelName, ...], tuple[KernelRow, ...], dict[Variant, KernelRow]]:
        """All totals of a GPU once more, and names not yet taken."""
        totals = self.devices[device]
        totals.changed_kernels = set(totals.kernels)
        totals.changed_variants = set(totals.variants)
        return self.take(device)

    def _count(self, slot: _Slot, delta: DurationTotals) -> None:
        totals = self.devices[slot.device]
        configuration = self._trace.configurations[slot.configuration]
        if slot.kernel not in totals.kernels:
            totals.kernels[slot.kernel] = DurationTotals()
            totals.names.append(
                KernelName(
                    kernel=slot.kernel,
                    signature=slot.signature,
                    grid=configuration.grid,
                    block=configuration.block,
                    registers=configuration.registers,
                    shared_memory_bytes=configuration.shared_memory_bytes,
                )
            )
        totals.kernels[slot.kernel].add(delta)
        totals.changed_kernels.add(slot.kernel)
        if configuration.variant:
            key = (slot.kernel, configuration.variant)
            totals.variants.setdefault(key, DurationTotals()).add(delta)
            totals.changed_variants.add(key)


def _row(kernel: int, totals: DurationTotals) -> KernelRow:
    return KernelRow(kernel, totals.count, totals.copy())


def _assign(trace: Trace) -> tuple[list[_Slot], IntArray]:
    """Number the combinations of device, name and configuration that occur; shape (n,) says which each launch is."""
    launches: Launches = trace.launches
    signatures = [normalise(name) for name in trace.names]
    identities = [kernel_id(signature) for signature in signatures]
    columns = np.stack([launches.spans.device, launches.name, launches.configuration])
    combinations, slot = np.unique(columns, axis=1, return_inverse=True)
    slots = [
        _Slot(device, identities[name], signatures[name], configuration)
        for device, name, configuration in combinations.T.tolist()
    ]
    return slots, slot.reshape(-1)


def _buckets(duration_ns: IntArray) -> IntArray:
    """The scale-3 bucket of each duration, shape (n,); undefined for 0."""
    values, inverse = np.unique(duration_ns, return_inverse=True)
    buckets = np.array([bucket_index(value) if value > 0 else 0 for value in values.tolist()], dtype=np.int64)
    return buckets[inverse.reshape(-1)] if len(values) else buckets


def _totals(duration_ns: IntArray, bucket: IntArray) -> DurationTotals:
    """Count, exact sum and exact sum of squares (which outgrows 64 bits), and buckets, of some durations."""
    values = duration_ns.tolist()
    positive = duration_ns > 0
    indices, counts = np.unique(bucket[positive], return_counts=True)
    return DurationTotals(
        count=len(values),
        sum_ns=sum(values),
        sum_squares_ns2=sum(map(mul, values, values)),
        zero_count=len(values) - int(positive.sum()),
        buckets=dict(zip(indices.tolist(), counts.tolist(), strict=True)),
    )


def _pairs(edges: IntArray, length: int) -> Iterator[tuple[int, int]]:
    return pairwise([*edges.tolist(), length])
