"""Launches, copies and waits in known numbers: `known_work records|plain|observed [graph]`.

`records` sums the records in the process, `plain` leaves that to a probe around it, `observed` needs no GPU.
"""

import ctypes
import sys
import time
from contextlib import nullcontext
from typing import Any

from tests.gpu.day.programs.kernels import SPIN, answer
from tests.gpu.day.programs.records import Records, recorded

from kernelcast import probe

SPINS = 2_000
TOUCHES = 20_000
MIB = 1 << 20
NODES = 20
REPLAYS = 50
WAITS = {"stream": 11, "event": 13}
OBSERVED = 3_000


def on_gpu(method: str, *, with_graph: bool) -> None:
    """The work on a GPU."""
    import cupy

    runtime = cupy.cuda.runtime
    module = cupy.RawModule(code=SPIN)
    spin, touch = module.get_function("spin"), module.get_function("touch")
    x = cupy.zeros(128, dtype=cupy.float32)
    spin((1,), (64,), (50_000,))
    touch((1,), (128,), (x,))
    stream = cupy.cuda.Stream(non_blocking=True)
    began, ended = cupy.cuda.Event(), cupy.cuda.Event()
    copies = Copies(cupy)
    if method == "plain":
        time.sleep(3.0)  # the probe begins within a second of the first context
    block: Any = recorded(runtime.deviceSynchronize) if method == "records" else nullcontext(Records())
    with block as records:
        began.record()
        for _ in range(SPINS):
            spin((1,), (64,), (50_000,))
        ended.record()
        for _ in range(TOUCHES):
            touch((1,), (128,), (x,))
        copies.run()
        for _ in range(WAITS["stream"]):
            stream.synchronize()
        mark = cupy.cuda.Event()
        for _ in range(WAITS["event"]):
            mark.record()
            mark.synchronize()
        if with_graph:
            with stream:
                stream.begin_capture()
                for _ in range(NODES):
                    spin((1,), (64,), (5_000,))
                graph = stream.end_capture()
                for _ in range(REPLAYS):
                    graph.launch()
            stream.synchronize()
        runtime.deviceSynchronize()
    answer(
        truth={"spin": SPINS + (NODES * REPLAYS if with_graph else 0), "touch": TOUCHES},
        copies=copies.truth,
        waits={**WAITS, "stream": WAITS["stream"] + with_graph},
        spin_ns=cupy.cuda.get_elapsed_time(began, ended) * 1e6 / SPINS,
        got={name: count for name, (count, _ns) in records.kernels.items()},
        got_ns={name: ns / count for name, (count, ns) in records.kernels.items()},
        got_copies=records.copies,
        got_waits=records.waits,
        lost=records.lost,
    )


class Copies:
    """Copies of 1 MiB in known numbers."""

    def __init__(self, cupy: Any) -> None:
        self._runtime = cupy.cuda.runtime
        self._host, self._pageable = cupy.cuda.alloc_pinned_memory(MIB), ctypes.create_string_buffer(MIB)
        self._device, self._other = cupy.cuda.alloc(MIB), cupy.cuda.alloc(MIB)
        counts = {"h2d true": 20, "h2d false": 10, "d2h true": 5, "d2d": 7, "memset": 9}
        self.truth = {name: [count, count * MIB] for name, count in counts.items()}

    def run(self) -> None:
        """Copy."""
        copy, device = self._runtime.memcpy, self._device.ptr
        for _ in range(20):
            copy(device, self._host.ptr, MIB, 1)
        for _ in range(10):
            copy(device, ctypes.addressof(self._pageable), MIB, 1)
        for _ in range(5):
            copy(self._host.ptr, device, MIB, 2)
        for _ in range(7):
            copy(self._other.ptr, device, MIB, 3)
        for _ in range(9):
            self._runtime.memset(device, 0, MIB)


def observed() -> None:
    """Calls of `observe`, for a machine without a GPU."""
    probe.start("day", source="cpu", method="manual")
    for number in range(OBSERVED):
        probe.observe("known", 1_000 + number % 7)
    probe.stop()
    answer(truth={"known": OBSERVED})


if __name__ == "__main__":
    if sys.argv[1] == "observed":
        observed()
    else:
        on_gpu(sys.argv[1], with_graph="graph" in sys.argv[2:])
