"""Metrics that hold only what was seen in the time in which kernels were measured, the windows of a probe.

Such a total is never scaled. Its rate per second of wall time is estimated: rate(total) / (rate(measured) /
rate(running)), with `measured_time` and `kernel.PROBE_RUNNING` of the same program, rank and GPU. A ratio of two totals
of the same measured time, such as a mean duration, needs no correction. Decision 31 lists both.
"""

from typing import Final

from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import energy
from kernelcast.wire.catalogue.model import Metric

WAITS: Final = frozenset({kernel.SYNC_WAIT, kernel.SYNC_CALLS})
"""Totals of waits, which have a measured time of their own."""

WINDOWED: Final = frozenset(
    {
        *WAITS,
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
        kernel.DEVICE_TIME,
        kernel.LAUNCH_GAP,
        kernel.REGION_LAUNCHES,
        kernel.REGION_GPU,
        energy.KERNEL_ENERGY,
    }
)


def measured_time(row: Metric) -> Metric:
    """Return the counter of the time in which a total of `WINDOWED` was counted.

    >>> measured_time(kernel.SYNC_WAIT).prometheus_name
    'kernelcast_probe_waits_measured_seconds_total'
    """
    return kernel.PROBE_WAITS_MEASURED if row in WAITS else kernel.PROBE_MEASURED
