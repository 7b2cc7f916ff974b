"""The alert about tuning hints that wait for a person; programs protect themselves from all others."""

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import KERNELS
from kernelcast.grafana.rules.model import HOUR, AlertRule, AlertSeverity, Profile
from kernelcast.wire.catalogue import forecast


def alerts(profile: Profile) -> tuple[AlertRule, ...]:  # noqa: ARG001  the same call for every group
    """One alert: a hint that a person has not answered."""
    return (_unanswered(),)


def _unanswered() -> AlertRule:
    pending = promql.name(forecast.APPROVAL_PENDING)
    return AlertRule(
        name="KernelcastHintWaitsForApproval",
        who="owner of the program",
        expr=f"min without (instance) ({pending})",
        hold_seconds=HOUR,
        severity=AlertSeverity.WARNING,
        summary="{{ $labels.program }} waits for an answer: {{ $labels.tunable }} = {{ $labels.value }}",
        description="A hint that changes the program's results was proposed more than an hour ago. No program gets it "
        "before a person approves it.",
        action="Run `kernelcast hints explain {{ $labels.hint_id }}`, ask the program's owner, then "
        "`kernelcast hints approve` or `kernelcast hints reject`.",
        subject=("program",),
        dashboard=KERNELS,
    )
