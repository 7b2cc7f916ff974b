"""Alerts about errors that the driver reports: XIDs by their usual cause, and memory that lost data."""

from collections.abc import Iterable, Iterator
from typing import Final

from kernelcast.grafana import promql
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
from kernelcast.wire.catalogue import xids
from kernelcast.wire.catalogue.devices import device, gpu
from kernelcast.wire.catalogue.xids import XIDS, Action, XidSubject

_GPU: Final = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_ERROR: Final = "XID {{ $labels.xid }} ({{ $labels.err_msg }})"
_SUBJECT: Final = ("Hostname", "gpu")
_EVENT: Final = "Hostname, gpu, UUID, xid, err_msg"
_COUNTER: Final = "Hostname, UUID, pci_bus_id, xid"
_KEPT_SECONDS: Final = 20 * MINUTE
"""Longer than alerts about its consequences are kept after their condition ended, so that it mutes them until then."""
_ABSENT: Final = 2 * HOUR
"""After this time without a sample of a GPU's counter, one with another pod is that of a new count."""
_LASTS: Final = 15 * MINUTE
"""How long an alert about one XID fires; within it a second one of the same number is no new alert."""
_JITTER_SECONDS: Final = 60
"""An exporter that reads the kernel's log again may give an old error a slightly later time."""


_HARDWARE: Final = xids.numbers(urgent=True)
_APPLICATION: Final = xids.numbers(XidSubject.PROGRAM)
_WATCHED: Final = xids.numbers() - _HARDWARE - _APPLICATION
_DOUBLE_BIT: Final = 48
_CONTAINED: Final = "94"
_UNCONTAINED: Final = "48|95"
"""XIDs of memory errors after which `KernelcastGpuXidHardware` says more, unless 94 came with them."""
_RETURNS: Final = "If the error returns, run NVIDIA's diagnostics (dcgmi diag -r 3) and have the GPU replaced."


def _listed(*, urgent: bool) -> tuple[str, ...]:
    """One step for each action, with the numbers that ask for it."""
    known = [(number, XIDS[number]) for number in sorted(_HARDWARE if urgent else _WATCHED)]
    asking = {action: [f"{number} {xid.meaning}" for number, xid in known if xid.action is action] for action in Action}
    return tuple(f"{action[0].upper()}{action[1:]}: {'; '.join(found)}." for action, found in asking.items() if found)


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """XIDs of the hardware, of programs, and all others; uncorrectable memory errors."""
    xids = (_hardware(profile), _other(profile), _application(profile))
    return (*xids, _uncorrectable(profile))


def _xids(matcher: str, profile: Profile) -> str:
    """Errors that were counted lately, through NVML or in the kernel's log; also where a scrape missed the first 0."""
    window, ranges = profile.window(_LASTS), {"known": profile.window(DAY), "relabelled": profile.window(_ABSENT)}
    counts = [f"{promql.name(metric)}{{{matcher}}}" for metric in (gpu.XID_ERRORS, gpu.KERNEL_LOG_XIDS)]
    counted = [promql.happened(one, of=_COUNTER, by=_EVENT, window=window, **ranges) for one in counts]
    return " or ".join((*counted, *_later(matcher, profile)))


def _later(matcher: str, profile: Profile) -> Iterator[str]:
    """Errors whose last time is later than before: after a restart a count may be as high as that under another pod."""
    for metric in (gpu.XID_LAST, gpu.KERNEL_LOG_XID_LAST):
        last = f"{promql.name(metric)}{{{matcher}}}"
        past = f"max_over_time({last}[{profile.window(DAY)}] offset {profile.window(_LASTS)})"
        before = f"max by ({_COUNTER}) ({past})"
        yield f"max by ({_EVENT}) ({last} - on ({_COUNTER}) group_left () {before} > {_JITTER_SECONDS})"


def _recent(numbers: str, seconds: int = DAY) -> str:
    """XIDs with one of the numbers, `48|95`, that came within some seconds, with the time since each."""
    rows = (f'{promql.name(metric)}{{xid=~"{numbers}"}}' for metric in (gpu.XID_LAST, gpu.KERNEL_LOG_XID_LAST))
    return " or ".join(f"max by ({_EVENT}) (time() - {row} < {seconds})" for row in rows)


def _while_unrecovered(numbers: str) -> str:
    """XIDs of the last day whose GPU does not answer, or needs a recovery action."""
    gone, unhealthy = f"{promql.name(gpu.GPU_UP)} == 0", f"{promql.name(device.RECOVERY_ACTION)} > 0"
    subjects = f"(group by (Hostname, UUID) ({gone}) or group by (Hostname, UUID) ({unhealthy}))"
    return f"({_recent(numbers)}) and on (Hostname, UUID) {subjects}"


