"""Panels: grafanalib's where it emits what Grafana reads today, a generic one where it does not.

grafanalib's stat, table, gauge and heatmap still have shapes of Grafana 6 to 8: an empty heatmap option, for one, makes
Grafana treat ready-made buckets as raw values. Those are built from its base panel, with options spelled here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import attr
from grafanalib import core

from kernelcast.grafana.model.targets import DATASOURCE, Query

Json = dict[str, Any]
Thresholds = tuple[tuple[float | None, str], ...]
"""Steps from low to high: where each begins (None for the first) and its colour."""

CALM: Final[Thresholds] = ((None, "green"),)
_EMPTY: Final = -1
"""Value of an empty result while the measurement lives; a mapping gives it its words."""


@dataclass(frozen=True, slots=True)
class Calm:
    """Words for an empty result, which are shown only while the measurement lives.

    Grafana's own text for an empty result (`noValue`) stands there whether there is nothing to report or nothing
    is measured, so no panel has one: an empty answer is "No data".

    Attributes:
        words: Statement, such as "none predicted".
        proof: PromQL that has a result only while the measurement lives.
    """

    words: str
    proof: str


@dataclass(frozen=True, slots=True)
class PanelText:
    """A panel's title and description, and its words for an empty result.

    Attributes:
        title: A few words.
        description: The question it answers, in a sentence or two.
        calm: Words for an empty result; None leaves Grafana's "No data". A graph draws a line at 0 instead, which ends
            where the measurement ends.
    """

    title: str
    description: str
    calm: Calm | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """Unit and range of a panel's values; thresholds only if they require an action.

    A graph draws its thresholds as dashed lines, shows at least up to `soft_high`, and can be logarithmic.
    """

    unit: str
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    thresholds: Thresholds = CALM
    soft_high: float | None = None
    logarithmic: bool = False

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
    look: LineStyle = LineStyle(),
    *,
    width: int = 12,
    height: int = 8,
) -> Placed:
    """Lines, stacked areas or bars over time."""
    custom = {
        "drawStyle": "bars" if look.bars else "line",
        "fillOpacity": 70 if look.stacked or look.bars else 0,
        "stacking": {"group": "A", "mode": "normal"} if look.stacked else {},
        "axisSoftMax": axis.soft_high,
        "scaleDistribution": {"log": 10, "type": "log" if axis.logarithmic else "linear"},
        "thresholdsStyle": {"mode": "off" if axis.thresholds == CALM else "dashed"},
    }
    if text.calm is not None:
        queries = [*queries, Query(f"0 * group({text.calm.proof})", "measured")]
    panel = core.TimeSeries(
        **_frame(text, queries),
        showPoints="never",
        legendDisplayMode="table",
        legendCalcs=["lastNotNull", "max"],
        tooltipMode="multi",
        tooltipSort="desc",
        overrides=list(look.overrides),
        extraJson={
            "fieldConfig": {"defaults": {**axis.defaults(), "custom": custom}},
            "options": {
                "legend": {"showLegend": True, "sortBy": "Last *", "sortDesc": True},
                "tooltip": {"hideZeros": False},
            },
        },
    )
    return Placed(panel, width, height)


def stat(
    text: PanelText, queries: Sequence[Query], axis: Axis, *, named: bool = False, width: int = 6, height: int = 4
) -> Placed:
    """A figure of now in large type; with `named`, the series' name beside it, and a line for each series.

    Its queries are instant: a range query would show the last figure for as long as the time range, although the
    measurement has ended. A figure without thresholds is neither good nor bad, so it has no colour.
    """
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "horizontal" if named else "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showPercentChange": False,
        "textMode": "value_and_name" if named else "value",
        "wideLayout": True,
    }
    queries = [replace(query, instant=True) for query in queries]
    if text.calm is not None:
        queries = [replace(query, expr=_while_measured(query.expr, text.calm)) for query in queries]
        queries.append(Query(_if_empty([query.expr for query in queries], text.calm), "now", instant=True))
    judged = axis if axis.thresholds != CALM else replace(axis, thresholds=((None, "text"),))
    defaults = {**judged.defaults(), "color": {"mode": "thresholds"}, "mappings": _mappings(text, "text")}
    config = {"defaults": defaults, "overrides": []}
    return Placed(_plain(text, queries, "stat", options, config), width, height)


def _while_measured(expr: str, calm: Calm) -> str:
    """A figure over a time range says nothing about now where the measurement has ended."""
    return f"({expr}) and on () group({calm.proof})" if "$__range" in expr else expr


def _if_empty(exprs: Sequence[str], calm: Calm) -> str:
    """`_EMPTY` where no query has a result although the measurement lives."""
    return f"{_EMPTY} * group({calm.proof}) unless on () ({' or '.join(f'({expr})' for expr in exprs)})"


def _mappings(text: PanelText, color: str) -> list[Json]:
    if text.calm is None:
        return []
    words = {str(_EMPTY): {"index": 0, "text": text.calm.words, "color": color}}
    return [{"type": "value", "options": words}]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        source: The field it shows.
        heading: The column's title.
        unit: Grafana's unit; empty for text.
        bar: Whether a share draws as a bar.
        width: Pixels; 0 takes an equal part of the remaining width.
        alarm: The value from which a bar is red.
    """

    source: str
    heading: str
    unit: str = ""
    bar: bool = False
    width: int = 0
    alarm: float | None = None

    def override(self) -> Json:
        """Returns the column as an entry of `fieldConfig.overrides`."""
        properties: list[Json] = []
        if self.unit:
            properties += [{"id": "unit", "value": self.unit}, {"id": "noValue", "value": "-"}]
        if self.bar:
            cell = {"mode": "basic", "type": "gauge", "valueDisplayMode": "text"}
            properties += [
                {"id": "custom.cellOptions", "value": cell},
                {"id": "min", "value": 0},
                {"id": "max", "value": 1},
            ]
        if self.alarm is not None:
            steps = [{"color": "green", "value": None}, {"color": "red", "value": self.alarm}]
            properties.append({"id": "thresholds", "value": {"mode": "absolute", "steps": steps}})
        if self.width:
            properties.append({"id": "custom.width", "value": self.width})
        return {"matcher": {"id": "byName", "options": self.heading}, "properties": properties}


