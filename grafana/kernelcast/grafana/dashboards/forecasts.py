"""Panels of the page `forecasts`: the breaches that are predicted, and one series with its forecasts and values."""

from typing import Any, Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import crossing, liveness, words
from kernelcast.grafana.dashboards.frame import ANY_GPU, ANY_NODE, OWNER
from kernelcast.grafana.forecast_class import with_class
from kernelcast.grafana.inputs import Thresholds
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, limits, stat, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.grafana.model.variables import LabelVariable, RankedVariable
from kernelcast.wire.catalogue import forecast, forecast_scores, kernel, predictor
from kernelcast.wire.catalogue.devices import accelerator
from kernelcast.wire.catalogue.model import Metric

_SUBJECT: Final = "{{Hostname}} GPU {{gpu}} {{program}} {{kernel}}"
"""Legend that names a series."""
_PROBABLE: Final = 0.8
"""Probability above which the predictor raises an alert."""
_SERIES: Final = 'job=~"$job", Hostname="$hostname", gpu="$gpu", program="$program", kernel="$kernel"'
"""The series chosen; a label that it lacks is empty."""
_ANY: Final = ("Hostname", "gpu", "program", "rank", "kernel")
"""The table and the scores are about all series, not about the one chosen."""
_NAME: Final = "${metric:text}"
"""Words of the metric chosen, in titles and legends."""
_NONE: Final = "no forecast"
"""Text of the choice while no series has a forecast."""
_SIZES: Final = {"titleSize": 16, "valueSize": 24}
"""Pixels: Grafana would write the words for no forecast as high as the five values, and cut them."""

_UNFORECAST: Final = EmptyText(_NONE, liveness.PREDICTIONS, liveness.LEARNING)
"""Series that nothing draws attention to have no forecast."""


def variables() -> tuple[Any, ...]:
    """The series: by default the one whose breach is most probable; then its horizon."""
    value = promql.name(forecast.FORECAST_VALUE)
    chosen = 'job=~"$job", metric="$metric", Hostname="$hostname", gpu="$gpu"'
    subject = ('metric="$metric"', 'Hostname="$hostname"', 'gpu="$gpu"')
    return (
        RankedVariable("metric", "Forecast of", _metrics(), "metric", words="words"),
        RankedVariable("hostname", "Node", _of_owner("Hostname", ANY_NODE, 'metric="$metric"'), "Hostname"),
        RankedVariable("gpu", "GPU", _of_owner("gpu", ANY_GPU, 'metric="$metric"', 'Hostname="$hostname"'), "gpu"),
        RankedVariable("program", "Program", _trouble("program", *subject), "program"),
        RankedVariable("kernel", "Kernel", _trouble("kernel", *subject, 'program="$program"'), "kernel"),
        LabelVariable("horizon", "Horizon", f"{value}{{{chosen}}}", "horizon", several=False),
    )


def _trouble(label: str, *matchers: str) -> str:
    """The highest probability of a breach by a label; series with a forecast and without a limit come last."""
    inside = ", ".join(('job=~"$job"', *matchers))
    probable = f"max by ({label}) ({promql.name(forecast.DEGRADATION_PROBABILITY)}{{{inside}}})"
    forecasted = f"group by ({label}) ({promql.name(forecast.FORECAST_VALUE)}{{{inside}}})"
    return f"{probable} or 0 * {forecasted}"


def _metrics() -> str:
    """Metrics with a forecast; without one, a choice that says so, which the titles of the panels show."""
    none = 'label_replace(vector(-1), "metric", "none", "", "")'
    found = words.worded(f"{_trouble('metric')} or on () {none}")
    return f'label_replace({found}, "words", "{_NONE}", "metric", "none")'


def _of_owner(label: str, measured: str, *matchers: str) -> str:
    """The same, of the nodes and GPUs of the job and user chosen; forecasts have no user, so all if none is chosen.

    Without a forecast, those that are measured, then those of which only programs report, as of a GPU that is lost;
    else those that were measured within the last hour. An empty variable would empty the line about the data.
    """
    known = f"{promql.name(forecast.FORECAST_VALUE)}|{promql.name(kernel.PROBE_USER)}"
    where = ", ".join((OWNER, *(one for one in matchers if one.startswith("Hostname"))))
    ranked = f'({_trouble(label, *matchers)}) and on ({label}) {{__name__=~"{known}", {where}}}'
    device_metrics = "|".join(promql.name(row) for row in (*promql.GPU_ROWS, accelerator.MEMORY_USED))
    now = f'-1 * group by ({label}) ({{__name__=~"{device_metrics}", {where}}})'
    reported = f'-2 * group by ({label}) ({{__name__=~"{measured}", {where}}})'
    lately = f"-3 * group by ({label}) ({promql.measured_within('1h', where)})"
    return f"({ranked}) or on () ({now} or {reported}) or on () {lately}"


