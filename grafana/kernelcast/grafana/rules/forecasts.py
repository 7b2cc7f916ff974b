"""Alerts about predicted breaches, and about the coverage of forecasts."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.rules.model import HOUR, MINUTE, AlertRule, Profile, RuleGroup, Severity
from kernelcast.wire.catalogue import forecast

PROBABLE: Final = 0.8
_SOON_SECONDS: Final = HOUR
COVERAGE: Final = 0.8
_WHERE: Final = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_SUBJECT: Final = ("Hostname", "gpu", "metric")

_DETAILS: Final = (
    "Cause: {{ $labels.cause }}.{{ with $labels.program }} Program: {{ . }}.{{ end }}"
    "{{ with $labels.kernel }} Kernel: {{ . }}.{{ end }}"
)


def group(profile: Profile) -> RuleGroup:  # noqa: ARG001  the same call for every group
    """Alerts: a predicted breach, an imminent breach, and prediction intervals with low coverage."""
    return RuleGroup("kernelcast-forecast-alerts", (_predicted(), _imminent(), _coverage()))


def _probability() -> str:
    return f"max without (instance, horizon) ({promql.name(forecast.DEGRADATION_PROBABILITY)}) > {PROBABLE}"


def _predicted() -> AlertRule:
    return AlertRule(
        name="KernelcastDegradationPredicted",
        expr=_probability(),
        hold_seconds=2 * MINUTE,
        severity=Severity.WARNING,
        summary=f"{{{{ $labels.metric }}}} on {_WHERE} will probably cross its threshold: {{{{ $labels.cause }}}}",
        description="The predictor gives {{ $value | humanizePercentage }} that the series crosses its threshold "
        f"within the forecast's horizon. {_DETAILS}",
        action="Open the forecast row: check the time left and the coverage of past intervals, then act on the cause.",
        subject=_SUBJECT,
    )


def _imminent() -> AlertRule:
    left = f'min without (instance, quantile) ({promql.name(forecast.DEGRADATION_TIME)}{{quantile="0.5"}})'
    return AlertRule(
        name="KernelcastBreachImminent",
        expr=f"{left} < {_SOON_SECONDS} and {_probability()}",
        hold_seconds=2 * MINUTE,
        severity=Severity.CRITICAL,
        summary=f"{{{{ $labels.metric }}}} on {_WHERE} {{{{ if gt $value 0.0 }}}}crosses its threshold in about "
        "{{ $value | humanizeDuration }}{{ else }}has crossed its threshold{{ end }}",
        description="Half of the simulated paths cross the threshold within that time, and a crossing within the "
        f"horizon is more than 80 % probable. {_DETAILS}",
        action="Act on the cause now, or move the job: cooling for thermal drift, memory pools for a leak, peers for "
        "contention.",
        subject=_SUBJECT,
    )


def _coverage() -> AlertRule:
    return AlertRule(
        name="KernelcastForecastCoverageLow",
        expr=f"min without (instance) ({promql.name(forecast.FORECAST_COVERAGE)}) < {COVERAGE}",
        hold_seconds=HOUR,
        severity=Severity.INFO,
        summary="Forecasts of {{ $labels.metric }} miss more often than their interval allows",
        description="Only {{ $value | humanizePercentage }} of the observations fell inside intervals meant to hold "
        "95 %.",
        action="Do not rely on predictions of this metric. After a change of regime the coverage recovers; if it stays "
        "low, it is a defect.",
        subject=("metric",),
    )
