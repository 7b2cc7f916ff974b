"""From the decoder's totals of one interval to the recorder's, which go on for ever."""

from collections.abc import Callable
from typing import Final

from kernelcast.probe.cupti.native import NO_NAME, STATES, Device, Drain, Row
from kernelcast.probe.cupti.occupancy import theoretical
from kernelcast.probe.recorder import Recorder
from kernelcast.wire.frames import KernelName
from kernelcast.wire.kernels import OTHER

COPY_KINDS: Final = ("unknown", "h2d", "d2h", "h2d", "d2h", "d2d", "d2d", "d2d", "d2d", "h2h", "p2p")
"""By CUpti_ActivityMemcpyKind; arrays (`a`) are device memory."""
PINNED: Final = ("", "false", "true")
SYNC_TYPES: Final = ("unknown", "event", "stream_wait", "stream", "context")
"""By CUpti_ActivitySynchronizationType."""
MEMSET: Final = "memset"
MAX_CONFIGURATIONS: Final = 8192

Capability = Callable[[int], tuple[int, int]]
_Configured = tuple[str, KernelName | None, str]


class Absorber:
    """Turns drains into calls of a recorder.

    Args:
        recorder: What they add up in.
        demangle: From mangled to readable names.
        capability: The compute capability of a device; (0, 0) where it is not known.
    """

    def __init__(self, recorder: Recorder, demangle: Callable[[str], str], capability: Capability) -> None:
        self._recorder = recorder
        self._demangle = demangle
        self._capability = capability
        self._signatures: dict[int, str] = {NO_NAME: OTHER}
        self._configured: dict[tuple[int, ...], _Configured] = {}

    def absorb(self, drain: Drain, dropped: int) -> None:
        """Add one interval.

        Args:
            drain: Its totals.
            dropped: Records that CUPTI itself has dropped in it.
        """
        for number, name in drain.names.items():
            if number != NO_NAME:
                self._signatures[number] = self._demangle(name)
        for row in drain.rows:
            self._kernel(row)
        for device in drain.devices:
            self._device(device)
        self._recorder.charge(drain.counts.held_ns)
        lost = dropped + drain.counts.malformed
        if lost:
            self._recorder.lost_records(lost)

    def _kernel(self, row: Row) -> None:
        signature, name, variant = self._configuration(row)
        self._recorder.absorb(
            signature,
            row.device,
            launches=row.launches,
            durations=row.durations,
            queue_delays=row.queue_delays,
            queue_delay_ns=row.queue_delay_ns,
            graph_launches=row.graph_launches,
            name=name,
            variant=variant,
        )

    def _configuration(self, row: Row) -> _Configured:
        key = (row.device, row.name, *row.grid, *row.block, *row[4:8])
        known = self._configured.get(key)
        if known is None:
            if len(self._configured) >= MAX_CONFIGURATIONS:
                self._configured.clear()
            known = self._configured[key] = self._described(row)
        return known

    def _described(self, row: Row) -> _Configured:
        signature = self._signatures.get(row.name, OTHER)
        if row.name == NO_NAME:
            return signature, None, ""
        grid, block = ("x".join(map(str, part)) for part in (row.grid, row.block))
        shared_bytes = row.static_shared_bytes + row.dynamic_shared_bytes
        threads = row.block[0] * row.block[1] * row.block[2]
        occupancy = theoretical(self._capability(row.device), threads, row.registers, shared_bytes)
        name = KernelName(0, signature, grid, block, row.registers, shared_bytes, row.local_bytes, occupancy)
        return signature, name, f"{grid}|{block}"

    def _device(self, totals: Device) -> None:
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
