"""Alerts about kernels: slower than usual, a rank that the others wait for."""

from kernelcast.grafana.rules import standing
from kernelcast.grafana.rules.model import MINUTE, AlertRule, AlertSeverity, Profile, lately
from kernelcast.grafana.rules.recording import KERNEL_BASELINE, KERNEL_MEAN, KERNEL_SHARE, STATE_SECONDS


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Alerts: a slower kernel, and a rank that the others wait for."""
    return (_slower(profile), _straggler(profile))


def _slower(profile: Profile) -> AlertRule:
    limits = profile.thresholds
    judged = '{kernel!="other", kernel_class!="collective"}'
    return AlertRule(
        name="KernelcastKernelSlower",
        expr=f"{KERNEL_MEAN}{judged} / {lately(KERNEL_BASELINE, profile)} > {limits.kernel_slower_ratio:g} "
        f"and {KERNEL_SHARE} > {limits.kernel_share_ratio:g}",
        hold_seconds=15 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="Kernel {{ $labels.kernel }} of {{ $labels.program }} takes {{ $value | humanize }} times as long as "
        "before",
        description="The mean duration on GPU {{ $labels.gpu }} of {{ $labels.Hostname }} exceeds its usual one by "
        f"more than {(limits.kernel_slower_ratio - 1) * 100:.3g} %, and the kernel takes more than "
        f"{limits.kernel_share_ratio * 100:g} % of the program's GPU time. Collectives "
        "are not included: they wait for peers. The usual one is the median of a day before, or that of its first "
        "minutes, with the same launch configuration and versions; without one the alert does not fire.",
        action="Look at the heatmap of this kernel: a new band is a new configuration, a shifted band is a slowdown. "
        "Then check throttling on the same GPU and the same kernel on other GPUs.",
        subject=("Hostname", "gpu", "program", "kernel"),
    )


def _straggler(profile: Profile) -> AlertRule:
    waits = f'{STATE_SECONDS}{{state="collective"}}'
    each = standing.by_job(f"max by (Hostname, gpu, program, rank) ({waits})")
    median = f"quantile by (program, job_id) (0.5, {each})"
    less = profile.thresholds.straggler_ratio
    return AlertRule(
        name="KernelcastStraggler",
        expr=f"-({each} - on (program, job_id) group_left () {median}) > {less:g}",
        hold_seconds=15 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="Rank {{ $labels.rank }} of {{ $labels.program }} on GPU {{ $labels.gpu }} of {{ $labels.Hostname }} "
        "is the one that the others wait for",
        description="It spends {{ $value | humanizePercentage }} of its time less in collectives than the median rank "
        "of its job: the others wait there until it arrives. Stages of a pipeline differ by design; then silence "
        "the alert for that program.",
        action="Compare clocks, temperature and PCIe lanes of this GPU with the others', and the kernels of this rank "
        "with theirs (ranks side by side). The same work in more time points to the GPU, more work to the data.",
        subject=("Hostname", "gpu", "program", "rank"),
    )
