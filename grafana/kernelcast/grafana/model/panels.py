"""Panels: grafanalib's where Grafana reads their JSON today, a generic one (`PlainPanel`) elsewhere.

grafanalib's stat, table, gauge and heatmap still have shapes of Grafana 6 to 8: an empty heatmap option, for one, makes
Grafana treat ready-made buckets as raw values. Those are built from its base panel, with options spelled here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import attr
from grafanalib import core

from kernelcast.grafana.model import label_links
from kernelcast.grafana.model.links import Link, to_runbook
from kernelcast.grafana.model.targets import DATASOURCE, Query

Json = dict[str, Any]
ThresholdSteps = tuple[tuple[float | None, str], ...]
"""Steps from low to high: where each begins (None for the first) and its colour."""
States = Mapping[str, tuple[str, str]]
"""Value, as text, to the word for it and its colour; an empty colour leaves the text's own."""

NO_THRESHOLDS: Final[ThresholdSteps] = ((None, "green"),)
"""Steps of a panel whose values need no action."""
_WIDE: Final = 12
"""Columns of the grid from which a graph has its legend beside it, a line for each series: eight fit at height 6."""
_LOW: Final = 5
"""Height up to which a legend below the graph has one line: names without figures fit."""
ROOMY: Final = 6
"""Columns of the grid from which a figure has its name beside it; in fewer, Grafana would write both in 6 pixels."""
_NAME_PIXELS: Final = 13
"""Height of a name above a figure."""
_LEAST_SHARE: Final = 0.01
"""A graph of shares shows at least up to this; Grafana would draw a line at 0 under an axis up to 10000 %."""
_LABEL: Final = re.compile(r"{{(\w+)}}")
EMPTY: Final = -1
"""Value of an empty result while the measurement lives; a mapping gives it its words."""
NAMELESS: Final = " "
"""Legend of that value: its words need no name. Grafana would write the query in place of an empty legend."""
_NO_DATA: Final[Json] = {
    "type": "special",
    "options": {"match": "null+nan", "result": {"index": 0, "text": "No data", "color": "text"}},
}
"""Without it, Grafana writes "No data" in the colour of the lowest threshold: a calm green, or an alarming red."""


@dataclass(frozen=True, slots=True)
class EmptyText:
    """Words for an empty result, which are shown only while the measurement lives.

    Grafana's own text for an empty result (`noValue`) stands there whether there is nothing to report or nothing
    is measured, so no panel has one: an empty answer is "No data".

    Attributes:
        words: Statement, such as "none predicted".
        proof: PromQL that has a result only while the measurement lives.
        before: What to say while only its proof has a result, such as that the predictor still learns.
    """

    words: str
    proof: str
    before: "EmptyText | None" = None


@dataclass(frozen=True, slots=True)
class PanelText:
    """A panel's title and description, and its words for an empty result.

    Attributes:
        title: A few words.
        description: The question it answers, in a sentence or two.
        if_empty: Words for an empty result; None leaves Grafana's "No data". A graph draws a line at 0 instead, which
            ends where the measurement ends.
        links: Pages beside those of the names in the legend; a table has links in its columns.
        runbooks: Alerts about the panel's values.
    """

    title: str
    description: str
    if_empty: EmptyText | None = None
    links: tuple[Link, ...] = ()
    runbooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """Unit and range of a panel's values; thresholds only if they require an action.

    A graph has no thresholds: a dashed line at one would have no name, and a limit is a series, see `limits`. It shows
    at least up to `soft_high`, and can be logarithmic. `states` are words for the values of a figure.
    """

    unit: str
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    thresholds: ThresholdSteps = NO_THRESHOLDS
    soft_high: float | None = None
    logarithmic: bool = False
    states: States = field(default_factory=dict)

    def defaults(self) -> Json:
        """Returns the axis as `fieldConfig.defaults`."""
        steps = [{"color": color, "value": value} for value, color in self.thresholds]
        return {
            "unit": self.unit,
            "min": self.low,
            "max": self.high,
            "decimals": self.decimals,
            "thresholds": {"mode": "absolute", "steps": steps},
        }


def _defaults(text: PanelText, axis: Axis, queries: Sequence[Query]) -> Json:
    named = _LABEL.findall(" ".join(query.legend for query in queries))
    links = [link.of_series() for link in (*text.links, *label_links.of_labels(named))]
    return {**axis.defaults(), **({"links": links} if links else {})}


