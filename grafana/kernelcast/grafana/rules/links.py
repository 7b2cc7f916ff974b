"""Alerts about the links of GPUs and nodes: NVLink and InfiniBand."""

from typing import Final

from kernelcast.grafana import node_exporter, promql
from kernelcast.grafana.addresses import GPUS
from kernelcast.grafana.rules.model import (
    DAY,
    HOUR,
    KEPT_SECONDS,
    MINUTE,
    RELEASE_FIRST,
    AlertRule,
    AlertSeverity,
    Profile,
)
from kernelcast.wire.catalogue.devices import nvlink

_GPU: Final = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_EACH_LINK: Final = "Hostname, gpu, UUID, modelName, link"
_EACH_GPU: Final = "Hostname, gpu, UUID, modelName"
_PORT: Final = "Port {{ $labels.port }} of {{ $labels.device }} in {{ $labels.Hostname }}"
_EACH_PORT: Final = "Hostname, device, port"
_BRIDGED: Final = ".*((PCI[Ee]|NVL|RTX|Quadro|GeForce|TITAN).*|A[34]0)"
"""Models whose boards a bridge may connect: a GPU of these may have no link. Source: NVIDIA's data sheets."""
_ACTIVE: Final = 4
"""State of a port that can be used. Source: Linux, Documentation/ABI/stable/sysfs-class-infiniband."""
_ERRORS_PER_HOUR: Final = 10
"""Errors of a port within an hour that are usual."""


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Alerts: links that are down, that recovered, that are slower or have errors."""
    nvlinks = (_nvlink_down(profile), _nvlink_recovers(profile))
    ports = (_port_down(profile), _port_degraded(profile))
    return (*nvlinks, *ports)


def _nvlink_down(profile: Profile) -> AlertRule:
    """Never by a link that is 0 alone: a GPU may have links, and be a board, that nothing connects."""
    up = promql.name(nvlink.UP)
    now = f"max by ({_EACH_LINK}) ({up})"
    before = f"max by ({_EACH_LINK}) (max_over_time({up}[{profile.window(DAY)}]))"
    fell = f"count by ({_EACH_GPU}) ({now} == 0 and {before} == 1)"
    of_gpu = f"sum by ({_EACH_GPU}) ({now})"
    of_peers = f"max by (Hostname, modelName) ({of_gpu})"
    unbridged = f'sum by ({_EACH_GPU}) ({up}{{modelName=~"{_BRIDGED}"}}) == 0'
    fewer = f"(-({of_gpu} - on (Hostname, modelName) group_left () {of_peers}) > 0) unless ({unbridged})"
    return AlertRule(
        name="KernelcastGpuNvlinkDown",
        expr=f"({fell}) or ({fewer})",
        hold_seconds=2 * MINUTE,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_GPU} has {{{{ $value }}}} NVLinks down",
        description="These links were up within a day, or other GPUs of the model in the same node have them up. "
        "Programs that exchange data between GPUs fail, or become slower because the links are missing.",
        action="Look for XID 74 of this GPU and its neighbours and at `nvidia-smi nvlink --status`; drain the node and "
        "reset its GPUs together, and restart the fabric manager if there is one.",
        subject=("Hostname", "gpu"),
        dashboard=GPUS,
        steps=(
            RELEASE_FIRST,
            "If a link stays down: reseat the bridge or the board, or have it replaced.",
        ),
        source="nvml.h, NVML_FI_DEV_NVLINK_GET_STATE",
    )


def _nvlink_recovers(profile: Profile) -> AlertRule:
    errors = f'{promql.name(nvlink.ERRORS)}{{error=~"recovery|recovery_event|recovery_failed"}}'
    recovered = f"increase({errors}[{profile.window(HOUR)}])"
    return AlertRule(
        name="KernelcastGpuNvlinkRecovers",
        expr=f"max by (Hostname, gpu, UUID, link, error) ({recovered}) > 0",
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary=f"NVLink {{{{ $labels.link }}}} of {_GPU} had to recover {{{{ $value | humanize }}}} times within an "
        "hour",
        description="The link lost its connection and trained again within the hour; data waited in the meantime. This "
        "often happens before XID 74. The alert needs exporter.nvlink_links: all.",
        action="Compare with the other links of the GPU and with the GPU at the other end; plan to reset the GPUs, and "
        "to reseat or replace the board when the same link recovers again.",
        subject=("Hostname", "gpu"),
        dashboard=GPUS,
        steps=(RELEASE_FIRST,),
        source="nvml.h, NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY and NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
    )


def _of_port(expr: str) -> str:
    return f"max by ({_EACH_PORT}) ({node_exporter.of_host(expr)})"


def _port_down(profile: Profile) -> AlertRule:
    now = _of_port(node_exporter.PORT_STATE)
    before = _of_port(f"max_over_time({node_exporter.PORT_STATE}[{profile.window(DAY)}])")
    return AlertRule(
        name="KernelcastInfinibandPortDown",
        expr=f"{now} < {_ACTIVE} and {before} >= {_ACTIVE}",
        hold_seconds=15 * MINUTE,  # longer than a switch takes to reboot
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_PORT} is down",
        description="The port was active within a day and is not now, and a reboot of its switch takes less: 1 down, "
        "2 initialising (no subnet manager has configured it), 3 armed. Jobs over several nodes fail or use the "
        "remaining ports. The alerts of ports need node_exporter.",
        action="Look at `ibstat` and the switch's end: cable, transceiver, switch port, subnet manager. If the port "
        "was unplugged on purpose, the alert ends within a day.",
        subject=("Hostname",),
        dashboard=GPUS,
        source="Linux, Documentation/ABI/stable/sysfs-class-infiniband: state",
    )


def _port_degraded(profile: Profile) -> AlertRule:
    """A port at a lower rate than before, or with errors of the physical link."""
    now = _of_port(node_exporter.PORT_RATE)
    before = _of_port(f"max_over_time({node_exporter.PORT_RATE}[{profile.window(DAY)}])")
    active = f"{_of_port(node_exporter.PORT_STATE)} >= {_ACTIVE}"
    slower = f'label_replace(({now} < {before}) and {active}, "error", "rate", "", "")'
    increases = (
        f'label_replace({_of_port(f"increase({counter}[{profile.window(HOUR)}])")}, "error", "{error}", "", "")'
        for counter, error in node_exporter.PORT_PHYSICAL_ERRORS.items()
    )
    return AlertRule(
        name="KernelcastInfinibandPortDegraded",
        expr=f"{slower} or ({' or '.join(increases)}) > {_ERRORS_PER_HOUR}",
        hold_seconds=5 * MINUTE,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.WARNING,
        summary=_PORT + ' {{ if eq $labels.error "rate" }}trained to {{ $value | humanize }}B/s, less than before'
        "{{ else }}counted {{ $value | humanize }} errors within an hour: {{ $labels.error }}{{ end }}",
        description="The port is active at a lower rate than it had within a day, or had more than "
        f"{_ERRORS_PER_HOUR} errors of the physical link within an hour. Every collective waits for its slowest port.",
        action="Compare with the port at the other end of the cable; clean, reseat or replace cable and transceiver, "
        "then take the port down and up once.",
        subject=("Hostname",),
        dashboard=GPUS,
        source="Linux, Documentation/ABI/stable/sysfs-class-infiniband: rate, counters",
    )
