"""Judgement of metrics, as a table: which direction is bad, where the limit comes from, and the cause of a breach.

The predictor takes limits and causes from it, `kernelcast findings` the causes. A metric that is not in it is judged
only if the user's settings give it a threshold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, gpu, nvlink
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
    AGEING = "ageing"
    DEPLOY = "deploy"
    LOAD = "load"
    KERNEL_SLOWDOWN = "kernel_slowdown"
    UNKNOWN = "unknown"


class MeaningQuestion(StrEnum):
    """Topics of rules for causes: questions that have one answer at a time."""

    SPEED = "why work takes longer"
    XID = "which XID occurred"
    HEAT = "why the temperature rises"
    LAST = "anything else, if no other rule holds"


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
        reserved: Whether programs may take nearly all of it at their start, as engines reserve memory.
        settling_seconds: Time after a change of load or process in which a slope has no meaning.
        companions: Metrics of the same GPU that explain its breaches, beside `limit` and `load`.
        other_causes: Causes that companions can give instead of `cause`.
        topic: Question that its breach asks; None where rules of no topic answer it.
    """

    cause: Cause
    below: bool = False
    limit: Metric | None = None
    own_ratio: float = 0.0
    load: Metric | None = None
    resolution: float = 0.0
    reserved: bool = False
    settling_seconds: float = 1500.0
    companions: tuple[Metric, ...] = ()
    other_causes: frozenset[Cause] = frozenset()
    topic: MeaningQuestion | None = None


_CLOCKS: Final = (device.SM_CLOCK, device.CLOCK_EVENT_REASONS, device.GPU_UTIL)
_CLOCK_CAUSES: Final = frozenset({Cause.POWER_BRAKE, Cause.HARDWARE_SLOWDOWN, Cause.THERMAL})
_SPEED_CAUSES: Final = _CLOCK_CAUSES | {Cause.CLOCK_LOW, Cause.CONTENTION, Cause.AGEING, Cause.DEPLOY}


def _fault(cause: Cause, *companions: Metric, below: bool = False) -> Meaning:
    """A metric of which any change is a fault; it has no limit, rules judge it."""
    return Meaning(cause, below=below, companions=companions)


OTHER: Final = Meaning(Cause.UNKNOWN)
"""Meaning of metrics that the table does not have."""
MEANINGS: Final[Mapping[str, Meaning]] = MappingProxyType(
    {
        device.GPU_TEMP.prometheus_name: Meaning(
            Cause.THERMAL,
            limit=device.SLOWDOWN_TEMP,
            load=device.POWER_USAGE,
            resolution=1.0,
            settling_seconds=4500.0,
            companions=_CLOCKS,
            other_causes=frozenset({Cause.LOAD}),
            topic=MeaningQuestion.HEAT,
        ),
        device.MEMORY_TEMP.prometheus_name: Meaning(
            Cause.THERMAL,
            load=device.POWER_USAGE,
            resolution=1.0,
            settling_seconds=4500.0,
            companions=_CLOCKS,
            other_causes=frozenset({Cause.LOAD}),
            topic=MeaningQuestion.HEAT,
        ),
        device.FB_USED.prometheus_name: Meaning(
            Cause.MEMORY_LEAK, resolution=2.0, reserved=True, settling_seconds=3600.0, companions=(device.FB_FREE,)
        ),
        device.GPU_UTIL.prometheus_name: Meaning(Cause.LOAD, resolution=1.0),
        device.POWER_USAGE.prometheus_name: Meaning(
            Cause.LOAD,
            companions=(device.POWER_LIMIT, device.CLOCK_EVENT_REASONS),
            other_causes=_CLOCK_CAUSES,
            topic=MeaningQuestion.SPEED,
        ),
        device.SM_CLOCK.prometheus_name: Meaning(
            Cause.CLOCK_LOW,
            below=True,
            companions=(device.CLOCK_EVENT_REASONS, device.GPU_UTIL, device.GPU_TEMP, device.SLOWDOWN_TEMP),
            other_causes=_CLOCK_CAUSES,
            topic=MeaningQuestion.SPEED,
        ),
        device.CLOCK_EVENT_REASONS.prometheus_name: Meaning(
            Cause.HARDWARE_SLOWDOWN,
            companions=(device.SM_CLOCK, device.GPU_TEMP),
            other_causes=_CLOCK_CAUSES,
            topic=MeaningQuestion.SPEED,
        ),
        device.PCIE_LINK_GEN.prometheus_name: _fault(
            Cause.PCIE_LINK, device.PCIE_MAX_LINK_GEN, device.GPU_UTIL, below=True
        ),
        device.PCIE_LINK_WIDTH.prometheus_name: _fault(Cause.PCIE_LINK, device.PCIE_MAX_LINK_WIDTH, below=True),
        device.PCIE_REPLAY.prometheus_name: _fault(Cause.PCIE_ERRORS),
        device.ECC_SBE_VOLATILE.prometheus_name: _fault(Cause.MEMORY_ERRORS),
        device.ECC_DBE_VOLATILE.prometheus_name: _fault(Cause.MEMORY_ERRORS),
        device.UNCORRECTABLE_REMAPPED_ROWS.prometheus_name: _fault(Cause.ROW_REMAPPING, device.RETIRED_PENDING),
        device.CORRECTABLE_REMAPPED_ROWS.prometheus_name: _fault(Cause.ROW_REMAPPING),
        device.ROW_REMAP_FAILURE.prometheus_name: _fault(Cause.ROW_REMAPPING),
        device.RETIRED_PENDING.prometheus_name: _fault(Cause.ROW_REMAPPING),
        device.XID_ERRORS.prometheus_name: _fault(Cause.XID, device.RECOVERY_ACTION),
        device.RECOVERY_ACTION.prometheus_name: _fault(Cause.XID, device.XID_ERRORS),
        nvlink.UP.prometheus_name: _fault(Cause.NVLINK, below=True),
        nvlink.ERRORS.prometheus_name: _fault(Cause.NVLINK),
        gpu.GPU_UP.prometheus_name: _fault(Cause.TELEMETRY_LOST, below=True),
        kernel.DURATION.prometheus_name: Meaning(
            Cause.KERNEL_SLOWDOWN,
            own_ratio=1.2,
            companions=(*_CLOCKS, device.GPU_TEMP, device.SLOWDOWN_TEMP, kernel.DURATION),
            other_causes=_SPEED_CAUSES,
            topic=MeaningQuestion.SPEED,
        ),
    }
)
"""By Prometheus name. Rows without a limit and without `own_ratio` are judged by rules, see `cause_rules`."""

SCORE_CLASSES: Final = ("temperature", "memory", "utilisation", "kernel", "other")
"""Classes of metrics by which forecasts are scored. Stored scores have their indices: add at the end."""
_CLASS_OF_CAUSE: Final[Mapping[Cause, str]] = MappingProxyType(
    {
        Cause.THERMAL: "temperature",
        Cause.MEMORY_LEAK: "memory",
        Cause.LOAD: "utilisation",
        Cause.KERNEL_SLOWDOWN: "kernel",
    }
)


def score_class(metric: str) -> str:
    """Class under which forecasts of a metric, named as Prometheus knows it, are scored."""
    return _CLASS_OF_CAUSE.get(MEANINGS.get(metric, OTHER).cause, "other")
