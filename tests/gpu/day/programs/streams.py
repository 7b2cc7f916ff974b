"""Two streams whose kernels of 10 ms run at the same time, then copies beside kernels: the device's time by state."""

import time
from typing import Any

from tests.gpu.day.programs.kernels import SPIN, answer
from tests.gpu.day.programs.records import Records, recorded

KERNELS = 100
KERNEL_NS = 10_000_000
COPY_BYTES = 256 << 20
COPIES = 60


def main() -> None:
    """Run both parts."""
    import cupy

    spin = cupy.RawModule(code=SPIN).get_function("spin_ns")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    host, device = cupy.cuda.alloc_pinned_memory(COPY_BYTES), cupy.cuda.alloc(COPY_BYTES)
    synchronise = cupy.cuda.runtime.deviceSynchronize

    def launch(stream: Any) -> None:
        with stream:
            spin((1,), (1,), (cupy.uint64(KERNEL_NS),))

    for stream in streams:
        launch(stream)
    wall_ns: dict[str, int] = {}
    sums: dict[str, Records] = {}
    for name in ("kernels", "copies"):
        with recorded(synchronise) as records:
            began = time.perf_counter_ns()
            for _ in range(KERNELS):
                launch(streams[0])
                if name == "kernels":
                    launch(streams[1])
            for _ in range(COPIES if name == "copies" else 0):
                cupy.cuda.runtime.memcpyAsync(device.ptr, host.ptr, COPY_BYTES, 1, streams[1].ptr)
            synchronise()
            wall_ns[name] = time.perf_counter_ns() - began
        sums[name] = records
    answer(
        wall_ns=wall_ns,
        device_time_ns={name: records.device_time_ns for name, records in sums.items()},
        kernel_ns={name: sum(ns for _, ns in records.kernels.values()) for name, records in sums.items()},
        launches={name: records.launches() for name, records in sums.items()},
        one_stream_ns=KERNELS * KERNEL_NS,
    )


if __name__ == "__main__":
    main()
