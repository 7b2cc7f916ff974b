"""Alerts about predicted breaches, and about the coverage of forecasts."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import FORECASTS
from kernelcast.grafana.rules.model import HOUR, MINUTE, AlertRule, AlertSeverity, Profile
from kernelcast.grafana.scores import with_class
from kernelcast.wire.catalogue import forecast, forecast_scores

_KEPT_SECONDS: Final = 10 * MINUTE
"""Longer than a restart of the predictor, and than the time between two evaluations of a series."""
_SCORED: Final = 1000
"""Scored forecasts of a class and horizon before their coverage counts, in every profile: with fewer, one series that
changed its regime decides. The predictor halves its sums above 10,000, so the number does not fall below this again."""
_SERIES: Final = "Hostname, gpu, program, rank, kernel, metric"
_WHERE: Final = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_AGO: Final = 'has crossed its threshold {{ $value | humanizeDuration | reReplaceAll "-" "" }} ago'
_SUBJECT: Final = ("Hostname", "gpu", "metric")

_DETAILS: Final = (
    "Cause: {{ $labels.cause }}.{{ with $labels.program }} Program: {{ . }}.{{ end }}"
    "{{ with $labels.kernel }} Kernel: {{ . }}.{{ end }}"
)


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Alerts: a predicted breach, an imminent breach, and prediction intervals with low coverage."""
    return (_predicted(profile), _imminent(profile), _coverage(profile))


def _crossed() -> str:
    """Minus the seconds since the threshold was crossed; the predictor's clock may be a little ahead."""
    return f"clamp_max(min without (instance) ({promql.name(forecast.DEGRADATION_CROSSED)}) - time(), 0)"


def _believable(profile: Profile) -> str:
    """Predicted breaches that rest on fresh observations, in classes whose forecasts are known to beat the last value.

    A class with too few scored forecasts is not left out: its probabilities are calibrated from simulation until then.
    For a crossed threshold, which is a measurement, this test is not made.
    """
    limits = profile.thresholds
    observed = f"max without (instance) ({promql.name(forecast.FORECAST_TIME)})"
    old = f"(time() - {observed} >= {limits.forecast_age_seconds:g})"
    naive = f'max by (class) ({promql.name(forecast_scores.SKILL)}{{reference="naive"}}) <= {limits.forecast_skill:g}'
    scored = f'{promql.name(forecast_scores.SCORED_CLAIMS)}{{kind="interval"}}'
    ahead = f'max without (instance, state) ({promql.name(forecast.DEGRADATION_ALERT)}{{state="predicted"}})'
    unskilled = f"({naive} and on (class) max by (class) ({scored}) >= {_SCORED})"
    predicted = with_class(f"{ahead} unless on ({_SERIES}) {old}")
    return f"max without (class) ({predicted} unless on (class) {unskilled})"


def _predicted(profile: Profile) -> AlertRule:
    return AlertRule(
        name="KernelcastDegradationPredicted",
        expr=f"{_crossed()} or {_believable(profile)}",
        hold_seconds=0,
        keep_seconds=_KEPT_SECONDS,
        severity=AlertSeverity.WARNING,
        summary=f"{{{{ $labels.metric }}}} on {_WHERE} {{{{ if gt $value 0.0 }}}}will probably cross its threshold"
        f"{{{{ else }}}}{_AGO}{{{{ end }}}}: {{{{ $labels.cause }}}}",
        description="The predictor's alert rule fires for this series: it fires when a crossing within the forecast's "
        "horizon stays probable, and ends when the series is clearly back. A prediction also needs fresh observations, "
        "and a class of metrics whose forecasts are not known to be worse than the last value. The value is 1 before "
        f"the threshold is crossed, and from then on minus the seconds since. {_DETAILS}",
        action="Open the forecast row: check the time left and the coverage of past intervals, then act on the cause.",
        subject=_SUBJECT,
        dashboard=FORECASTS,
    )


def _imminent(profile: Profile) -> AlertRule:
    soon = profile.thresholds.breach_soon_seconds
    left = f'min without (instance, quantile) ({promql.name(forecast.DEGRADATION_TIME)}{{quantile="0.5"}})'
    return AlertRule(
        name="KernelcastBreachImminent",
        expr=f"{_crossed()} or {left} < {soon:g} and {_believable(profile)}",
        hold_seconds=0,
        keep_seconds=_KEPT_SECONDS,
        severity=AlertSeverity.CRITICAL,
        summary=f"{{{{ $labels.metric }}}} on {_WHERE} {{{{ if gt $value 0.0 }}}}crosses its threshold in about "
        f"{{{{ $value | humanizeDuration }}}}{{{{ else }}}}{_AGO}{{{{ end }}}}",
        description="The predictor's alert rule fires for this series. Half of the simulated paths cross the "
        f"threshold within that time; from then on the value is minus the seconds since, until it is over. {_DETAILS}",
        action="Act on the cause now, or move the job: cooling for thermal drift, memory pools for a leak, peers for "
        "contention.",
        subject=_SUBJECT,
        dashboard=FORECASTS,
    )


def _coverage(profile: Profile) -> AlertRule:
    least = profile.thresholds.forecast_coverage_ratio
    coverage = f'{promql.name(forecast_scores.INTERVAL_COVERAGE)}{{level="0.95"}}'
    scored = f'{promql.name(forecast_scores.SCORED_CLAIMS)}{{kind="interval"}}'
    low = f"{coverage} < {least:g} and ignoring (level, kind) {scored} >= {_SCORED}"
    return AlertRule(
        name="KernelcastForecastCoverageLow",
        expr=f"min without (instance, level) ({low})",
        hold_seconds=HOUR,
        severity=AlertSeverity.INFO,
        summary="Forecasts of {{ $labels.class }} for {{ $labels.horizon }} miss more often than their interval allows",
        description="Only {{ $value | humanizePercentage }} of the observations fell inside intervals meant to hold "
        f"95 %. At least {_SCORED:,} forecasts of this class and horizon were scored.",
        action="Do not rely on predictions of this class. After a change of regime the coverage recovers; if it stays "
        "low, it is a defect.",
        subject=("horizon",),
        dashboard=FORECASTS,
    )
