"""Alerts about errors that the driver reports: XIDs by their usual cause, and memory that lost data."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import GPUS
from kernelcast.grafana.rules.model import DAY, MINUTE, AlertRule, Profile, RuleGroup, Severity
from kernelcast.wire.catalogue.devices import device, gpu

APPLICATION_XIDS: Final = (13, 31, 43, 45, 68, 109)
"""Usually a program's own fault, after which the GPU is healthy.

Source: NVIDIA/k8s-device-plugin, internal/rm/health.go, which keeps a GPU schedulable after these and no others."""

HARDWARE_XIDS: Final = (48, 63, 64, 74, 79, 92, 94, 95)
"""Memory, NVLink and bus: 48 double-bit error, 63 and 64 row remapping and its failure, 74 NVLink, 79 fallen off the
bus, 92 many single-bit errors, 94 and 95 contained and uncontained memory error.

Source: NVIDIA, Xid errors, docs.nvidia.com/deploy/xid-errors (catalog of Ampere and later)."""

_GPU: Final = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_ERROR: Final = "XID {{ $labels.xid }} ({{ $labels.err_msg }})"
_SUBJECT: Final = ("Hostname", "gpu")
_EVENT: Final = "Hostname, gpu, UUID, xid, err_msg"
_LASTS: Final = 15 * MINUTE
"""How long one XID is told of; within it a second one of the same number is no new alert."""

_CATALOG: Final = "NVIDIA, Xid errors, <https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html>"
_MEMORY_ERROR: Final = (
    "48, 94, 95: a memory error. After 95 restart every program on the GPU, after 94 the one that was hit. Look at "
    "remapped rows: they take effect at the next reset."
)
_ROW: Final = "63: a row was remapped; reset the GPU when it is idle. 64: that could not be recorded; reset it now."
_LINK: Final = "74: look at NVLink errors of this GPU and its neighbours; one bad link shows on both ends."
_BUS: Final = (
    "79: the GPU fell off the bus. Look at power, PCIe retries and temperature before that; reboot, and have the GPU "
    "replaced if the error returns."
)
_SINGLE_BIT_ERRORS: Final = "92: many single-bit errors; run NVIDIA's diagnostics (dcgmi diag -r 3)."
_HARDWARE_STEPS: Final = (_MEMORY_ERROR, _ROW, _LINK, _BUS, _SINGLE_BIT_ERRORS)


def group(profile: Profile) -> RuleGroup:
    """XIDs of the hardware, of programs, and all others; uncorrectable memory errors."""
    xids = (_hardware(profile), _other(profile), _application(profile))
    return RuleGroup("kernelcast-gpu-error-alerts", (*xids, _uncorrectable(profile)))


def _xids(matcher: str, profile: Profile) -> str:
    """Errors that were counted lately, through NVML or in the kernel's log; also where a scrape missed the first 0."""
    window = profile.window(_LASTS)
    counts = [f"{promql.name(metric)}{{{matcher}}}" for metric in (gpu.XID_ERRORS, gpu.KERNEL_LOG_XIDS)]
    return " or ".join(f"max by ({_EVENT}) ({promql.happened(one, window=window)})" for one in counts)


def _numbers(codes: tuple[int, ...]) -> str:
    return "|".join(map(str, codes))


def _hardware(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastGpuXidHardware",
        expr=_xids(f'xid=~"{_numbers(HARDWARE_XIDS)}"', profile),
        hold_seconds=0,
        severity=Severity.CRITICAL,
        summary=f"{_GPU} reported {_ERROR}",
        description="The driver reported an error of memory, NVLink or bus. Programs on this GPU have failed, or may "
        "have computed with corrupt data.",
        action="Take the GPU out of scheduling and let its programs end; then reset it, or reboot the node for XID 79.",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=_HARDWARE_STEPS,
        source=_CATALOG,
    )


def _other(profile: Profile) -> AlertRule:
    known = _numbers((*APPLICATION_XIDS, *HARDWARE_XIDS))
    return AlertRule(
        name="KernelcastGpuXid",
        expr=_xids(f'xid!~"{known}"', profile),
        hold_seconds=0,
        severity=Severity.WARNING,
        summary=f"{_GPU} reported {_ERROR}",
        description="The driver reported an error that is neither clearly a program's nor clearly the hardware's; 119 "
        "and 120, for example, come from the GPU's own firmware.",
        action="Look up the number in NVIDIA's catalog, and read its line in the kernel's log (`NVRM: Xid`).",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=("If it returns after the program was restarted, drain the node and run NVIDIA's diagnostics.",),
        source=_CATALOG,
    )


def _application(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastGpuXidApplication",
        expr=_xids(f'xid=~"{_numbers(APPLICATION_XIDS)}"', profile),
        hold_seconds=0,
        severity=Severity.INFO,
        summary=f"A program on {_GPU} caused {_ERROR}",
        description="Usually the program's own fault, such as an access out of bounds; the GPU is healthy afterwards.",
        action="Have the program's owner run it under compute-sanitizer. If several programs get the same number on "
        "one GPU, and on no other, suspect the GPU.",
        subject=_SUBJECT,
        dashboard=GPUS,
        source="NVIDIA/k8s-device-plugin, internal/rm/health.go: the XIDs after which it keeps a GPU schedulable",
    )


def _uncorrectable(profile: Profile) -> AlertRule:
    errors = promql.name(device.ECC_DBE_VOLATILE)
    return AlertRule(
        name="KernelcastGpuMemoryUncorrectable",
        expr=f"max by (Hostname, gpu, UUID) ({promql.happened(errors, window=profile.window(DAY))})",
        hold_seconds=0,
        severity=Severity.CRITICAL,
        summary=f"{_GPU} had uncorrectable memory errors",
        description="Double-bit errors were counted within a day: data was lost, and the program that used it has "
        "failed. The counters table must have the row DCGM_FI_DEV_ECC_DBE_VOL_TOTAL.",
        action="Restart the programs that ran on it, and reset the GPU when it is idle.",
        subject=_SUBJECT,
        dashboard=GPUS,
        steps=("Errors that return after a reset, or a failed row remapping, are a reason to have it replaced.",),
        source="NVIDIA, GPU memory error management, <https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt>",
    )
