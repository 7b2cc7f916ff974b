"""Faults, the alert that each one fires, and the alerts that follow from it; `alertmanager` makes inhibitions of them.

Tests compare each row with the simulation: `kernelcast simulate --fault NAME` fires the alert within its time, fires no
alert that is not listed here, and one message is sent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.grafana.addresses import GPUS, KERNELS, PIPELINE
from kernelcast.grafana.rules.model import MINUTE

MAX_CONSEQUENCES: Final = 3
"""Consequences of one fault that its runbook names at most; a test holds it."""
_GPU: Final = ("Hostname", "gpu")
_NODE: Final = ("Hostname",)
_MEMORY_XIDS: Final = "48|63|94|95"
PREDICTOR_PRODUCER: Final = "kernelcast-predictor"
"""The predictor's `service.name` on Kafka: the `job` of KernelcastProducerSilent, whatever the scrape job is called."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """An alert that a fault fires besides its own.

    Attributes:
        alert: Its name.
        matcher: A further matcher, such as `xid="74"`; empty for every alert of the name.
        equal: Labels that it shares with the fault's own alert.
    """

    alert: str
    matcher: str = ""
    equal: tuple[str, ...] = _GPU


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the hardware, of a program, or of a service.

    Attributes:
        name: As `kernelcast simulate --fault` calls it, or the service that is stopped.
        alert: The alert that names it.
        panel: The panel that shows it, by its title.
        dashboard: The uid of the panel's dashboard.
        seen_seconds: Time until the alert's condition is true, which its own waiting time follows.
        consequences: Alerts that follow from it, and are muted while its own fires.
        matcher: Which alerts of the name are about this fault, such as `xid="79"`.
        is_service: Whether a service of kernelcast is stopped, and no GPU has a fault.
        muting: The alert that mutes the consequences, where it is not `alert`.
    """

    name: str
    alert: str
    panel: str
    dashboard: str = GPUS
    seen_seconds: int = 0
    consequences: tuple[Consequence, ...] = ()
    matcher: str = ""
    is_service: bool = False
    muting: str = ""


_OF_A_NODE: Final = (
    Consequence("KernelcastProducerSilent", equal=("job", "instance")),
    Consequence("KernelcastGpu.+", equal=_NODE),
    Consequence(
        "Kernelcast(Kernel.+|DegradationPredicted|BreachImminent|LimitPassed|WorkSlower|FaultObserved)",
        equal=_NODE,
    ),
)
"""Alerts that follow where a node's exporter sends nothing more."""

