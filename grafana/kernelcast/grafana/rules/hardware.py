"""Alerts about the GPUs themselves."""

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import GPUS
from kernelcast.grafana.rules.model import DAY, MINUTE, Alert, Group, Profile, Severity
from kernelcast.grafana.rules.recording import CLOCK_EVENT, MEMORY_USED
from kernelcast.wire.catalogue import device

_GPU = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_SUBJECT = ("Hostname", "gpu")


def group(profile: Profile) -> Group:
    """Throttling, memory, failed rows."""
    return Group(
        "kernelcast-hardware-alerts", (_throttling(), _memory(profile), _remap_failure(), _remapped_rows(profile))
    )


def _throttling() -> Alert:
    return Alert(
        name="KernelcastGpuThrottling",
        expr=f"{CLOCK_EVENT} == 1",
        hold_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary=f"{_GPU} holds its clocks back: {{{{ $labels.reason }}}}",
        description="The driver has lowered the clocks for this reason without a break. The power cap, which is "
        "normal under load, is not counted.",
        action="Compare temperature and power with the node's other GPUs: thermal reasons point to cooling or "
        "neighbours, a power brake to the supply. Move the job if it waits for this GPU.",
        subject=_SUBJECT,
        dashboard=GPUS,
    )


def _memory(profile: Profile) -> Alert:
    return Alert(
        name="KernelcastGpuMemoryNearlyFull",
        expr=f"{MEMORY_USED} > 0.95 and deriv({MEMORY_USED}[{profile.window(5 * MINUTE)}]) > 0",
        hold_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary=f"{_GPU} uses {{{{ $value | humanizePercentage }}}} of its memory, and the use grows",
        description="More than 95 % of the usable frame buffer is in use and use keeps growing. Memory that a "
        "framework takes at start and keeps does not fire this.",
        action="Look at the memory pools of the programs on this GPU; free caches, or lower the batch size before it "
        "runs out.",
        subject=_SUBJECT,
        dashboard=GPUS,
    )


def _remap_failure() -> Alert:
    return Alert(
        name="KernelcastGpuRowRemapFailure",
        expr=f"max without (instance) ({promql.name(device.ROW_REMAP_FAILURE)}) == 1",
        hold_seconds=0,
        severity=Severity.CRITICAL,
        summary=f"{_GPU} cannot remap a failed memory row",
        description="The GPU ran out of spare rows; further memory errors will hit programs.",
        action="Drain the GPU and replace it (NVIDIA GPU memory error management, row remapping failure).",
        subject=_SUBJECT,
        dashboard=GPUS,
    )


def _remapped_rows(profile: Profile) -> Alert:
    rows = promql.name(device.UNCORRECTABLE_REMAPPED_ROWS)
    return Alert(
        name="KernelcastGpuMemoryRowsRemapped",
        expr=f"max without (instance) (increase({rows}[{profile.window(DAY)}])) > 0",
        hold_seconds=0,
        severity=Severity.WARNING,
        summary=f"{_GPU} remapped memory rows after uncorrectable errors",
        description="At least one row was remapped within a day because of uncorrectable errors.",
        action="Reset the GPU at the next chance so that the remapping takes effect, and watch whether it grows.",
        subject=_SUBJECT,
        dashboard=GPUS,
    )
