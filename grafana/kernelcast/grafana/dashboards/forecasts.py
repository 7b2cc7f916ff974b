"""Forecasts with their intervals, and the probability of a breach with its cause."""

from typing import Any, Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import living
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Calm, Column, LineStyle, PanelText, Placed, table, time_series
from kernelcast.grafana.model.targets import Query, column
from kernelcast.grafana.rules.forecasts import COVERAGE
from kernelcast.wire.catalogue import forecast

_SUBJECT: Final = "{{Hostname}} GPU {{gpu}} {{program}} {{kernel}}"
_PROBABLE: Final = 0.8
_CHOSEN: Final = ('metric="$metric"', 'horizon="$horizon"')


def row() -> Row:
    """Actual and expected values, then predicted breaches with time and cause, and the coverage of forecasts."""
    return Row("Forecasts and degradation", (_band(), _breaches(), _probability(), _coverage()))


def _band() -> Placed:
    text = PanelText(
        "$metric: now, and expected in $horizon",
        "The series itself (a counter as its rate, a kernel's duration as the mean of its launches), and its forecast "
        "for the chosen horizon at the time of issue: mean with 95 % interval. Only series that the predictor flagged "
        "have one.",
    )
    named = (f"{bound} {_SUBJECT}" for bound in ("mean", "lower", "upper"))
    bounds = [Query(_forecast(bound), legend) for bound, legend in zip(("mean", "lower", "upper"), named, strict=True)]
    actual = [Query(_forecast_lately(expr), f"actual {_SUBJECT}") for expr in (_gauge(), _counter(), _histogram())]
    return time_series(text, [*actual, *bounds], Axis("short"), LineStyle(overrides=_interval()), width=24, height=10)


def _forecast_lately(expr: str) -> str:
    """Only subjects that had a forecast within the time range, and those over all of it: the others are too many."""
    return f"({expr}) and on (Hostname, gpu, program, kernel) last_over_time({_forecast('mean')}[$__range] @ end())"


def _forecast(bound: str) -> str:
    return promql.series(forecast.FORECAST_VALUE, extra=(*_CHOSEN, f'bound="{bound}"'))


def _subject(metric_name: str, *extra: str) -> str:
    """The subject of the forecast chosen, whichever metric it is: labels that it lacks match as well."""
    matchers = ('job=~"$job"', 'Hostname=~"$hostname"', 'gpu=~"$gpu"', 'program=~"$program|"', 'kernel=~"$kernel|"')
    return f'{{__name__="{metric_name}", {", ".join((*extra, *matchers))}}}'


def _gauge() -> str:
    return _subject("$metric", '__name__!~".+_total"')


def _counter() -> str:
    return promql.rate(_subject("$metric", '__name__=~".+_total"'))


def _histogram() -> str:
    return f"{promql.rate(_subject('${metric}_sum'))} / ({promql.rate(_subject('${metric}_count'))} > 0)"


def _interval() -> tuple[dict[str, Any], ...]:
    """Draw the interval as thin lines; which pair encloses which band is known only where one subject is chosen."""
    return tuple(
        {
            "matcher": {"id": "byRegexp", "options": f"/^{bound} /"},
            "properties": [
                {"id": "custom.lineStyle", "value": {"dash": dash, "fill": "dash"}},
                {"id": "custom.lineWidth", "value": 1},
            ],
        }
        for bound, dash in (("mean", [10, 4]), ("lower", [2, 4]), ("upper", [2, 4]))
    )


def _breaches() -> Placed:
    text = PanelText(
        "Predicted degradation",
        "Probability that a series crosses its threshold within the horizon, the cause, and the time left until 10, 50 "
        "and 90 of 100 simulated paths have crossed. An empty time means that fewer paths cross within the horizon.",
        calm=Calm("No breach is predicted", living.PREDICTORS),
    )
    labels = "Hostname, gpu, program, kernel, metric, cause"
    probability = f"max by ({labels}, horizon) ({promql.series(forecast.DEGRADATION_PROBABILITY)})"
    times = [f"min by ({labels}) ({_time_left(quantile)})" for quantile in ("0.1", "0.5", "0.9")]
    headings = ("Node", "GPU", "Program", "Kernel", "Metric", "Cause")
    widths = (160, 60, 160, 0, 0, 110)
    return table(
        text,
        [column(probability), *map(column, times)],
        (
            *(
                Column(label, heading, width=width)
                for label, heading, width in zip(labels.split(", "), headings, widths, strict=True)
            ),
            Column("horizon", "Horizon", width=90),
            Column("Value #A", "Probability", "percentunit", bar=True, width=200, alarm=_PROBABLE),
            Column("Value #B", "Left (10 %)", "s", width=110),
            Column("Value #C", "Left (50 %)", "s", width=110),
            Column("Value #D", "Left (90 %)", "s", width=110),
        ),
        sort="Probability",
        height=7,
    )


def _time_left(quantile: str) -> str:
    return promql.series(forecast.DEGRADATION_TIME, extra=(f'quantile="{quantile}"',))


def _probability() -> Placed:
    text = PanelText(
        "Probability of a breach",
        "The prediction over time: a lasting rise is a drift, a spike is uncertain. Above the dashed line an alert "
        "fires.",
        calm=Calm("No breach was predicted", living.PREDICTORS),
    )
    query = Query(
        promql.series(forecast.DEGRADATION_PROBABILITY), f"{{{{metric}}}} {_SUBJECT} {{{{cause}}}} {{{{horizon}}}}"
    )
    alarming = ((None, "transparent"), (_PROBABLE, "red"))
    return time_series(text, [query], Axis("percentunit", low=0, high=1, thresholds=alarming))


def _coverage() -> Placed:
    text = PanelText(
        "Coverage of past intervals",
        "Share of observations that fell inside the 95 % interval forecast for them. Far below 95 % the intervals are "
        "too narrow; at 100 % they are too wide. Below the dashed line an alert fires.",
    )
    query = Query(promql.series(forecast.FORECAST_COVERAGE, free=("Hostname",)), "{{metric}}")
    wanted = ((None, "transparent"), (COVERAGE, "orange"))
    return time_series(text, [query], Axis("percentunit", low=0, high=1, thresholds=wanted))
