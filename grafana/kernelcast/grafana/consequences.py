"""Consequences of alerts, besides those of faults in `faults`: the alert about the cause inhibits them.

`alertmanager` makes an inhibition rule of each row. An alert is inhibited only if the labels `subject` are equal.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from kernelcast.grafana.rules import (
    exporters,
    findings,
    gpu_errors,
    hardware,
    hints,
    kernels,
    links,
    objectives,
    probes,
    standing,
)
from kernelcast.grafana.rules.model import AlertRule, Profile
from kernelcast.grafana.rules.render import alerts

_GPU: Final = ("Hostname", "gpu")
_FINDING: Final = ("rack", *_GPU, "program", "rank", "kernel", "metric")
_PROGRAM: Final = (*_GPU, "program")
_PORT: Final = ("Hostname", "device", "port")
_WITHOUT_KAFKA: Final = ("KernelcastMessagesDropped", "KernelcastPredictorFailing", "KernelcastSpoolFilling")


@dataclass(frozen=True, slots=True)
class Consequences:
    """Alerts that one alert inhibits.

    Attributes:
        cause: Name of the alert.
        silenced: Names of the alerts that follow from it.
        subject: Labels that must be equal.
        matcher: Which alerts of the cause's name, such as `job="kernelcast-bridge"`; empty for all of them.
        about: Which of the silenced ones, such as `cause="xid"`; empty for all of them.
    """

    cause: str
    silenced: tuple[str, ...]
    subject: tuple[str, ...] = ()
    matcher: str = ""
    about: str = ""


_SLOW_WORK: Final = ("KernelcastKernelSlower", "KernelcastStraggler", "KernelcastWorkSlower")
_PREDICTIONS: Final = ("KernelcastBreachImminent", "KernelcastDegradationPredicted")
_SHOWN_BY: Final = {
    "KernelcastGpuThrottling": "power_brake|hardware_slowdown|thermal|clock_low",
    "KernelcastGpuXidHardware": "xid|nvlink|memory_errors|row_remapping|pcie_link|telemetry_lost",
    "KernelcastGpuXid": "xid|nvlink|memory_errors|row_remapping",
    "KernelcastGpuNeedsRecovery": "xid|nvlink|memory_errors|row_remapping",
    "KernelcastGpuMemoryUncorrectable": "memory_errors|row_remapping|xid",
    "KernelcastGpuRowRemapFailure": "row_remapping|memory_errors",
    "KernelcastGpuRepairPending": "row_remapping|memory_errors",
    "KernelcastGpuNvlinkDown": "nvlink|xid",
    "KernelcastGpuNvlinkRecovers": "nvlink",
    "KernelcastGpuPcieLinkDegraded": "pcie_link|pcie_errors",
    "KernelcastGpuDown": "telemetry_lost|xid",
}
"""By alert of the hardware, the causes of findings on its node that say the same."""
_FIXED: Final = (
    # What was predicted has happened: neither "imminent" nor "resolved" is sent.
    Consequences("KernelcastLimitPassed", _PREDICTIONS, _FINDING),
    Consequences("KernelcastWorkSlower", ("KernelcastDegradationPredicted",), _FINDING),
    Consequences("KernelcastBreachImminent", ("KernelcastDegradationPredicted",), _FINDING),
    Consequences("KernelcastWorkSlower", ("KernelcastKernelSlower", "KernelcastStraggler"), _PROGRAM),
    Consequences("KernelcastLimitPassed", ("KernelcastGpuThrottling",), _GPU, matcher='cause="thermal"'),
    Consequences("KernelcastLimitPassed", ("KernelcastGpuMemoryNearlyFull",), _GPU, matcher='cause="memory_leak"'),
    *(
        Consequences(
            name, ("KernelcastFaultObserved", "KernelcastTicketOpen"), ("Hostname",), about=f'cause=~"{causes}"'
        )
        for name, causes in _SHOWN_BY.items()
    ),
    Consequences(
        "KernelcastGpuDown",
        (
            *_PREDICTIONS,
            "KernelcastLimitPassed",
            "KernelcastWorkSlower",
            "KernelcastGpuIdleAllocated",
            "KernelcastGpuMemoryNearlyFull",
            "KernelcastGpuNeedsRecovery",
            "KernelcastGpuNvlinkDown",
            "KernelcastGpuPcieLinkDegraded",
            "KernelcastGpuRowsUnreadable",
            "KernelcastGpuThrottling",
            "KernelcastGpuUnmeasured",
            "KernelcastKernelSlower",
            "KernelcastStraggler",
        ),
        _GPU,
    ),
    Consequences("KernelcastGpuThrottling", _SLOW_WORK, _GPU),
    Consequences("KernelcastGpuPcieLinkDegraded", _SLOW_WORK, _GPU),
    Consequences("KernelcastGpuRowRemapFailure", ("KernelcastGpuRepairPending",), _GPU),
    Consequences("KernelcastGpuNvlinkDown", ("KernelcastGpuNvlinkRecovers",), _GPU),
    Consequences("KernelcastInfinibandPortDown", ("KernelcastInfinibandPortDegraded",), _PORT),
    Consequences("KernelcastSpoolDropping", ("KernelcastSpoolFilling",), ("instance",)),
)


def declared(profile: Profile) -> tuple[Consequences, ...]:
    """All declared consequences, of alerts that the site has."""
    programs = (kernels.alerts, probes.alerts, standing.alerts)
    of_gpus = _names((hardware.alerts, links.alerts, gpu_errors.alerts, *programs), profile)
    found = _names((findings.alerts,), profile)
    predicted = _names((hints.alerts,), profile)
    of_exporters = _names((exporters.alerts,), profile)
    fresh, delivered = (one.alert for one in objectives.OBJECTIVES)
    dead, silent, lag = "KernelcastExporterStale", "KernelcastProducerSilent", "KernelcastLagGrowing"
    through_the_bridge = (silent, "KernelcastClockAhead", *of_gpus, *predicted, fresh)
    # One of several bridges may have been the only one with these series: it had a shard of them.
    absent = (dead, "KernelcastGpuDown", "KernelcastGpuUnmeasured")
    listed = (
        # Without a bridge every alert about measurements loses its data: nothing is sent, also no false end. Findings
        # come from the predictor itself.
        Consequences("KernelcastAllBridgesDown", through_the_bridge),
        Consequences("KernelcastBridgeDown", (*absent, "KernelcastAllBridgesDown")),
        Consequences("KernelcastBridgeDown", (lag,), ("job",)),
        # During an outage of Kafka the same data stays as it was or is hidden, and its producers are all silent.
        Consequences("KernelcastAllBridgesWithoutKafka", through_the_bridge),
        Consequences(
            "KernelcastKafkaUnreachable",
            (
                *absent,
                silent,
                fresh,
                delivered,
                "KernelcastAllBridgesWithoutKafka",
                "KernelcastPartitionsNotExposed",
                lag,
                *_WITHOUT_KAFKA,
            ),
        ),
        # A spool that is full loses messages for the same reason; one on a full disk has another.
        Consequences("KernelcastKafkaUnreachable", ("KernelcastSpoolDropping",), about='reason=~"bound|age"'),
        # Not the predictor's lag: the bridge's freshness does not follow from it.
        Consequences(lag, (fresh,), matcher=f'job="{profile.jobs.bridge}"'),
        Consequences("KernelcastSpoolDropping", (delivered,)),
        Consequences("KernelcastMessagesDropped", (delivered,)),
        Consequences(dead, (*of_gpus, *found, *predicted, "KernelcastExporterDown"), ("Hostname",)),
        Consequences(dead, (silent, *of_exporters), ("job", "instance")),
        # Without a predictor forecasts and hints end: no "resolved" is sent. Findings go on, by their own rules.
        Consequences("KernelcastAllPredictorsDown", predicted),
        Consequences("KernelcastPredictorDown", ("KernelcastAllPredictorsDown",)),
        *_FIXED,
    )
    known = {rule.name for rule in alerts(profile)}
    kept = (
        replace(one, silenced=tuple(name for name in one.silenced if name in known))
        for one in listed
        if one.cause in known
    )
    return tuple(one for one in kept if one.silenced)


def _names(parts: Iterable[Callable[[Profile], tuple[AlertRule, ...]]], profile: Profile) -> tuple[str, ...]:
    return tuple(rule.name for make in parts for rule in make(profile))