def table(
    text: PanelText, queries: Sequence[Query], columns: Sequence[Column], *, sort: str, width: int = 24, height: int = 9
) -> Placed:
    """Present values side by side: queries are merged on their common labels, then only `columns` are kept.

    Args:
        text: Title and description.
        queries: Made with `column`; the values of the first are field `Value #A`, and so on.
        columns: What to show, in this order.
        sort: Heading of the column to sort by, largest first.
        width: Columns of the grid.
        height: Rows of the grid.
    """
    if text.calm is not None:
        queries = [replace(query, expr=_while_measured(query.expr, text.calm)) for query in queries]
        queries[0] = replace(queries[0], expr=_row_if_empty(queries[0].expr, text.calm, columns[0].source))
    value_fields = (
        [f"Value #{chr(ord('A') + index)}" for index in range(len(queries))] if len(queries) > 1 else ["Value"]
    )
    wanted = [item.source for item in columns]
    organize = {
        "excludeByName": {"Time": True} | {name: True for name in value_fields if name not in wanted},
        "includeByName": dict.fromkeys(wanted, True),
        "indexByName": {source: index for index, source in enumerate(wanted)},
        "renameByName": {item.source: item.heading for item in columns},
    }
    config = {
        "defaults": {
            **Axis("short").defaults(),
            "mappings": [] if text.calm is None else [{"type": "value", "options": {str(_EMPTY): {"text": ""}}}],
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True},
        },
        "overrides": [item.override() for item in columns if item.unit or item.width],
    }
    options = {
        "cellHeight": "sm",
        "footer": {"countRows": False, "fields": "", "reducer": ["sum"], "show": False},
        "showHeader": True,
        "sortBy": [{"desc": True, "displayName": sort}],
    }
    panel = _plain(text, queries, "table", options, config)
    panel.transformations = [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]
    return Placed(panel, width, height)


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
    config = {"defaults": {"unit": "cps", "custom": custom}, "overrides": []}
    return Placed(_plain(text, [query], "heatmap", options, config), width, height)


def state_timeline(
    text: PanelText, queries: Sequence[Query], states: Mapping[str, tuple[str, str]], *, height: int = 6
) -> Placed:
    """A timeline of each series' states.

    Args:
        text: Title and description.
        queries: Series whose values are states.
        states: Value, as text, to the word for it and its colour.
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
    words = {
        value: {"index": index, "text": word, "color": color}
        for index, (value, (word, color)) in enumerate(states.items())
    }
    defaults = {
        **Axis("none", low=0, high=1).defaults(),
        "custom": {"fillOpacity": 80, "lineWidth": 0},
        "mappings": [{"type": "value", "options": words}],
    }
    return Placed(_plain(text, queries, "state-timeline", options, {"defaults": defaults, "overrides": []}), 24, height)


def _row_if_empty(expr: str, calm: Calm, label: str) -> str:
    """The table's rows, or one that holds the words in its first column."""
    empty = f'label_replace({_EMPTY} * group({calm.proof}), "{label}", "{calm.words}", "", "")'
    return f"({expr}) or on () {empty}"


def _frame(text: PanelText, queries: Sequence[Query]) -> Json:
    return {
        "title": text.title,
        "description": text.description,
        "dataSource": dict(DATASOURCE),
        "targets": [query.to_target(position) for position, query in enumerate(queries)],
        "maxDataPoints": None,
    }


def _plain(text: PanelText, queries: Sequence[Query], panel_type: str, options: Json, field_config: Json) -> Any:
    return PlainPanel(**_frame(text, queries), panel_type=panel_type, options=options, field_config=field_config)
