"""A row of panels with the predictor's scores, on the page `forecasts`: coverage, skill, reliability, alerts."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, PanelText, Placed, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
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
    return Row("Scores of forecasts", (_cells(), _reliability(), _alerts(), _abstained()), collapsed=True)


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
            Column("Value #A", "In 50 %", "percentunit", width=80),
            Column("Value #B", "In 80 %", "percentunit", width=80),
            Column("Value #C", "In 95 %", "percentunit", width=80),
            Column("Value #D", "Skill: naive", "none", width=100),
            Column("Value #E", "Skill: seasonal", "none", width=110),
            Column("Value #F", "Brier", "none", width=80),
            Column("Value #G", "Brier skill", "none", width=110),
        ),
        sort="Brier skill",
    )


def _reliability() -> Placed:
    text = PanelText(
        "Breach probabilities: published, and the share that came",
        "By bin of the published probability. They are calibrated if the two shares are equal; bins with few claims "
        "say little.",
    )
    rows = (scores.RELIABILITY_CLAIMS, scores.RELIABILITY_SAID, scores.RELIABILITY_CAME)
    return table(
        text,
        [column(f"max by ({_CELL}, bin) ({promql.series(metric)})") for metric in rows],
        (
            *_CELL_COLUMNS,
            Column("bin", "Bin", width=65),
            Column("Value #A", "Claims", "none", width=75),
            Column("Value #B", "Published", "percentunit", bar=True, width=105),
            Column("Value #C", "Came", "percentunit", bar=True, width=105),
        ),
        sort="Claims",
        width=12,
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


def _abstained() -> Placed:
    text = PanelText(
        "Abstentions",
        "Claims that were not made since the predictor began, by reason: too little history, no limit, too much noise.",
    )
    expr = f"sum by (class, reason) ({promql.series(scores.ABSTAINED)})"
    return time_series(text, [Query(expr, "{{class}}: {{reason}}")], Axis("short", low=0), width=24, height=7)


def _of(metric: Metric, *extra: str) -> str:
    return f"max by ({_CELL}) ({promql.series(metric, extra=extra)})"
