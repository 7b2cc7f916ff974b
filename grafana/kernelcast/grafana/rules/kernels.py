"""Alerts about kernels."""

from typing import Final

from kernelcast.grafana.rules.model import MINUTE, AlertRule, Profile, RuleGroup, Severity
from kernelcast.grafana.rules.recording import KERNEL_BASELINE, KERNEL_MEAN, KERNEL_SHARE

_SLOWER_RATIO: Final = 1.2
_SHARE_WORTH_A_MESSAGE: Final = 0.02
_OTHER_SHARE: Final = 0.2


def group(profile: Profile) -> RuleGroup:  # noqa: ARG001  the same call for every group
    """Alerts: a slower kernel, and too many kernels beyond the limit."""
    return RuleGroup("kernelcast-kernel-alerts", (_slower(), _other_share()))


def _slower() -> AlertRule:
    judged = '{kernel!="other", kernel_class!="collective"}'
    return AlertRule(
        name="KernelcastKernelSlower",
        expr=f"{KERNEL_MEAN}{judged} / {KERNEL_BASELINE} > {_SLOWER_RATIO} and {KERNEL_SHARE} > "
        f"{_SHARE_WORTH_A_MESSAGE}",
        hold_seconds=15 * MINUTE,
        severity=Severity.WARNING,
        summary="Kernel {{ $labels.kernel }} of {{ $labels.program }} takes {{ $value | humanize }} times as long as "
        "before",
        description="The mean duration on GPU {{ $labels.gpu }} of {{ $labels.Hostname }} exceeds its own median of "
        "a day before by more than 20 %, and the kernel takes more than 2 % of the program's GPU time. Collectives "
        "are not included: they wait for peers. A kernel without a history does not fire. A change of shapes or "
        "code looks the same; the predictor compares each configuration separately and can distinguish them.",
        action="Look at the heatmap of this kernel: a new band is a new configuration, a shifted band is a slowdown. "
        "Then check throttling on the same GPU and the same kernel on other GPUs.",
        subject=("Hostname", "gpu", "program", "kernel"),
    )


def _other_share() -> AlertRule:
    return AlertRule(
        name="KernelcastKernelsBeyondCap",
        expr=f'{KERNEL_SHARE}{{kernel="other"}} > {_OTHER_SHARE}',
        hold_seconds=30 * MINUTE,
        severity=Severity.INFO,
        summary="{{ $value | humanizePercentage }} of the GPU time of {{ $labels.program }} is in kernels without a "
        "series of their own",
        description="The limit on kernels per program and GPU excludes more than 20 % of the GPU time.",
        action="Raise the exporter's --kernels for this program, or set it to all, if Prometheus can hold the series.",
        subject=("Hostname", "gpu", "program"),
    )
