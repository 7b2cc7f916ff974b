"""Alerts about the coverage of forecasts."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import FORECASTS
from kernelcast.grafana.rules.model import HOUR, AlertRule, AlertSeverity, Profile
from kernelcast.wire.catalogue import forecast_scores

_SCORED: Final = 1000
"""Scored forecasts of a class and horizon before their coverage counts, in every profile: with fewer, one series that
changed its regime decides. The predictor halves its sums above 10,000, so the number does not fall below this again."""


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """One alert: prediction intervals with low coverage."""
    return (_coverage(profile),)


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
