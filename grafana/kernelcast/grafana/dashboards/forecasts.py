"""Rows of panels about forecasts: what the predictor found, breaches that are predicted, one series with its forecasts.

Each page that has the subject of a forecast has them: GPUs, programs; the fleet has all.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import GPUS, KERNELS
from kernelcast.grafana.dashboards import crossing, liveness, words
from kernelcast.grafana.forecast_class import with_class
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.links import OWN_VALUE, Link
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, limits, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.grafana.model.variables import LabelVariable, RankedVariable
from kernelcast.wire.catalogue import forecast, forecast_scores, predictor
from kernelcast.wire.catalogue.model import Metric

_PROBABLE: Final = 0.8
"""Probability above which the predictor raises an alert."""
_ANY: Final = ("Hostname", "gpu", "program", "rank", "kernel")
"""The scores are about all series."""
_NAME: Final = "${metric:text}"
"""Words of the metric chosen, in titles and legends."""
_NONE: Final = "no forecast"
"""Text of the choice while no series has a forecast."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What the forecasts of a page are about.

    Attributes:
        by: Labels of one series.
        matchers: The choice of the page; a label that a series lacks is empty.
        legend: Grafana's legend format of `by`.
        page: The page's uid.
        free: Labels that the page has no variables for.
    """

    by: str
    matchers: tuple[str, ...]
    legend: str
    page: str
    free: tuple[str, ...] = ()

    def of(self, name: str, *extra: str) -> str:
        """A selector of the metric chosen, of all series of the page."""
        matchers = ", ".join(('job=~"$job"', *self.matchers, *extra))
        return f"{name}{{{matchers}}}"

    def of_metric(self, metric: Metric, *extra: str) -> str:
        """The same of a row about the metric chosen."""
        return self.of(promql.name(metric), 'metric="$metric"', *extra)

    def chosen(self, expr: str) -> str:
        """The results of the series whose breach is most probable, the same one over the whole graph."""
        probable, forecasted = (
            f"by ({self.by}) ({self.of_metric(row)} @ end())"
            for row in (forecast.DEGRADATION_PROBABILITY, forecast.FORECAST_VALUE)
        )
        worst = f"topk(1, max {probable} or 0 * group {forecasted})"
        return f"max without (instance, rank) ({expr}) and on ({self.by}) {worst}"


HARDWARE: Final = Subject(
    "Hostname, gpu",
    ('Hostname=~"$hostname"', 'gpu=~"$gpu"', 'program=""'),
    "{{Hostname}} GPU {{gpu}}",
    GPUS,
    ("program", "rank", "kernel"),
)
_FLEET: Final = Subject("Hostname, gpu, program, kernel", (), "", GPUS, ("program", "rank", "kernel"))
PROGRAM: Final = Subject(
    "Hostname, gpu, program, kernel",
    ('Hostname=~"$hostname|"', 'gpu=~"$gpu|"', 'program=~"$program"', 'kernel=~"$kernel|"', 'program!=""'),
    "{{program}} {{kernel}} {{Hostname}} GPU {{gpu}}",
    KERNELS,
)


def variables(subject: Subject) -> tuple[Any, ...]:
    """The metric of the forecast, by default that whose breach is most probable; then its horizon."""
    horizons = subject.of_metric(forecast.FORECAST_VALUE)
    return (
        RankedVariable("metric", "Forecast of", _metrics(subject), "metric", words="words"),
        LabelVariable("horizon", "Horizon", horizons, "horizon", several=False),
    )


def _metrics(subject: Subject) -> str:
    """Metrics with a forecast; without one, a choice that says so, which the titles of the panels show."""
    probable, forecasted = (
        subject.of(promql.name(row)) for row in (forecast.DEGRADATION_PROBABILITY, forecast.FORECAST_VALUE)
    )
    none = 'label_replace(vector(-1), "metric", "none", "", "")'
    trouble = f"max by (metric) ({probable}) or 0 * group by (metric) ({forecasted})"
    found = words.worded(f"{trouble} or on () {none}")
    return f'label_replace({found}, "words", "{_NONE}", "metric", "none")'


def of_hardware() -> Row:
    """Breaches of GPUs, and the series chosen."""
    return Row("Forecasts of these GPUs", (_breaches(HARDWARE), _band(HARDWARE)), collapsed=True)


def of_programs() -> Row:
    """Breaches of programs and kernels, and the series chosen."""
    return Row("Forecasts of these programs", (_breaches(PROGRAM), _band(PROGRAM)), collapsed=True)


def everywhere() -> Row:
    """What alerts fire on, and all breaches that are predicted."""
    return Row("Findings and forecasts", (_findings(), _breaches(_FLEET)), collapsed=True)


def _actual(subject: Subject) -> tuple[str, ...]:
    """The series as the predictor sees it: a gauge, a counter's rate, or the mean of a histogram."""

    def named(name: str, *extra: str) -> str:
        return subject.of("", f'__name__="{name}"', *extra)

    counter = promql.rate(named("$metric", '__name__=~".+_total"'))
    mean = f"{promql.rate(named('${metric}_sum'))} / ({promql.rate(named('${metric}_count'))} > 0)"
    return tuple(map(subject.chosen, (named("$metric", '__name__!~".+_total"'), counter, mean)))


