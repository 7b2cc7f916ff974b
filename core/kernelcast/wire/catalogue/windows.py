"""Metrics that hold only what was seen in the time in which kernels were measured, the windows of a probe.

Such a total is never scaled. Its rate per second of wall time is estimated: rate(total) / (rate(measured) /
rate(running)), with `kernel.PROBE_MEASURED` and `kernel.PROBE_RUNNING` of the same program, rank and GPU. A ratio of
two such totals, such as a mean duration, needs no correction. Decision 31 lists both.
"""

from typing import Final

from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import energy

WINDOWED: Final = frozenset(
    {
        kernel.DURATION,
        kernel.LAUNCHES,
        kernel.TIMED_LAUNCHES,
        kernel.QUEUE_DELAY,
        kernel.QUEUE_DELAYS,
        kernel.GRAPH_LAUNCHES,
        kernel.VARIANT_LAUNCHES,
        kernel.VARIANT_SECONDS,
        kernel.VARIANT_SQUARES,
        kernel.MEMCPY_BYTES,
        kernel.MEMCPY_OPERATIONS,
        kernel.MEMCPY_SECONDS,
        kernel.SYNC_WAIT,
        kernel.SYNC_CALLS,
        kernel.DEVICE_TIME,
        kernel.LAUNCH_GAP,
        kernel.REGION_LAUNCHES,
        kernel.REGION_GPU,
        energy.KERNEL_ENERGY,
    }
)
