"""A row of panels with the predictor's scores, on the page `pipeline`: coverage, skill, alerts."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness, words
from kernelcast.grafana.inputs import Thresholds
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, PanelText, Placed, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import forecast
from kernelcast.wire.catalogue import forecast_scores as scores
from kernelcast.wire.catalogue.model import Metric

_CELL: Final = "instance, class, horizon"
_CELL_COLUMNS: Final = (
    Column("instance", "Predictor", width=105),
    Column("class", "Class", width=100),
    Column("horizon", "Horizon", width=65),
)


def row() -> Row:
    """Scores beside the claims that they are about."""
    return Row("Scores of forecasts", (_cells(), _alerts(), _coverage()), collapsed=True)


def _cells() -> Placed:
    text = PanelText(
        "Forecasts against what came",
        "By class of metric and horizon: share of values inside the 50, 80 and 95 % intervals, skill against the last "
        "value and against the value a season before (0 is as good, 1 is perfect), and the Brier score of breach "
        "probabilities. Probabilities are calibrated from simulation.",
    )
    coverage = [_of(scores.INTERVAL_COVERAGE, f'level="{level}"') for level in ("0.5", "0.8", "0.95")]
    skill = [_of(scores.SKILL, f'reference="{reference}"') for reference in ("naive", "seasonal_naive")]
    columns = [*coverage, *skill, _of(scores.BRIER_SCORE), _of(scores.BRIER_SKILL)]
    return table(
        text,
        [column(expr) for expr in columns],
        (
            *_CELL_COLUMNS,
            Column("Value #A", "In 50 %", "percentunit", width=80, decimals=0),
            Column("Value #B", "In 80 %", "percentunit", width=80, decimals=0),
            Column("Value #C", "In 95 %", "percentunit", width=80, decimals=0),
            Column("Value #D", "Skill: naive", "none", width=100, decimals=2),
            Column("Value #E", "Skill: seasonal", "none", width=110, decimals=2),
            Column("Value #F", "Brier", "none", width=80, decimals=3),
            Column("Value #G", "Brier skill", "none", width=110, decimals=2),
        ),
        sort="Brier skill",
    )


def _alerts() -> Placed:
    text = PanelText(
        "Alerts against what came",
        "Share of alerts after which the limit was passed within a day, share of passed limits that were announced, "
        "the median lead, and alerts without a breach for each day of each GPU.",
    )
    rows = (scores.ALERT_PRECISION, scores.ANNOUNCED_BREACHES, scores.ALERT_LEAD, scores.FALSE_ALARMS)
    return table(
        text,
        [column(f"max by (instance, class) ({promql.series(metric)})") for metric in rows],
        (
            *_CELL_COLUMNS[:2],
            Column("Value #A", "Right", "percentunit", width=70),
            Column("Value #B", "Announced", "percentunit", width=90),
            Column("Value #C", "Median lead", "s", width=95),
            Column("Value #D", "False a GPU-day", "none", width=120),
        ),
        sort="Right",
        width=12,
    )


def _of(metric: Metric, *extra: str) -> str:
    return f"max by ({_CELL}) ({promql.series(metric, extra=extra)})"


def _coverage() -> Placed:
    text = PanelText(
        "Coverage of past intervals",
        "Share of observations that fell inside the 95 % interval forecast for them. Far below 95 % the intervals are "
        f"too narrow, and below {Thresholds().forecast_coverage_ratio * 100:g} % an alert says so; at 100 % they are "
        "too wide.",
    )
    query = Query(promql.series(forecast.FORECAST_COVERAGE, free=("Hostname",)), "{{metric}}")
    axis = Axis("percentunit", low=0, high=1)
    return words.renamed(time_series(text, [query, liveness.LEARNING_IN_A_GRAPH], axis, height=9))