def _forecast(subject: Subject, bound: str) -> str:
    return subject.of_metric(forecast.FORECAST_VALUE, 'horizon="$horizon"', f'bound="{bound}"')


def _issued_before(subject: Subject, bound: str) -> str:
    """The forecast for this moment, issued one horizon ago; not drawn on where forecasts have ended.

    The millisecond keeps the query valid where nothing is forecast and the variable is empty.
    """
    issued = subject.chosen(f"{_forecast(subject, bound)} offset ${{horizon}}1ms")
    return f"{issued} and on () group({liveness.PREDICTORS})"


def _limit(subject: Subject) -> str:
    return subject.chosen(subject.of_metric(forecast.DEGRADATION_THRESHOLD))


def _band(subject: Subject) -> Placed:
    text = PanelText(
        f"Measured, and as forecast $horizon ahead: {_NAME}",
        "The series whose breach is most probable, of those chosen (a counter as its rate, a kernel's duration as the "
        "mean of its launches), over the mean and the 95 % interval that were forecast for that moment one horizon "
        "earlier. Values outside the band are misses: 5 in 100 are expected. The dashed line is the limit.",
        runbooks=("KernelcastDegradationPredicted",),
    )
    queries = [
        *(Query(expr, f"{_NAME} {subject.legend}") for expr in _actual(subject)),
        Query(_issued_before(subject, "mean"), f"{_NAME} expected"),
        Query(_issued_before(subject, "lower"), "lower bound"),
        Query(_issued_before(subject, "upper"), "upper bound"),
        Query(_limit(subject), f"{_NAME} limit"),
        liveness.LEARNING_IN_A_GRAPH,
        _without_forecast(subject),
    ]
    style = LineStyle(overrides=(*words.units("( .*)?"), *_filled(), limits("limit")))
    return time_series(text, queries, Axis("none"), style, width=24, height=8)


def _without_forecast(subject: Subject) -> Query:
    """The line at 0 that says "no forecast".

    It is there only where the graph ends without a forecast, as it stretches the axis down to 0, and while the
    predictor runs: without one nobody knows whether there would be a forecast.
    """
    mean = _forecast(subject, "mean")
    line = liveness.nothing(_NONE, (mean, f"{mean} @ end()", liveness.LEARNING.proof))
    return replace(line, expr=f"{line.expr} and on () group({liveness.PREDICTORS})")


def _filled() -> tuple[dict[str, Any], ...]:
    thin = {"id": "custom.lineWidth", "value": 0}
    unlisted = {"id": "custom.hideFrom", "value": {"legend": True, "tooltip": False, "viz": False}}
    band = [
        {"id": "custom.fillBelowTo", "value": "lower bound"},
        {"id": "custom.fillOpacity", "value": 15},
        {"id": "color", "value": {"fixedColor": "blue", "mode": "fixed"}},
    ]
    return (
        {"matcher": {"id": "byName", "options": "upper bound"}, "properties": [thin, unlisted, *band]},
        {"matcher": {"id": "byName", "options": "lower bound"}, "properties": [thin, unlisted]},
    )


