"""Alerts about predicted breaches, and about the coverage of forecasts."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.rules.model import HOUR, MINUTE, AlertRule, Profile, RuleGroup, Severity
from kernelcast.wire.catalogue import forecast, forecast_scores

_SOON_SECONDS: Final = HOUR
_KEPT_SECONDS: Final = 10 * MINUTE
"""Longer than a restart of the predictor, and than the time between two evaluations of a series."""
COVERAGE: Final = 0.8
_SCORED: Final = 1000
"""Scored forecasts of a class and horizon before their coverage counts, in every profile: with fewer, one series that
changed its regime decides. The predictor halves its sums above 10,000, so the number does not fall below this again."""
_WHERE: Final = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_SUBJECT: Final = ("Hostname", "gpu", "metric")

_DETAILS: Final = (
    "Cause: {{ $labels.cause }}.{{ with $labels.program }} Program: {{ . }}.{{ end }}"
    "{{ with $labels.kernel }} Kernel: {{ . }}.{{ end }}"
)


def group(profile: Profile) -> RuleGroup:  # noqa: ARG001  the same call for every group
    """Alerts: a predicted breach, an imminent breach, and prediction intervals with low coverage."""
    return RuleGroup("kernelcast-forecast-alerts", (_predicted(), _imminent(), _coverage()))


def _alert(matcher: str = "") -> str:
    return f"max without (instance, state) ({promql.name(forecast.DEGRADATION_ALERT)}{matcher})"


def _predicted() -> AlertRule:
    passed = f'{promql.name(forecast.DEGRADATION_ALERT)}{{state="passed"}}'
    return AlertRule(
        name="KernelcastDegradationPredicted",
        expr=f"max without (instance, state) (2 * {passed} or {promql.name(forecast.DEGRADATION_ALERT)})",
        hold_seconds=0,
        keep_seconds=_KEPT_SECONDS,
        severity=Severity.WARNING,
        summary=f"{{{{ $labels.metric }}}} on {_WHERE} {{{{ if gt $value 1.0 }}}}has crossed its threshold"
        "{{ else }}will probably cross its threshold{{ end }}: {{ $labels.cause }}",
        description="The predictor's alert rule fires for this series: it fires when a crossing within the forecast's "
        "horizon stays probable, and ends when the series is clearly back. The value is 1 before the threshold is "
        f"crossed and 2 from then on. {_DETAILS}",
        action="Open the forecast row: check the time left and the coverage of past intervals, then act on the cause.",
        subject=_SUBJECT,
    )


def _imminent() -> AlertRule:
    left = f'min without (instance, quantile) ({promql.name(forecast.DEGRADATION_TIME)}{{quantile="0.5"}})'
    passed = _alert('{state="passed"}')
    return AlertRule(
        name="KernelcastBreachImminent",
        expr=f"0 * {passed} or {left} < {_SOON_SECONDS} and {_alert()}",
        hold_seconds=0,
        keep_seconds=_KEPT_SECONDS,
        severity=Severity.CRITICAL,
        summary=f"{{{{ $labels.metric }}}} on {_WHERE} {{{{ if gt $value 0.0 }}}}crosses its threshold in about "
        "{{ $value | humanizeDuration }}{{ else }}has crossed its threshold{{ end }}",
        description="The predictor's alert rule fires for this series. Half of the simulated paths cross the "
        f"threshold within that time; at 0 s it is crossed, and the alert lasts until it is over. {_DETAILS}",
        action="Act on the cause now, or move the job: cooling for thermal drift, memory pools for a leak, peers for "
        "contention.",
        subject=_SUBJECT,
    )


def _coverage() -> AlertRule:
    coverage = f'{promql.name(forecast_scores.INTERVAL_COVERAGE)}{{level="0.95"}}'
    scored = f'{promql.name(forecast_scores.SCORED_CLAIMS)}{{kind="interval"}}'
    low = f"{coverage} < {COVERAGE} and ignoring (level, kind) {scored} >= {_SCORED}"
    return AlertRule(
        name="KernelcastForecastCoverageLow",
        expr=f"min without (instance, level) ({low})",
        hold_seconds=HOUR,
        severity=Severity.INFO,
        summary="Forecasts of {{ $labels.class }} for {{ $labels.horizon }} miss more often than their interval allows",
        description="Only {{ $value | humanizePercentage }} of the observations fell inside intervals meant to hold "
        f"95 %. At least {_SCORED:,} forecasts of this class and horizon were scored.",
        action="Do not rely on predictions of this class. After a change of regime the coverage recovers; if it stays "
        "low, it is a defect.",
        subject=("horizon",),
    )
