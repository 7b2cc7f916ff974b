"""CuPy's memory pool of each device: bytes used, free, in all, and its limit.

Read on the probe's thread once an interval: each figure takes the pool's own lock for as long as `malloc` does. CuPy's
pool of pinned host memory reports only the number of free blocks, not bytes, so it has no figures here.
"""

from collections.abc import Iterable
from typing import Any, Final

from kernelcast.probe.recording.recorder import Recorder

DEVICE: Final = "device"


def read_pools(cupy: Any, devices: Iterable[int], recorder: Recorder) -> None:
    """Record the size of each device's default pool; nothing where CuPy uses no pool.

    Args:
        cupy: The module.
        devices: Whose contexts exist.
        recorder: Takes the figures.
    """
    pool = cupy.get_default_memory_pool()
    for device in devices:
        cupy.cuda.runtime.setDevice(device)
        used, free = pool.used_bytes(), pool.free_bytes()
        recorder.pool(DEVICE, "used", used, device)
        recorder.pool(DEVICE, "free", free, device)
        recorder.pool(DEVICE, "total", used + free, device)
        if limit := pool.get_limit():
            recorder.pool(DEVICE, "limit", limit, device)
