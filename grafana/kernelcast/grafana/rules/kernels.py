"""Alerts about kernels: slower than usual, a rank that the others wait for."""

from kernelcast.grafana import promql
from kernelcast.grafana.rules import standing
from kernelcast.grafana.rules.model import MINUTE, SHORT_NAME, AlertRule, AlertSeverity, Profile, lately
from kernelcast.grafana.rules.recording import KERNEL_BASELINE, KERNEL_MEAN, KERNEL_SHARE, STATE_SECONDS
from kernelcast.wire.catalogue import kernel


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
        summary="Kernel {{ " + SHORT_NAME + " $labels.kernel }} of {{ $labels.program }} takes "
        "{{ $value | humanize }} times as long as before",
        description="The mean duration on GPU {{ $labels.gpu }} of {{ $labels.Hostname }} exceeds its usual one by "
        f"more than {(limits.kernel_slower_ratio - 1) * 100:.3g} %, and the kernel takes more than "
        f"{limits.kernel_share_ratio * 100:g} % of the program's GPU time. Collectives "
        "are not included: they wait for peers. The usual one is the median of a day before, or that of its first "
        "minutes, with the same launch configuration and versions; without one the alert does not fire.",
        action="Look at the heatmap of this kernel: a new band is a new configuration, a shifted band is a slowdown. "
        "Then check throttling on the same GPU and the same kernel on other GPUs.",
        subject=("program", "kernel"),
    )


def _straggler(profile: Profile) -> AlertRule:
    """By the phases of its steps where they are known, else by the time that its peers wait in collectives."""
    limit = profile.thresholds.straggler_ratio
    rank = "Hostname, gpu, program, rank"
    phases = f'rate({promql.name(kernel.PHASE_SECONDS)}{{phase=~"data|forward|optimizer"}}'
    phased = standing.by_job(f"max by ({rank}, phase) ({phases}[{profile.window(5 * MINUTE)}]))")
    usual = f"quantile by (program, job_id, phase) (0.5, {phased})"
    several = f"count by (program, job_id, phase) ({phased}) > 2"
    slow = f"{phased} - on (program, job_id, phase) group_left () {usual} > {limit:g} "
    slow += f"and on (program, job_id, phase) {several}"
    waits = standing.by_job(f'max by ({rank}) ({STATE_SECONDS}{{state="collective"}})')
    median = f"quantile by (program, job_id) (0.5, {waits})"
    awaited = f"-({waits} - on (program, job_id) group_left () {median}) > {limit:g}"
    return AlertRule(
        name="KernelcastStraggler",
        expr=f"({slow}) or ({awaited}) unless on ({rank}) ({slow})",
        hold_seconds=15 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary="Rank {{ $labels.rank }} of {{ $labels.program }} on GPU {{ $labels.gpu }} of {{ $labels.Hostname }} "
        "{{ with $labels.phase }}is slow in {{ . }}, and {{ end }}is the one that the others wait for",
        description="It spends {{ $value | humanizePercentage }} more of its time at work than the median rank of its "
        f"job, which waits for it; the limit is {limit * 100:g} %. The job moves at the speed of this rank. Stages of "
        "a pipeline differ by design; then silence the alert for that program.",
        action='{{ if eq $labels.phase "data" }}Compare CPU load and storage of its node with its peers\'; while CPU '
        "cores are free, raise num_workers and prefetch_factor of its DataLoader.{{ else }}Compare "
        "clocks, temperature and PCIe lanes of this GPU with the others', and the kernels of this rank with theirs: "
        "the same work in more time points to the GPU, more work to the data.{{ end }}",
        first="Compare clocks, temperature and PCIe lanes of this GPU with the others'; in the phase data its loader "
        "and storage.",
        subject=("program",),
    )
