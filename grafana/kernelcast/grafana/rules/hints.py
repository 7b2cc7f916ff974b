"""Alerts about tuning hints: for information, since programs protect themselves; some hints wait for a person."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import HINTS
from kernelcast.grafana.rules.model import DAY, HOUR, AlertRule, AlertSeverity, Profile
from kernelcast.wire.catalogue import forecast, kernel
from kernelcast.wire.events import OutcomeState

_SUBJECT: Final = ("Hostname", "gpu", "program")


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Alerts: a hint that was rolled back, one that was rejected, and one that a person has not answered."""
    return (_rolled_back(profile), _rejected(profile), _unanswered())


def _happened(state: OutcomeState, profile: Profile) -> str:
    """That a state was reached lately."""
    outcomes = f'{promql.name(kernel.HINT_OUTCOMES)}{{state="{state}"}}'
    found = promql.happened(outcomes, window=profile.window(HOUR), known=profile.window(DAY))
    return f"sum without (instance) ({found})"


def _rolled_back(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastHintRolledBack",
        expr=_happened(OutcomeState.ROLLED_BACK, profile),
        hold_seconds=0,
        severity=AlertSeverity.INFO,
        summary="{{ $labels.program }} took back a hint for {{ $labels.tunable }}",
        description="The program tried the value, measured, and went back to the old one. Nothing is broken.",
        action="Look at the measured ratio; if hints for this tunable keep failing, take it out of the predictor's "
        "rules.",
        subject=_SUBJECT,
        dashboard=HINTS,
    )


def _rejected(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastHintRejected",
        expr=_happened(OutcomeState.REJECTED, profile),
        hold_seconds=0,
        severity=AlertSeverity.INFO,
        summary="{{ $labels.program }} refused a hint for {{ $labels.tunable }}",
        description="The value is not on the program's list, or was meant for another device model or code version.",
        action="Read the reason on topic kernelcast.outcomes. A refusal after a deploy is expected.",
        subject=_SUBJECT,
        dashboard=HINTS,
    )


def _unanswered() -> AlertRule:
    pending = promql.name(forecast.APPROVAL_PENDING)
    return AlertRule(
        name="KernelcastHintWaitsForApproval",
        expr=f"min without (instance) ({pending})",
        hold_seconds=HOUR,
        severity=AlertSeverity.WARNING,
        summary="{{ $labels.program }} waits for an answer: {{ $labels.tunable }} = {{ $labels.value }}",
        description="A hint that changes the program's results was proposed more than an hour ago. No program gets it "
        "before a person approves it.",
        action="Run `kernelcast hints explain {{ $labels.hint_id }}`, ask the program's owner, then "
        "`kernelcast hints approve` or `kernelcast hints reject`.",
        subject=("program",),
        dashboard=HINTS,
    )
