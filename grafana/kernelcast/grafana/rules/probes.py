"""Alerts about the probes that measure kernels: their cost, lost records, and probes that are off."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import PIPELINE
from kernelcast.grafana.rules.model import MINUTE, AlertRule, AlertSeverity, Profile
from kernelcast.grafana.rules.recording import RATE_WINDOW_SECONDS
from kernelcast.wire.catalogue import kernel

_SUBJECT: Final = ("Hostname", "gpu", "program", "rank")
_RANK: Final = (
    "{{ with $labels.rank }}rank {{ . }} of {{ end }}{{ $labels.program }} on GPU {{ $labels.gpu }} of "
    "{{ $labels.Hostname }}"
)


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Cost, probes that are off, and lost records."""
    return (_overhead(profile), _off(), _records(profile))


def _overhead(profile: Profile) -> AlertRule:
    limit = profile.thresholds.probe_overhead_ratio
    taken = f"rate({promql.name(kernel.PROBE_OVERHEAD)}[{profile.window(RATE_WINDOW_SECONDS)}])"
    return AlertRule(
        name="KernelcastProbeOverheadHigh",
        who="operators of kernelcast",
        expr=f"sum without (instance) ({taken}) > {limit:g}",
        hold_seconds=10 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary=f"The probe takes {{{{ $value | humanizePercentage }}}} of a thread of {_RANK}",
        description=f"The limit is {limit * 100:g} % of a thread's time.",
        action="Measure fewer launches (a lower sampling rate), or switch the probe off in this program and report it.",
        subject=("Hostname", "gpu", "program"),
        dashboard=PIPELINE,
    )


def _off() -> AlertRule:
    state = promql.name(kernel.PROBE_STATE)
    return AlertRule(
        name="KernelcastProbeOff",
        who="operators of kernelcast",
        expr=f'max by (Hostname, gpu, program, rank, reason) ({state}{{state="off"}}) == 1',
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary=f"The probe of {_RANK} has switched itself off: {{{{ $labels.reason }}}}",
        description="It took more of the program's time than its budget allows, or could not measure at all. The "
        "program continues; its kernels are not measured.",
        action="Read the reason. Over budget: lower the sampling rate or use CUPTI, which costs less per launch. "
        "Otherwise `kernelcast doctor` on that node shows the missing requirement of a method.",
        subject=_SUBJECT,
        dashboard=PIPELINE,
    )


def _records(profile: Profile) -> AlertRule:
    dropped = f"increase({promql.name(kernel.PROBE_RECORDS)}[{profile.window(RATE_WINDOW_SECONDS)}])"
    return AlertRule(
        name="KernelcastProbeLosingRecords",
        who="operators of kernelcast",
        expr=f"sum without (instance) ({dropped}) > 0",
        hold_seconds=5 * MINUTE,
        severity=AlertSeverity.WARNING,
        summary=f"The probe of {_RANK} lost {{{{ $value | humanize }}}} activity records within five minutes",
        description="CUPTI had no buffer left, records came faster than they were read, or the probe refuses reports "
        "of the program: launches and times of this program are too low.",
        action="Read the program's log: the probe gives reasons for a refusal. Else check that it has a free core.",
        subject=_SUBJECT,
        dashboard=PIPELINE,
    )