FAULTS: Final = (
    Fault(
        "xid-79",
        "KernelcastGpuXidHardware",
        "GPUs that answer",
        matcher='xid="79"',
        consequences=(
            Consequence("KernelcastGpuDown"),
            Consequence("KernelcastGpuRowsUnreadable"),
        ),
    ),
    Fault(
        "nvlink-down",
        "KernelcastGpuXidHardware",
        "NVLinks that are up",
        matcher='xid="74"',
        consequences=(
            Consequence("KernelcastGpuNvlinkDown"),
            Consequence("KernelcastGpuNvlinkRecovers"),
            Consequence("KernelcastGpuNeedsRecovery"),
        ),
    ),
    Fault(
        "ecc-uncorrected",
        "KernelcastGpuXidHardware",
        "Uncorrectable memory errors",
        matcher='xid=~"48|95"',
        consequences=(
            Consequence("KernelcastGpuMemoryUncorrectable"),  # where the counter is read before the XID
            Consequence("KernelcastGpuXid", f'xid=~"{_MEMORY_XIDS}"'),
        ),
    ),
    Fault(
        "xid-94",
        "KernelcastGpuMemoryUncorrectable",
        "Uncorrectable memory errors",
        consequences=(
            Consequence("KernelcastGpuXid", f'xid=~"{_MEMORY_XIDS}"'),
            Consequence("KernelcastGpuRepairPending"),
        ),
    ),
    Fault(
        "memory-errors",
        "KernelcastGpuMemoryUncorrectable",
        "Memory errors",
        seen_seconds=30 * MINUTE,
        consequences=(Consequence("KernelcastGpuRepairPending"), Consequence("KernelcastGpuSingleBitStorm")),
    ),
    Fault("ecc-burst", "KernelcastGpuXid", "Memory errors", matcher='xid="92"'),
    Fault("xid", "KernelcastGpuXidApplication", "XIDs"),
    Fault("pcie-replays", "KernelcastGpuPcieLinkDegraded", "PCIe retries", seen_seconds=2 * MINUTE),
    Fault("pcie-link", "KernelcastGpuPcieLinkDegraded", "PCIe lanes"),
    Fault(
        "power-brake",
        "KernelcastGpuThrottling",
        "Reduced clocks",
        consequences=(Consequence("KernelcastKernelSlower"),),
    ),
    Fault(
        "thermal-drift",
        "KernelcastGpuThrottling",
        "Reduced clocks",
        seen_seconds=10 * MINUTE,
        consequences=(Consequence("KernelcastKernelSlower"),),
    ),
    Fault("memory-leak", "KernelcastGpuMemoryNearlyFull", "GPU memory used", seen_seconds=10 * MINUTE),
    Fault("straggler", "KernelcastKernelSlower", "Mean duration against usual", KERNELS, 5 * MINUTE),
    Fault("kernel-slowdown", "KernelcastKernelSlower", "Mean duration against usual", KERNELS, 5 * MINUTE),
    Fault("telemetry-lost", "KernelcastGpuDown", "GPU utilisation", seen_seconds=5 * MINUTE),
    Fault(
        "nvml-hang",
        "KernelcastNvmlHung",
        "GPUs that answer",
        consequences=(Consequence("KernelcastGpuDown", equal=_NODE),),
    ),
    Fault("clock-skew", "KernelcastClockAhead", "Data", PIPELINE),
    Fault(
        "node",
        "KernelcastExporterStale",
        "Silent producers",
        PIPELINE,
        seen_seconds=MINUTE,
        consequences=_OF_A_NODE,
        is_service=True,
    ),
    Fault(
        "exporter",
        "KernelcastExporterStale",
        "Silent producers",
        PIPELINE,
        seen_seconds=MINUTE,
        consequences=_OF_A_NODE,
        is_service=True,
    ),
    Fault(
        "kafka",
        "KernelcastKafkaUnreachable",
        "Data",
        PIPELINE,
        seen_seconds=MINUTE,
        muting="KernelcastAllBridgesWithoutKafka",
        consequences=(
            Consequence("KernelcastProducerSilent", equal=()),
            Consequence("KernelcastSpoolFilling", equal=()),
            Consequence("Kernelcast(Gpu|Kernel).+", equal=()),
        ),
        is_service=True,
    ),
    Fault(
        "predictor",
        "KernelcastPredictorDown",
        "Daemons",
        PIPELINE,
        consequences=(
            Consequence("KernelcastProducerSilent", f'job="{PREDICTOR_PRODUCER}"', equal=()),
            Consequence("KernelcastAllPredictorsDown", equal=()),
        ),
        is_service=True,
    ),
)
"""One row for each fault; that of the bridge, after which no measurement arrives, is in `consequences`."""


def inhibitions() -> list[dict[str, Any]]:
    """Inhibition rules of Alertmanager: a fault's own alert mutes its consequences on the same subject."""
    rules: list[dict[str, Any]] = []
    for fault in FAULTS:
        for one in fault.consequences:
            source = _matchers(fault.muting or fault.alert, fault.matcher)
            rule = _silences(source, _matchers(one.alert, one.matcher), one.equal)
            if rule not in rules:
                rules.append(rule)
    return rules


def by_name() -> Mapping[str, Fault]:
    """The faults by their names."""
    return {fault.name: fault for fault in FAULTS}


def _matchers(alert: str, matcher: str) -> list[str]:
    is_pattern = any(sign in alert for sign in ".(|")
    return list(_present(f'alertname{"=~" if is_pattern else "="}"{alert}"', matcher))


def _present(*matchers: str) -> Iterator[str]:
    yield from (one for one in matchers if one)


def _silences(source: list[str], target: list[str], equal: tuple[str, ...]) -> dict[str, Any]:
    return {"source_matchers": source, "target_matchers": target} | ({"equal": list(equal)} if equal else {})
