"""CUPTI's own buffers, recorded on an H100 (recordings/h100-2026-11-27), and a plain reading of them."""

import ctypes
import json
import lzma
import struct
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from tests.service.probe.cupti.records import KERNEL, MEMCPY, MEMSET

from kernelcast.exporter.replay.occupation import COMPUTE, COPY, Occupation
from kernelcast.exporter.replay.trace import EventSpans

FOLDER = Path(__file__).parent / "recordings" / "h100-2026-11-27"
NAME_AT = 104


@dataclass
class Truth:
    """Sums of a recording, read by NVIDIA's offsets without the decoder; times in ns."""

    launches: Counter[str] = field(default_factory=Counter)
    kernel_ns: Counter[str] = field(default_factory=Counter)
    kinds: Counter[int] = field(default_factory=Counter)
    spans: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def state_ns(self) -> tuple[int, ...]:
        """Time in each state: compute, collective, copy, overlap, idle, unknown."""
        every = [one for spans in self.spans.values() for one in spans]
        begin, end = min(start for start, _ in every), max(start + length for start, length in every)
        kinds = []
        for kind in (COMPUTE, COPY):
            columns = np.array(self.spans[kind], dtype=np.int64).reshape(-1, 2).T
            kinds.append((kind, EventSpans(columns[0], columns[1], np.zeros(columns.shape[1], dtype=np.int64))))
        known = Occupation(tuple(kinds), start_ns=begin, end_ns=end).until(end)
        return (*(time_ns for _, time_ns in known), 0)


@dataclass
class Recording:
    """Buffers whose kernel records point to names of this process, and what they hold."""

    version: int
    lengths: dict[int, int]
    buffers: list[bytes]
    truth: Truth
    names: dict[int, "ctypes.Array[ctypes.c_char]"]


@cache
def recording(name: str) -> Recording:
    text = lzma.decompress((FOLDER / f"{name}.bin.xz").read_bytes())
    begin = 8 + int.from_bytes(text[:8], "little")
    head = json.loads(text[8:begin])
    names = {int(pointer): ctypes.create_string_buffer(name.encode()) for pointer, name in head["names"].items()}
    lengths = {int(kind): length for kind, (length,) in head["lengths"].items()}
    found = Recording(head["version"], lengths, [], Truth(), names)
    for size in head["sizes"]:
        buffer = bytearray(text[begin : begin + size])
        begin += size
        at = 0
        while at < size:
            at += _read(found, buffer, at)
        found.buffers.append(bytes(buffer))
    return found


def _read(found: Recording, buffer: bytearray, at: int) -> int:
    """Read one record into the truth, and have its name's pointer point to ours; returns its length."""
    truth = found.truth
    (kind,) = struct.unpack_from("<I", buffer, at)
    start_ns, end_ns = struct.unpack_from("<QQ", buffer, at + 16)
    truth.kinds[kind] += 1
    if kind == KERNEL:
        (pointer,) = struct.unpack_from("<Q", buffer, at + NAME_AT)
        name = found.names[pointer]
        truth.launches[name.value.decode()] += 1
        truth.kernel_ns[name.value.decode()] += end_ns - start_ns
        truth.spans[COMPUTE].append((start_ns, end_ns - start_ns))
        struct.pack_into("<Q", buffer, at + NAME_AT, ctypes.addressof(name))
    elif kind in {MEMCPY, MEMSET}:
        truth.spans[COPY].append((start_ns, end_ns - start_ns))
    return found.lengths.get(kind, len(buffer) - at)  # the length of a kind that is only at a buffer's end is not noted