@dataclass(frozen=True, slots=True)
class Placed:
    """A panel and the room it takes, in Grafana's grid of 24 columns."""

    panel: Any
    width: int
    height: int


@attr.s
class PlainPanel(core.Panel):  # type: ignore[misc]  # grafanalib publishes no types
    """A panel of any type, its options and field configuration given as JSON."""

    panel_type: str = attr.ib(default="timeseries")
    options: Json = attr.ib(factory=dict)
    field_config: Json = attr.ib(factory=dict)

    def to_json_data(self) -> Json:
        """Returns the panel for grafanalib's JSON encoder."""
        body = {"type": self.panel_type, "options": self.options, "fieldConfig": self.field_config}
        plain: Json = self.panel_json(body)
        return plain


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The drawing style of a time series."""

    stacked: bool = False
    bars: bool = False
    overrides: Sequence[Json] = field(default_factory=tuple)


def limits(ending: str) -> Json:
    """An override that draws series whose names end so as dashed red lines: they are limits, not measurements."""
    return {
        "matcher": {"id": "byRegexp", "options": f"/{ending}$/"},
        "properties": [
            {"id": "custom.lineStyle", "value": {"dash": [10, 6], "fill": "dash"}},
            {"id": "color", "value": {"fixedColor": "red", "mode": "fixed"}},
        ],
    }


def named(name: str, steps: ThresholdSteps, *, unit: str = "", words: States | None = None) -> Json:
    """An override with the colours, unit and words of one of several figures."""
    levels = [{"color": color, "value": value} for value, color in steps]
    properties: list[Json] = [{"id": "thresholds", "value": {"mode": "absolute", "steps": levels}}]
    properties += [{"id": "unit", "value": unit}] if unit else []
    properties += [{"id": "mappings", "value": [mapping(words)]}] if words else []
    return {"matcher": {"id": "byName", "options": name}, "properties": properties}


def grey(name: str) -> Json:
    """An override that draws the series of this name in grey; it is the remainder of the others."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"fixedColor": "#8e8e8e", "mode": "fixed"}}],
    }


def time_series(
    text: PanelText,
    queries: Sequence[Query],
    axis: Axis,
    style: LineStyle = LineStyle(),
    *,
    width: int = 12,
    height: int = 8,
) -> Placed:
    """Lines, stacked areas or bars over time."""
    custom = {
        "drawStyle": "bars" if style.bars else "line",
        "fillOpacity": 70 if style.stacked or style.bars else 0,
        "stacking": {"group": "A", "mode": "normal"} if style.stacked else {},
        "axisSoftMax": _LEAST_SHARE if _is_open_share(axis) else axis.soft_high,
        "scaleDistribution": {"log": 10, "type": "log" if axis.logarithmic else "linear"},
    }
    if text.if_empty is not None:
        queries = [*queries, Query(f"0 * group({text.if_empty.proof})", "measured")]
    beside = width >= _WIDE
    panel = core.TimeSeries(
        **_frame(text, queries),
        showPoints="never",
        legendDisplayMode="table" if beside else "list",
        legendPlacement="right" if beside else "bottom",
        legendCalcs=["lastNotNull", "max"] if beside or height > _LOW else [],
        tooltipMode="multi",
        tooltipSort="desc",
        overrides=list(style.overrides),
        extraJson={
            "fieldConfig": {"defaults": {**_defaults(text, axis, queries), "custom": custom}},
            "options": {
                "legend": {"showLegend": True, "sortBy": "Last *", "sortDesc": True},
                "tooltip": {"hideZeros": False},
            },
        },
    )
    return Placed(panel, width, height)


def _is_open_share(axis: Axis) -> bool:
    return axis.unit == "percentunit" and axis.high is None and axis.soft_high is None