def first_screen() -> tuple[Placed, ...]:
    """The time left, with the scores of such claims; then the series chosen."""
    return (_breaches(), _band(), _next(), _left(), _age())


def rows() -> tuple[Row, ...]:
    """The findings; the claims over time."""
    return (
        Row("Findings: what alerts fire on", (_findings(),), collapsed=True),
        Row("Claims over time", (_probability(), _coverage()), collapsed=True),
    )


def _subject(metric_name: str, *extra: str) -> str:
    """The series chosen itself, whichever metric it is."""
    return f'{{__name__="{metric_name}", {", ".join((*extra, _SERIES))}}}'


def _of_series(metric: Metric, *extra: str) -> str:
    matchers = ", ".join((_SERIES, 'metric="$metric"', *extra))
    return f"{promql.name(metric)}{{{matchers}}}"


def _bound(bound: str) -> str:
    return _of_series(forecast.FORECAST_VALUE, 'horizon="$horizon"', f'bound="{bound}"')


def _forecast(bound: str) -> str:
    return f"max without (instance, rank) ({_bound(bound)})"


def _issued_before(bound: str) -> str:
    """The forecast for this moment, issued one horizon ago; not drawn on where forecasts have ended.

    The millisecond keeps the query valid where nothing is forecast and the variable is empty.
    """
    return (
        f"max without (instance, rank) ({_bound(bound)} offset ${{horizon}}1ms) and on () group({liveness.PREDICTORS})"
    )


def _limit() -> str:
    return f"max without (instance, rank) ({_of_series(forecast.DEGRADATION_THRESHOLD)})"


def _actual() -> tuple[str, ...]:
    """The series as the predictor sees it: a gauge, a counter's rate, or the mean of a histogram."""
    gauge = _subject("$metric", '__name__!~".+_total"')
    counter = promql.rate(_subject("$metric", '__name__=~".+_total"'))
    mean = f"{promql.rate(_subject('${metric}_sum'))} / ({promql.rate(_subject('${metric}_count'))} > 0)"
    return tuple(f"max without (instance, rank) ({expr})" for expr in (gauge, counter, mean))


def _band() -> Placed:
    text = PanelText(
        f"Measured, and as forecast $horizon ahead: {_NAME}",
        "The values of the series chosen (a counter as its rate, a kernel's duration as the mean of its launches), "
        "over the mean and the 95 % interval that were forecast for that moment one horizon earlier. Values outside "
        "the band are misses: 5 in 100 are expected. The dashed line is the limit.",
        runbooks=("KernelcastDegradationPredicted",),
    )
    queries = [
        *(Query(expr, _NAME) for expr in _actual()),
        Query(_issued_before("mean"), f"{_NAME} expected"),
        Query(_issued_before("lower"), "lower bound"),
        Query(_issued_before("upper"), "upper bound"),
        Query(_limit(), f"{_NAME} limit"),
        liveness.LEARNING_IN_A_GRAPH,
    ]
    style = LineStyle(overrides=(*words.units("( expected| limit)?"), *_filled(), limits("limit")))
    return time_series(text, queries, Axis("none"), style, width=16, height=7)


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


def _next() -> Placed:
    text = PanelText(
        f"Now, and $horizon ahead: {_NAME}",
        "The newest forecast for the series chosen: mean and 95 % interval, beside its value now and its limit.",
        if_empty=_UNFORECAST,
    )
    queries = [
        *(Query(expr, f"{_NAME} now") for expr in _actual()),
        *(
            Query(_forecast(bound), f"{_NAME} {word}")
            for bound, word in (("mean", "expected"), ("lower", "lower bound"), ("upper", "upper bound"))
        ),
        Query(_limit(), f"{_NAME} limit"),
    ]
    placed = stat(text, queries, Axis("none"), named=True, width=8, height=7)
    placed.panel.options["text"] = dict(_SIZES)
    placed.panel.field_config["overrides"] = list(words.units(" (now|expected|lower bound|upper bound|limit)"))
    return placed


def _left() -> Placed:
    text = PanelText(
        f"Time left: {_NAME}",
        "Time until half of the simulated paths of the series chosen have crossed its limit; once it is crossed, how "
        "long ago, until the alert ends.",
        if_empty=EmptyText("no breach predicted", liveness.PREDICTIONS, liveness.LEARNING),
        runbooks=("KernelcastBreachImminent",),
    )
    left = _of_series(forecast.DEGRADATION_TIME, 'quantile="0.5"')
    since = f"1000 * min({_of_series(forecast.DEGRADATION_CROSSED)})"
    queries = [Query(f"min({left}) unless {since}", "left"), Query(since, "crossed")]
    placed = stat(text, queries, Axis("s", low=0, states=crossing.CROSSED), named=True, width=12, height=3)
    placed.panel.field_config["overrides"] = [crossing.SINCE]
    return placed


