"""Adds the decoder's totals of one interval to the recorder's cumulative ones; `ActivityMethod` calls it."""

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from kernelcast.probe.cupti.native import (
    NO_NAME,
    NO_NAME_COLLECTIVE,
    STATES,
    DeviceActivity,
    Drain,
    Kernel,
    Variant,
)
from kernelcast.probe.cupti.occupancy import theoretical
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.wire.frames import MEMSET, KernelName
from kernelcast.wire.kernels import OTHER, OTHER_COLLECTIVES
from kernelcast.wire.kernels import variant as variant_text

# By CUpti_ActivityMemcpyKind; arrays (`a`) are device memory.
COPY_KINDS: Final = ("unknown", "h2d", "d2h", "h2d", "d2h", "d2d", "d2d", "d2d", "d2d", "h2h", "p2p")
# By CUpti_ActivityMemoryKind of the host's side: unknown, pageable, pinned.
PINNED: Final = ("", "false", "true")
# By CUpti_ActivitySynchronizationType.
SYNC_TYPES: Final = ("unknown", "event", "stream_wait", "stream", "context")
MAX_CONFIGURATIONS: Final = 8192

Capability = Callable[[int], tuple[int, int]]
_UNNAMED: Final = {NO_NAME: OTHER, NO_NAME_COLLECTIVE: OTHER_COLLECTIVES}
_launches = attrgetter("launches")


class Absorber:
    """Converts drains to calls of a recorder, on the probe's thread.

    Args:
        recorder: Receives the sums.
        demangle: Converts mangled names to readable ones.
        capability: Returns the compute capability of a device; (0, 0) if it is not known.
    """

    def __init__(self, recorder: Recorder, demangle: Callable[[str], str], capability: Capability) -> None:
        self._recorder = recorder
        self._demangle = demangle
        self._capability = capability
        self._signatures: dict[int, str] = dict(_UNNAMED)
        self._configured: dict[tuple[int, tuple[object, ...]], tuple[str, KernelName]] = {}

    def absorb(self, drain: Drain, dropped: int) -> None:
        """Add one interval.

        Args:
            drain: Its totals.
            dropped: Records that CUPTI itself has dropped in it.
        """
        for number, name in drain.names.items():
            if number not in _UNNAMED:
                self._signatures[number] = self._demangle(name)
        for kernel in drain.kernels:
            self._kernel(kernel)
        for device in drain.devices:
            self._device(device)
        self._recorder.charge(drain.counts.held_ns)
        self._recorder.decode(drain.counts.decode_ns)
        lost = dropped + drain.counts.malformed + drain.counts.unread
        if lost:
            self._recorder.lost_records(lost)
        if drain.counts.untimed:
            self._recorder.untimed_records(drain.counts.untimed)

    def _kernel(self, kernel: Kernel) -> None:
        signature = self._signatures.get(kernel.name, OTHER)
        variants = kernel.variants
        most = max(variants, key=_launches, default=None)
        self._recorder.absorb(
            signature,
            kernel.device,
            launches=kernel.launches,
            durations=kernel.durations,
            queue_delays=kernel.queue_delays,
            queue_delay_ns=kernel.queue_delay_ns,
            graph_launches=kernel.graph_launches,
            name=self._configuration(kernel.device, most)[1] if most else None,
        )
        if variants:
            rows = [(self._configuration(kernel.device, one)[0], *one[7:]) for one in variants]
            self._recorder.absorb_variants(signature, kernel.device, rows)

    def _configuration(self, device: int, variant: Variant) -> tuple[str, KernelName]:
        """Name of a variant, and its launch configuration."""
        key = (device, variant[:6])
        known = self._configured.get(key)
        if known is None:
            if len(self._configured) >= MAX_CONFIGURATIONS:
                self._configured.clear()
            known = self._configured[key] = self._described(device, variant)
        return known

    def _described(self, device: int, variant: Variant) -> tuple[str, KernelName]:
        grid, block = ("x".join(map(str, part)) for part in (variant.grid, variant.block))
        shared_bytes = variant.static_shared_bytes + variant.dynamic_shared_bytes
        threads = variant.block[0] * variant.block[1] * variant.block[2]
        occupancy = theoretical(self._capability(device), threads, variant.registers, shared_bytes)
        name = KernelName(0, "", grid, block, variant.registers, shared_bytes, variant.local_bytes, occupancy)
        return variant_text(grid, block, shared_memory_bytes=shared_bytes), name

    def _device(self, totals: DeviceActivity) -> None:
        device, recorder = totals.device, self._recorder
        for state, state_ns in zip(STATES, totals.state_ns, strict=True):
            if state_ns:
                recorder.device_time(state, state_ns, device)
        for kind, by_memory in zip(COPY_KINDS, totals.copies, strict=True):
            for pinned, amount in zip(PINNED, by_memory, strict=True):
                if amount.operations:
                    recorder.copies(kind, amount.bytes, amount.operations, amount.ns, pinned=pinned, device=device)
        if totals.memsets.operations:
            fills = totals.memsets
            recorder.copies(MEMSET, fills.bytes, fills.operations, fills.ns, device=device)
        for kind, waits in zip(SYNC_TYPES, totals.syncs, strict=True):
            if waits.operations:
                recorder.syncs(kind, waits.operations, waits.ns, device=device)
        if totals.gaps.count:
            recorder.gaps(totals.gaps, device)