def unless_recent(expr: str, numbers: str, seconds: int = DAY) -> str:
    """An expression about GPUs, without those that had one of the XIDs within some seconds."""
    return f"({expr}) unless on (Hostname, UUID) ({_recent(numbers, seconds)})"


def unless_uncontained(expr: str) -> str:
    """An expression about GPUs, without those that are to be reset anyway, for an uncontained error within a day."""
    return f"({expr}) unless on (Hostname, UUID) ({unless_recent(_recent(_UNCONTAINED), _CONTAINED)})"


def _numbers(codes: Iterable[int]) -> str:
    return "|".join(map(str, sorted(codes)))


def _hardware(profile: Profile) -> AlertRule:
    others = f'xid=~"{_numbers(_HARDWARE - {_DOUBLE_BIT})}"'
    double_bit = unless_recent(_xids(f'xid="{_DOUBLE_BIT}"', profile), _CONTAINED, _LASTS)
    unrecovered = _while_unrecovered(_numbers(_HARDWARE))
    return AlertRule(
        name="KernelcastGpuXidHardware",
        expr=f"{_xids(others, profile)} or {double_bit} or {unrecovered}",
        hold_seconds=0,
        keep_seconds=_KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_GPU} reported {_ERROR}",
        description="The driver reported an error after which the GPU is unusable until it is reset or its node "
        "rebooted. Programs on it have failed, or may have computed with corrupt data. The alert lasts while the GPU "
        "does not answer or needs a recovery action.",
        action="Take the GPU out of scheduling and let its programs end; then reset it, or reboot the node for XID 79.",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=(*_listed(urgent=True), RELEASE_FIRST, _RETURNS),
        source=xids.SOURCES,
    )


def _other(profile: Profile) -> AlertRule:
    known = _numbers(_APPLICATION | _HARDWARE)
    return AlertRule(
        name="KernelcastGpuXid",
        expr=_xids(f'xid!~"{known}"', profile),
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary=f"{_GPU} reported {_ERROR}",
        description="The driver reported an error after which the GPU can be used, or whose number is in no table "
        "of ours.",
        action="Act on the number. 63: reset the GPU when it is idle. 92: many single-bit errors; drain it when its "
        "job has ended, reset it, and run NVIDIA's diagnostics. 94: restart the program that was hit. Any other: look "
        "it up in NVIDIA's catalog, and read its line in the kernel's log (`NVRM: Xid`).",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=(
            *_listed(urgent=False),
            RELEASE_FIRST,
            "If it returns after the program was restarted, drain the node and run NVIDIA's diagnostics.",
        ),
        source=xids.SOURCES,
    )


def _application(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastGpuXidApplication",
        who="owner of the program",
        expr=_xids(f'xid=~"{_numbers(_APPLICATION)}"', profile),
        hold_seconds=0,
        severity=AlertSeverity.INFO,
        summary=f"A program on {_GPU} caused {_ERROR}",
        description="Usually the program's own fault, such as an access out of bounds; the GPU is healthy afterwards.",
        action="Have the program's owner run it under compute-sanitizer. If several programs get the same number on "
        "one GPU, and on no other, suspect the GPU.",
        subject=_SUBJECT,
        dashboard=GPUS,
        source="NVIDIA/k8s-device-plugin, internal/rm/health.go: the XIDs after which it keeps a GPU schedulable",
    )


def _uncorrectable(profile: Profile) -> AlertRule:
    errors, window = promql.name(device.ECC_DBE_VOLATILE), profile.window(DAY)
    counted = promql.happened(errors, of="Hostname, UUID", by="Hostname, gpu, UUID", window=window, known=window)
    return AlertRule(
        name="KernelcastGpuMemoryUncorrectable",
        expr=unless_uncontained(counted),
        hold_seconds=0,
        keep_seconds=KEPT_SECONDS,
        severity=AlertSeverity.WARNING,
        summary=f"{_GPU} had {{{{ $value | humanize }}}} uncorrectable memory errors within a day",
        description="Data was lost, and the program that used it has failed. The GPU handled the error; where it could "
        "not, an alert about an XID, a failed row or a recovery says so, instead of this one. The counters table must "
        "have the row DCGM_FI_DEV_ECC_DBE_VOL_TOTAL.",
        action="Restart the programs that ran on it, and reset the GPU when it is idle.",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=(
            RELEASE_FIRST,
            "Errors that return after a reset, or a failed row remapping, are a reason to have it replaced.",
        ),
        source="NVIDIA, GPU memory error management, <https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt>",
    )
