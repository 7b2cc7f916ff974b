"""What is expected: values with their intervals, and the probability of a breach with its cause."""

from typing import Any, Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Column, Look, Placed, Text, table, time_series
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import forecast

_SUBJECT: Final = "{{Hostname}} GPU {{gpu}} {{program}} {{kernel}}"
_CHOSEN: Final = ('metric="$metric"', 'horizon="$horizon"')


def row() -> Row:
    """Actual and expected, then what will breach, when and why, and how far to trust it."""
    return Row("Forecasts and degradation", (_band(), _breaches(), _probability(), _coverage()))


def _band() -> Placed:
    text = Text(
        "$metric: now, and expected in $horizon",
        "The series itself (a counter as its rate, a kernel's duration as the mean of its launches), and what is "
        "forecast for the chosen horizon at the time of issue: mean with 95 % interval. Only series that the "
        "predictor flagged have one.",
    )
    named = (f"{bound} {_SUBJECT}" for bound in ("mean", "lower", "upper"))
    bounds = [Query(_forecast(bound), legend) for bound, legend in zip(("mean", "lower", "upper"), named, strict=True)]
    actual = [Query(expr, f"actual {_SUBJECT}") for expr in (_gauge(), _counter(), _histogram())]
    return time_series(
        text, [*actual, *bounds], Axis("short"), Look(fill=0, overrides=_fill_between()), width=24, height=10
    )


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


def _fill_between() -> tuple[dict[str, Any], ...]:
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
    text = Text(
        "Predicted degradation",
        "How probable it is that a series crosses its threshold within the horizon, what it points to, and the time "
        "left: 10, 50 and 90 of 100 simulated paths have crossed by then. An empty time means that so many paths "
        "never cross.",
    )
    labels = "Hostname, gpu, program, kernel, metric, cause"
    probability = f"max by ({labels}, horizon) ({promql.series(forecast.DEGRADATION_PROBABILITY)})"
    times = [f"min by ({labels}) ({_time_left(quantile)})" for quantile in ("0.1", "0.5", "0.9")]
    headings = ("Node", "GPU", "Program", "Kernel", "Metric", "Cause")
    return table(
        text,
        [column(probability), *map(column, times)],
        (
            *(Column(label, heading) for label, heading in zip(labels.split(", "), headings, strict=True)),
            Column("horizon", "Horizon"),
            Column("Value #A", "Probability", "percentunit", bar=True),
            Column("Value #B", "Left (10 %)", "s"),
            Column("Value #C", "Left (50 %)", "s"),
            Column("Value #D", "Left (90 %)", "s"),
        ),
        sort="Probability",
    )


def _time_left(quantile: str) -> str:
    return promql.series(forecast.DEGRADATION_TIME, extra=(f'quantile="{quantile}"',))


def _probability() -> Placed:
    text = Text(
        "Probability of a breach", "How the prediction developed: a rise that holds is a drift, a spike is doubt."
    )
    query = Query(
        promql.series(forecast.DEGRADATION_PROBABILITY), f"{{{{metric}}}} {_SUBJECT} {{{{cause}}}} {{{{horizon}}}}"
    )
    return time_series(text, [query], Axis("percentunit", low=0, high=1))


def _coverage() -> Placed:
    text = Text(
        "Coverage of past intervals",
        "Share of observations that fell inside the 95 % interval forecast for them. Far below 95 % the intervals "
        "are too narrow to trust; at 100 % they are too wide to help.",
    )
    query = Query(promql.series(forecast.FORECAST_COVERAGE, free=("Hostname",)), "{{metric}}")
    return time_series(text, [query], Axis("percentunit", low=0, high=1))
