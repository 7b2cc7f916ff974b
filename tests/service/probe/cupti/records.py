"""Raw activity records in their real layout, written by struct: a second telling of native/records.h, from the headers.

Offsets are those of CUpti_ActivityKernel9, Memcpy6, MemcpyPtoP4, Memset4, Synchronization2 and GraphTrace2 of CUPTI
12.9; the lengths of other versions differ, the offsets do not.
"""

import ctypes
import struct
from dataclasses import dataclass, field

import numpy as np

from kernelcast.exporter.replay.trace import Trace

MEMCPY, MEMSET, KERNEL, MEMCPY2, SYNC, OVERHEAD = 1, 2, 10, 22, 38, 17
LENGTHS = {
    "12.1": {KERNEL: 208, MEMCPY: 88, MEMCPY2: 96, MEMSET: 88, SYNC: 40, OVERHEAD: 56},
    "13.0": {KERNEL: 216, MEMCPY: 96, MEMCPY2: 96, MEMSET: 88, SYNC: 56, OVERHEAD: 56},
    "12.9": {KERNEL: 208, MEMCPY: 96, MEMCPY2: 96, MEMSET: 88, SYNC: 56, OVERHEAD: 56},
    "13.5": {KERNEL: 248, MEMCPY: 112, MEMCPY2: 96, MEMSET: 104, SYNC: 56, OVERHEAD: 56},
}
VERSIONS = {"12.1": 18, "12.9": 28, "13.0": 130_001, "13.5": 130_500}
"""CUPTI_API_VERSION of the headers; from CUDA 13 on, updates of one version differ in the last two digits."""
START_NS = 1_700_000_000_000_000_000


def layout_of(api_version: int) -> str | None:
    """The version in `LENGTHS` whose records a libcupti writes; None where none is known."""
    step = 100 if api_version >= 100_000 else 1
    return next((name for name, known in VERSIONS.items() if known // step == api_version // step), None)


@dataclass
class Packer:
    """Packs records of one CUPTI version; names stay alive as long as it does."""

    version: str = "12.9"
    _names: dict[str, ctypes.Array[ctypes.c_char]] = field(default_factory=dict)

    def kernel(  # noqa: PLR0913  a launch has this many properties
        self,
        name: str | None,
        start_ns: int,
        end_ns: int,
        *,
        device: int = 0,
        context: int = 1,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        registers: int = 16,
        shared: tuple[int, int] = (0, 0),
        local: int = 0,
        queued_ns: int = 0,
        submitted_ns: int = 0,
        graph: int = 0,
    ) -> bytes:
        packed = bytearray(160)
        struct.pack_into(
            "<IBBH8xQQQIII", packed, 0, KERNEL, 0, 0, registers, start_ns, end_ns, end_ns, device, context, 7
        )
        shape = (*grid, *block, *shared, local, 0, 99)
        struct.pack_into("<6i5IqQQQQ", packed, 52, *shape, 5, self._address(name), 0, queued_ns, submitted_ns)
        struct.pack_into("<QII", packed, 144, graph, 0, graph)
        return self._padded(KERNEL, bytes(packed))

    def copy(  # noqa: PLR0913  a copy has this many properties
        self,
        kind: int,
        size_bytes: int,
        start_ns: int,
        end_ns: int,
        *,
        source: int = 2,
        destination: int = 3,
        device: int = 0,
        record: int = MEMCPY,
    ) -> bytes:
        packed = struct.pack(
            "<IBBBBQQQIIII", record, kind, source, destination, 0, size_bytes, start_ns, end_ns, device, 1, 7, 99
        )
        return self._padded(record, packed)

    def fill(self, size_bytes: int, start_ns: int, end_ns: int, *, device: int = 0) -> bytes:
        packed = struct.pack("<IIQQQIIII", MEMSET, 0, size_bytes, start_ns, end_ns, device, 1, 7, 99)
        return self._padded(MEMSET, packed)

    def sync(self, kind: int, start_ns: int, end_ns: int, *, context: int = 1) -> bytes:
        return self._padded(SYNC, struct.pack("<IIQQIIII", SYNC, kind, start_ns, end_ns, 99, context, 7, 0))

    def other(self) -> bytes:
        """A record of a kind that was not requested."""
        return self._padded(OVERHEAD, struct.pack("<I", OVERHEAD))

    def _address(self, name: str | None) -> int:
        if name is None:
            return 0
        text = self._names.setdefault(name, ctypes.create_string_buffer(name.encode()))
        return ctypes.addressof(text)

    def _padded(self, kind: int, packed: bytes) -> bytes:
        return packed.ljust(LENGTHS[self.version][kind], b"\xee")


def records_of(trace: Trace, packer: Packer, *, shift_ns: int = 0) -> list[bytes]:
    """Every event of a recording as a raw record, in the order of their ends."""
    found: list[tuple[int, bytes]] = []
    for spans, number, record in _events(trace, packer):
        start_ns = int(spans.start_ns[number]) + shift_ns
        end_ns = start_ns + int(spans.duration_ns[number])
        found.append((end_ns, record(number, start_ns, end_ns, int(spans.device[number]))))
    return [record for _, record in sorted(found, key=lambda item: item[0])]


def _events(trace: Trace, packer: Packer):  # type: ignore[no-untyped-def]  # noqa: ANN202
    kinds = {"h2d": 1, "d2h": 2, "d2d": 8, "h2h": 9, "p2p": 10, "unknown": 0}
    memory = {"false": 1, "true": 2, "": 0}
    syncs = {"event": 1, "stream_wait": 2, "stream": 3, "context": 4, "unknown": 0}

    def launch(at: int, start_ns: int, end_ns: int, device: int) -> bytes:
        shape = trace.configurations[int(trace.launches.configuration[at])]
        return packer.kernel(
            trace.names[int(trace.launches.name[at])],
            start_ns,
            end_ns,
            device=device,
            context=device + 1,
            grid=_dimensions(shape.grid),
            block=_dimensions(shape.block),
            registers=shape.registers,
            shared=(0, shape.shared_memory_bytes),
        )

    def copy(at: int, start_ns: int, end_ns: int, device: int) -> bytes:
        kind, pinned = trace.copy_kinds[int(trace.copies.kind[at])]
        sides = {"source": 3, "destination": memory[pinned]} if kind == "d2h" else {"source": memory[pinned]}
        return packer.copy(kinds[kind], int(trace.copies.size_bytes[at]), start_ns, end_ns, device=device, **sides)

    def fill(at: int, start_ns: int, end_ns: int, device: int) -> bytes:
        return packer.fill(int(trace.memset_bytes[at]), start_ns, end_ns, device=device)

    def wait(at: int, start_ns: int, end_ns: int, device: int) -> bytes:
        kind = trace.sync_kinds[int(trace.syncs.kind[at])]
        return packer.sync(syncs[kind], start_ns, end_ns, context=device + 1)

    for spans, record in (
        (trace.launches.spans, launch),
        (trace.copies.spans, copy),
        (trace.memsets, fill),
        (trace.syncs.spans, wait),
    ):
        for number in np.arange(len(spans)).tolist():
            yield spans, number, record


def _dimensions(text: str) -> tuple[int, int, int]:
    parts = [int(part) for part in text.split("x")] if text else [0, 0, 0]
    return parts[0], parts[1], parts[2]
