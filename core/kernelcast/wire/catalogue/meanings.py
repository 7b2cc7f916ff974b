"""Judgement of metrics: which direction is bad, where the limit comes from, and the cause of a breach.

Thresholds, causes, documents and tests read this table; a metric that is not in it needs a threshold from the user.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.model import Metric


class Cause(StrEnum):
    """Cause of a degradation, predicted or passed."""

    THERMAL = "thermal"
    POWER_BRAKE = "power_brake"
    HARDWARE_SLOWDOWN = "hardware_slowdown"
    CLOCK_LOW = "clock_low"
    CONTENTION = "contention"
    MEMORY_LEAK = "memory_leak"
    MEMORY_ERRORS = "memory_errors"
    ROW_REMAPPING = "row_remapping"
    XID = "xid"
    PCIE_ERRORS = "pcie_errors"
    PCIE_LINK = "pcie_link"
    NVLINK = "nvlink"
    TELEMETRY_LOST = "telemetry_lost"
    STRAGGLER = "straggler"
    SLOW_LINK = "slow_link"
    UNEVEN_WORK = "uneven_work"
    AGEING = "ageing"
    DEPLOY = "deploy"
    LOAD = "load"
    KERNEL_SLOWDOWN = "kernel_slowdown"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Meaning:
    """Judgement of one metric.

    Attributes:
        cause: Cause of its breaches, where no companion gives another one.
        below: Whether low values are bad.
        limit: Metric with its limit, of the same labels; None without one.
        own_ratio: Limit as a multiple of the series' own baseline, where nothing else gives one; 0 for none.
        load: Metric whose effect is removed before a trend is estimated; None for none.
        resolution: Step of the gauge, in the metric's unit; 0 for a continuous one.
        settling_seconds: Time after a change of load or process in which a slope has no meaning.
    """

    cause: Cause
    below: bool = False
    limit: Metric | None = None
    own_ratio: float = 0.0
    load: Metric | None = None
    resolution: float = 0.0
    settling_seconds: float = 2400.0


OTHER: Final = Meaning(Cause.UNKNOWN)
MEANINGS: Final[Mapping[str, Meaning]] = MappingProxyType(
    {
        device.GPU_TEMP.prometheus_name: Meaning(
            Cause.THERMAL, limit=device.SLOWDOWN_TEMP, load=device.POWER_USAGE, resolution=1.0, settling_seconds=4500.0
        ),
        device.MEMORY_TEMP.prometheus_name: Meaning(
            Cause.THERMAL, load=device.POWER_USAGE, resolution=1.0, settling_seconds=4500.0
        ),
        device.FB_USED.prometheus_name: Meaning(Cause.MEMORY_LEAK, resolution=2.0, settling_seconds=3600.0),
        device.GPU_UTIL.prometheus_name: Meaning(Cause.LOAD, resolution=1.0),
        kernel.DURATION.prometheus_name: Meaning(Cause.KERNEL_SLOWDOWN, own_ratio=1.2),
    }
)
"""By Prometheus name."""