def stat(
    text: PanelText, queries: Sequence[Query], axis: Axis, *, named: bool = False, width: int = 6, height: int = 4
) -> Placed:
    """A figure of now in large type; with `named`, the series' name beside it, and a line for each series.

    Its queries are instant: a range query would show the last figure for as long as the time range, although the
    measurement has ended. A figure without thresholds is neither good nor bad, so it has no colour.
    """
    options: Json = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showPercentChange": False,
        "textMode": "value_and_name" if named else "value",
        "wideLayout": width >= ROOMY,
    }
    if named and width < ROOMY:
        options["text"] = {"titleSize": _NAME_PIXELS}
    queries = [replace(query, instant=True) for query in queries]
    if text.if_empty is not None:
        queries = [replace(query, expr=while_measured(query.expr, text.if_empty)) for query in queries]
        queries.append(Query(_if_empty([query.expr for query in queries], text.if_empty), NAMELESS, instant=True))
    judged = axis if axis.thresholds != NO_THRESHOLDS else replace(axis, thresholds=((None, "text"),))
    defaults = {**_defaults(text, judged, queries), "color": {"mode": "thresholds"}, "mappings": _mappings(text, axis)}
    config = {"defaults": defaults, "overrides": []}
    return Placed(plain(text, queries, "stat", options, config), width, height)


def while_measured(expr: str, if_empty: EmptyText) -> str:
    """A figure over a time range says nothing about now where the measurement has ended."""
    return f"({expr}) and on () group({if_empty.proof})" if "$__range" in expr else expr


def _if_empty(exprs: Sequence[str], if_empty: EmptyText) -> str:
    """`EMPTY`, or `EMPTY - 1` before, where no query has a result although the measurement lives."""
    empty = f"{EMPTY} * group({if_empty.proof})"
    if if_empty.before is not None:
        empty = f"({empty} or {EMPTY - 1} * group({if_empty.before.proof}))"
    return f"{empty} unless on () ({' or '.join(f'({expr})' for expr in exprs)})"


def _mappings(text: PanelText, axis: Axis) -> list[Json]:
    mappings = [_NO_DATA, *([mapping(axis.states)] if axis.states else [])]
    if text.if_empty is not None:
        empty_texts = (text.if_empty, *([text.if_empty.before] if text.if_empty.before else []))
        mappings.append(
            mapping({str(EMPTY - place): (if_empty.words, "text") for place, if_empty in enumerate(empty_texts)})
        )
    return mappings


def mapping(states: States) -> Json:
    """Words and colours for values, as Grafana's value mapping."""
    options = {
        value: {"index": index, "text": word} | ({"color": color} if color else {})
        for index, (value, (word, color)) in enumerate(states.items())
    }
    return {"type": "value", "options": options}


def prose(content: str, *, width: int, height: int) -> Placed:
    """Text without a title and a frame, in Markdown; it asks nothing."""
    options = {"mode": "markdown", "content": content}
    frame: Json = {"title": "", "transparent": True}
    return Placed(PlainPanel(**frame, panel_type="text", options=options), width, height)


def heatmap(text: PanelText, query: Query, unit: str, *, width: int = 12, height: int = 9) -> Placed:
    """Classic histogram buckets over time, as they are: Grafana must not bucket them again."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Turbo",
            "steps": 64,
            "scale": "exponential",
            "exponent": 0.5,
            "fill": "blue",
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}, "scaleDistribution": {"type": "linear"}}
    config = {"defaults": {"unit": "short", "custom": custom}, "overrides": []}
    return Placed(plain(text, [query], "heatmap", options, config), width, height)


def state_timeline(
    text: PanelText, queries: Sequence[Query], states: States, *, width: int = 24, height: int = 6
) -> Placed:
    """A timeline of each series' states.

    Args:
        text: Title and description.
        queries: Series whose values are states.
        states: Words and colours of the values.
        width: Columns of the grid.
        height: Rows of the grid.
    """
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    defaults = {
        **_defaults(text, Axis("none", low=0, high=1), queries),
        "custom": {"fillOpacity": 80, "lineWidth": 0},
        "mappings": [mapping(states)],
    }
    config = {"defaults": defaults, "overrides": []}
    return Placed(plain(text, queries, "state-timeline", options, config), width, height)


def _frame(text: PanelText, queries: Sequence[Query]) -> Json:
    return {
        "title": text.title,
        "description": text.description,
        "dataSource": dict(DATASOURCE),
        "targets": [query.to_target(position) for position, query in enumerate(queries)],
        "links": [to_runbook(alert) for alert in text.runbooks],
        "maxDataPoints": None,
    }


def plain(text: PanelText, queries: Sequence[Query], panel_type: str, options: Json, field_config: Json) -> Any:
    """A panel of any type, without its place."""
    return PlainPanel(**_frame(text, queries), panel_type=panel_type, options=options, field_config=field_config)