def _age() -> Placed:
    text = PanelText(
        "Age of this forecast", "Time since the newest value that the forecast rests on.", if_empty=_UNFORECAST
    )
    written = _of_series(forecast.FORECAST_TIME)
    axis = Axis("s", low=0, thresholds=((None, "green"), (1800, "orange"), (7200, "red")))
    return stat(text, [Query(f"time() - max({written})")], axis, width=12, height=3)


def _breaches() -> Placed:
    text = PanelText(
        "Time to threshold, and how far to believe it",
        "Series that will probably cross their limit within the horizon, the cause, and when 10, 50 and 90 of 100 "
        "simulated paths will have crossed it; once it is crossed, how long ago. Skill is against the last value (0 is "
        "as good, 1 is perfect); coverage is the share of past values inside the 95 % interval. A click on a metric "
        "shows its forecast. The predictor learns for 18 blocks of five minutes first; a demo has shorter ones.",
        if_empty=EmptyText("No breach is predicted", liveness.PREDICTIONS, liveness.LEARNING),
        runbooks=("KernelcastDegradationPredicted", "KernelcastBreachImminent"),
    )
    labels = "Hostname, gpu, program, kernel, metric, cause, horizon"
    selector = promql.series(forecast.DEGRADATION_PROBABILITY, free=_ANY)
    probability = f"max by ({labels}) ({selector})"
    subject = "Hostname, gpu, program, kernel, metric, cause"
    early, late = (crossing.left(subject, quantile=quantile, free=_ANY) for quantile in ("0.1", "0.9"))
    joined = f"{probability} * 0 + on ({subject}) group_left ()"
    times = [f"{joined} {expr}" for expr in (early, crossing.moment(subject, free=_ANY), late)]
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
            Column("program", "Program", width=110),
            Column("kernel", "Kernel"),
            Column("metric", "Metric", width=150, words=words.METRICS),
            Column("cause", "Cause", width=100),
            Column("horizon", "Horizon", width=70),
            Column("Value #A", "Probability", "percentunit", bar=True, width=130, alarm=_PROBABLE),
            Column("Value #B", "Left (10 %)", "s", width=85, words=crossing.CROSSED),
            Column("Value #C", "Crosses (50 %)", crossing.FROM_NOW, width=108),
            Column("Value #D", "Left (90 %)", "s", width=85, words=crossing.CROSSED),
            Column("Value #E", "Coverage", "percentunit", width=80),
            Column("Value #F", "Skill", "none", width=60, decimals=2),
        ),
        sort="Probability",
        height=5,
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
            Column("urgency", "Urgency", width=70),
            Column("state", "State", width=80),
            Column("cause", "Cause", width=120),
            Column("rack", "Rack", width=60),
            Column("Hostname", "Node", width=110),
            Column("gpu", "GPU", width=50),
            Column("program", "Program", width=110),
            Column("kernel", "Kernel"),
            Column("metric", "Metric", width=150, words=words.METRICS),
            Column("Value #A", "Since", crossing.FROM_NOW, width=110),
            Column("Value #B", "Value", "short", width=80),
            Column("Value #C", "Limit", "short", width=80),
            Column("Value #D", "Reached", crossing.FROM_NOW, width=110),
        ),
        sort="Since",
        height=6,
    )


def _probability() -> Placed:
    text = PanelText(
        "Probability of a breach",
        "The prediction over time: a lasting rise is a drift, a spike is uncertain. Above the dashed line an alert "
        "fires. The ten highest.",
        if_empty=EmptyText("No breach was predicted", liveness.PREDICTIONS),
    )
    probable = f"topk(10, {promql.series(forecast.DEGRADATION_PROBABILITY, free=_ANY)})"
    query = Query(probable, f"{{{{metric}}}} {_SUBJECT} {{{{cause}}}} {{{{horizon}}}}")
    alarming = ((None, "transparent"), (_PROBABLE, "red"))
    axis = Axis("percentunit", low=0, high=1, thresholds=alarming)
    return words.renamed(time_series(text, [query, liveness.LEARNING_IN_A_GRAPH], axis))


def _coverage() -> Placed:
    text = PanelText(
        "Coverage of past intervals",
        "Share of observations that fell inside the 95 % interval forecast for them. Far below 95 % the intervals are "
        "too narrow; at 100 % they are too wide. Below the dashed line an alert fires.",
    )
    query = Query(promql.series(forecast.FORECAST_COVERAGE, free=("Hostname",)), "{{metric}}")
    wanted = ((None, "transparent"), (Thresholds().forecast_coverage_ratio, "orange"))
    axis = Axis("percentunit", low=0, high=1, thresholds=wanted)
    return words.renamed(time_series(text, [query, liveness.LEARNING_IN_A_GRAPH], axis))