def _breaches(subject: Subject) -> Placed:
    text = PanelText(
        "Time to threshold, and how far to believe it",
        "Series that will probably cross their limit within the horizon, the cause, and when 10, 50 and 90 of 100 "
        "simulated paths will have crossed it; once it is crossed, how long ago. Skill is against the last value (0 is "
        "as good, 1 is perfect); coverage is the share of past values inside the 95 % interval. The predictor learns "
        "for 18 blocks of five minutes first; a demo has shorter ones.",
        if_empty=EmptyText("No breach is predicted", liveness.PREDICTIONS, liveness.LEARNING),
        runbooks=("KernelcastDegradationPredicted", "KernelcastBreachImminent"),
    )
    free, extra = subject.free, tuple(one for one in subject.matchers if "$" not in one)
    by = "Hostname, gpu, program, kernel, metric, cause"
    selector = promql.series(forecast.DEGRADATION_PROBABILITY, extra=extra, free=free)
    probability = f"max by ({by}, horizon) ({selector})"
    early, late = (crossing.left(by, quantile=quantile, extra=extra, free=free) for quantile in ("0.1", "0.9"))
    joined = f"{probability} * 0 + on ({by}) group_left ()"
    times = [f"{joined} {expr}" for expr in (early, crossing.moment(by, extra=extra, free=free), late)]
    coverage = f"max by (metric) ({promql.series(forecast.FORECAST_COVERAGE, free=('Hostname',))})"
    naive = promql.series(forecast_scores.SKILL, extra=('reference="naive"',))
    skill = f"on (class, horizon) group_left () max by (class, horizon) ({naive})"
    claims = (
        f"{probability} * 0 + on (metric) group_left () {coverage}",
        f"{with_class(f'{probability} * 0')} + {skill}",
    )
    return table(
        text,
        list(map(column, (probability, *times, *claims))),
        (
            Column("Hostname", "Node", width=110),
            Column("gpu", "GPU", width=50),
            *_columns_of(subject),
            Column("Value #C", "Crosses (50 %)", crossing.FROM_NOW, width=108),
            Column("Value #A", "Probability", "percentunit", bar=True, width=130, alarm=_PROBABLE, decimals=0),
            Column("Value #B", "Left (10 %)", "s", width=85, words=crossing.CROSSED),
            Column("Value #D", "Left (90 %)", "s", width=85, words=crossing.CROSSED),
            Column("horizon", "Horizon", width=70),
            Column("Value #E", "Coverage", "percentunit", width=80, decimals=0),
            Column("Value #F", "Skill", "none", width=60, decimals=2),
        ),
        sort="Probability",
        height=5,
    )


def _columns_of(subject: Subject) -> tuple[Column, ...]:
    """Program and kernel where the page is about them; the metric, which leads to its forecast; the cause."""
    if "kernel" not in subject.by:
        return (Column("metric", "Metric", width=150, words=words.METRICS), Column("cause", "Cause", least=100))
    programs = {"program": "Program", "kernel": "Kernel", "metric": OWN_VALUE}
    link = Link("Forecast", KERNELS, programs) if subject.page == KERNELS else None
    return (
        Column("program", "Program", width=110),
        Column("kernel", "Kernel", least=110),
        Column("metric", "Metric", width=130, words=words.METRICS, link=link),
        Column("cause", "Cause", width=90),
    )


def _findings() -> Placed:
    """The table of findings: what the alerts fire on."""
    text = PanelText(
        "Findings",
        "What is wrong or will be, one line each, after grouping, evidence and damping; alerts fire on these. Urgency "
        "is page, ticket, or held by the budget of pages. Since: when the limit was passed, or the finding began. "
        "Reached: when half of the probability has reached it.",
        if_empty=EmptyText("No finding", promql.series(predictor.FINDINGS_TIME)),
        runbooks=("KernelcastLimitPassed", "KernelcastWorkSlower", "KernelcastPagesHeld"),
    )
    labels = "urgency, state, cause, rack, Hostname, gpu, program, kernel, metric"
    since = f"1000 * min by ({labels}) ({promql.series(predictor.FINDING_SINCE, free=_ANY)})"
    reached = promql.series(predictor.FINDING_EXPECTED, extra=('quantile="0.5"',), free=_ANY)
    value, limit = (
        f"max by ({labels}) ({promql.series(row, free=_ANY)})"
        for row in (predictor.FINDING_VALUE, predictor.FINDING_LIMIT)
    )
    return table(
        text,
        list(map(column, (since, value, limit, f"1000 * min by ({labels}) ({reached})"))),
        (
            Column("Hostname", "Node", width=110),
            Column("gpu", "GPU", width=50),
            Column("metric", "Metric", width=150, words=words.METRICS),
            Column("state", "State", width=80),
            Column("cause", "Cause", width=120),
            Column("Value #A", "Since", crossing.FROM_NOW, width=110),
            Column("Value #B", "Value", "short", width=80),
            Column("Value #C", "Limit", "short", width=80),
            Column("Value #D", "Reached", crossing.FROM_NOW, width=110),
            Column("program", "Program", width=110),
            Column("kernel", "Kernel"),
            Column("urgency", "Urgency", width=70),
            Column("rack", "Rack", width=60),
        ),
        sort="Since",
        height=6,
    )
