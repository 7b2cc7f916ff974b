"""The ground truth of a simulation: each fault, its place, its start, and the time at which it crossed its limit.

`SimulatedFleet` calls `observe` after each step; `kernelcast simulate --truth` and the benchmarks read `records`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kernelcast.exporter.simulate import faults, physics
from kernelcast.exporter.simulate.faults import SimulatedFault
from kernelcast.exporter.simulate.fleet_settings import SimulationSettings
from kernelcast.exporter.simulate.program import FloatArray
from kernelcast.wire.catalogue import Metric, kernel
from kernelcast.wire.catalogue.devices import device

SLOWER_THRESHOLD_RATIO: Final = 1.2
"""A kernel breaches when it takes a fifth longer than it did."""
BUSY_THRESHOLD_PERCENT: Final = 99.0


@dataclass(frozen=True, slots=True, eq=False)
class FaultReading:
    """Values of the faults' own metrics after one step.

    Attributes:
        temp_c: Shape (gpus,), degrees C.
        used_mib: Shape (gpus,), MiB.
        busy_percent: Shape (gpus,), time that the requested work needs; it may be above 100.
        slower_ratio: Shape (gpus, kernels), duration over the duration without any fault.
        compute_ratio: Shape (gpus,), the same for all compute of a GPU together.
    """

    temp_c: FloatArray
    used_mib: FloatArray
    busy_percent: FloatArray
    slower_ratio: FloatArray
    compute_ratio: FloatArray


@dataclass(frozen=True, slots=True)
class FaultMetric:
    """The metric that shows a fault, and its limit."""

    metric: Metric
    threshold: float
    value: Callable[[FaultReading, int, SimulatedFault], float]


_USABLE_MIB: Final = physics.MEMORY_TOTAL_MIB - physics.MEMORY_RESERVED_MIB
WATCHES: Final[Mapping[str, FaultMetric]] = {
    faults.THERMAL_DRIFT: FaultMetric(device.GPU_TEMP, physics.SLOWDOWN_TEMP_C, lambda r, g, _: float(r.temp_c[g])),
    faults.MEMORY_LEAK: FaultMetric(device.FB_USED, _USABLE_MIB, lambda r, g, _: float(r.used_mib[g])),
    faults.RISING_LOAD: FaultMetric(device.GPU_UTIL, BUSY_THRESHOLD_PERCENT, lambda r, g, _: float(r.busy_percent[g])),
    faults.KERNEL_SLOWDOWN: FaultMetric(
        kernel.DURATION, SLOWER_THRESHOLD_RATIO, lambda r, g, f: float(r.slower_ratio[g, f.kernel])
    ),
    faults.CONTENTION: FaultMetric(
        kernel.DURATION, SLOWER_THRESHOLD_RATIO, lambda r, g, _: float(np.max(r.slower_ratio[g]))
    ),
    faults.STRAGGLER: FaultMetric(kernel.DURATION, SLOWER_THRESHOLD_RATIO, lambda r, g, _: float(r.compute_ratio[g])),
}


class Truth:
    """Watches every fault on every GPU that it concerns."""

    def __init__(self, settings: SimulationSettings) -> None:
        self._subjects = [
            (fault, int(gpu)) for fault in settings.faults for gpu in np.flatnonzero(settings.where(fault))
        ]
        self._breaches: dict[int, float] = {}
        self._seconds = 0.0

    def observe(self, seconds: float, reading: FaultReading) -> None:
        """Note which faults cross their limits now, in simulated time."""
        self._seconds = seconds
        for number, (fault, gpu) in enumerate(self._subjects):
            watch = WATCHES.get(fault.kind)
            if watch is None or number in self._breaches or not fault.active(seconds):
                continue
            if watch.value(reading, gpu, fault) >= watch.threshold:
                self._breaches[number] = seconds

    def records(
        self, labels: Callable[[SimulatedFault, int], Mapping[str, str]], when_ns: Callable[[float], int]
    ) -> list[dict[str, Any]]:
        """Return the faults that have begun, one record for each fault and GPU, ready for JSON.

        Args:
            labels: Labels of the series that a fault concerns on a GPU.
            when_ns: From simulated seconds to Unix nanoseconds.
        """
        records = []
        for number, (fault, gpu) in enumerate(self._subjects):
            if fault.start_seconds > self._seconds:
                continue
            watch = WATCHES.get(fault.kind)
            breach = self._breaches.get(number)
            records.append(
                {
                    "fault": fault.kind,
                    "is_fault": fault.is_fault,
                    "labels": dict(labels(fault, gpu)),
                    "metric": watch.metric.prometheus_name if watch else None,
                    "threshold": watch.threshold if watch else None,
                    "onset_seconds": fault.start_seconds,
                    "onset_ns": when_ns(fault.start_seconds),
                    "breach_seconds": breach,
                    "breach_ns": None if breach is None else when_ns(breach),
                    "parameters": dict(fault.values),
                }
            )
        return records
