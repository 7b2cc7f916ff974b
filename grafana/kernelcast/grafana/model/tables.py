"""Tables of present values: the queries of a panel are merged on their common labels, one column for each value."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kernelcast.grafana.model import label_links
from kernelcast.grafana.model.links import Link, to_runbook_of_value
from kernelcast.grafana.model.panels import (
    EMPTY,
    Axis,
    EmptyText,
    Json,
    PanelText,
    Placed,
    States,
    mapping,
    plain,
    while_measured,
)
from kernelcast.grafana.model.targets import Query

_EMPTY_COLUMN: Final = "calm"
_EMPTY_HEADING: Final = "Result"
"""The words for an empty table: in a column of a name they would be a link, and cut at the column's width."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        source: The field it shows.
        heading: The column's title.
        unit: Grafana's unit; empty for text.
        bar: Whether a share draws as a bar.
        width: Pixels; 0 takes an equal part of the remaining width.
        least: Pixels below which such a part does not fall; 0 for Grafana's own 150.
        alarm: The value from which a bar is red, or else the number.
        words: Words and colours of its values.
        prefix: Beginning that all its values have, and that is not shown.
        link: Page about the value.
        runbook: Whether the value is an alert's name, which leads to its runbook.
        decimals: Digits behind the point; None for three significant ones.
    """

    source: str
    heading: str
    unit: str = ""
    bar: bool = False
    width: int = 0
    least: int = 0
    alarm: float | None = None
    words: States = field(default_factory=dict)
    prefix: str = ""
    link: Link | None = None
    runbook: bool = False
    decimals: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the column shows its field unchanged."""
        return not (self.unit or self.width or self.least or self.words or self.prefix or self.link or self.runbook)

    def override(self) -> Json:
        """Returns the column as an entry of `fieldConfig.overrides`."""
        properties: list[Json] = []
        if self.unit:
            properties += [{"id": "unit", "value": self.unit}, {"id": "noValue", "value": "-"}]
        if self.decimals is not None:
            properties.append({"id": "decimals", "value": self.decimals})
        if self.bar:
            cell = {"mode": "basic", "type": "gauge", "valueDisplayMode": "text"}
            properties += [
                {"id": "custom.cellOptions", "value": cell},
                {"id": "min", "value": 0},
                {"id": "max", "value": 1},
            ]
        if self.alarm is not None:
            properties += self._thresholds(self.alarm)
        mappings = [mapping(self.words)] if self.words else []
        if self.prefix:
            cut = {"pattern": f"{self.prefix}(.+)", "result": {"index": len(self.words), "text": "$1"}}
            mappings.append({"type": "regex", "options": cut})
        if mappings:
            properties.append({"id": "mappings", "value": mappings})
        if any(color for _, color in self.words.values()):
            properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
        if self.runbook:
            properties.append({"id": "links", "value": [to_runbook_of_value()]})
        if self.link:
            properties.append({"id": "links", "value": [self.link.of_row()]})
        properties += [
            {"id": f"custom.{name}", "value": value}
            for name, value in (("width", self.width), ("minWidth", self.least))
            if value
        ]
        return {"matcher": {"id": "byName", "options": self.heading}, "properties": properties}

    def _thresholds(self, alarm: float) -> list[Json]:
        steps = [{"color": "green" if self.bar else "text", "value": None}, {"color": "red", "value": alarm}]
        colored = [] if self.bar else [{"id": "custom.cellOptions", "value": {"type": "color-text"}}]
        return [{"id": "thresholds", "value": {"mode": "absolute", "steps": steps}}, *colored]


def table(
    text: PanelText,
    queries: Sequence[Query],
    columns: Sequence[Column],
    *,
    sort: str,
    width: int = 24,
    height: int = 9,
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
    headings = {item.source: item.heading for item in columns}
    columns = [
        item if item.link else replace(item, link=label_links.in_column(item.source, headings)) for item in columns
    ]
    if text.if_empty is not None:
        # Words of a column replace the mapping of the table.
        hidden = {str(EMPTY): ("", "")}
        columns = [
            replace(item, words={**item.words, **hidden}) if item.words or item.prefix else item for item in columns
        ]
        queries = [replace(query, expr=while_measured(query.expr, text.if_empty)) for query in queries]
        queries[0] = replace(queries[0], expr=_row_if_empty(queries[0].expr, text.if_empty))
        columns = [Column(_EMPTY_COLUMN, _EMPTY_HEADING), *columns]
        headings = {_EMPTY_COLUMN: _EMPTY_HEADING, **headings}
    value_fields = (
        [f"Value #{chr(ord('A') + index)}" for index in range(len(queries))] if len(queries) > 1 else ["Value"]
    )
    wanted = [item.source for item in columns]
    organize = {
        "excludeByName": {"Time": True} | {name: True for name in value_fields if name not in wanted},
        "includeByName": dict.fromkeys(wanted, True),
        "indexByName": {source: index for index, source in enumerate(wanted)},
        "renameByName": headings,
    }
    config = {
        "defaults": {
            **Axis(
                "string"
            ).defaults(),  # columns of numbers have units; a process or job whose id is 10000 is not "10 K"
            "mappings": [] if text.if_empty is None else [{"type": "value", "options": {str(EMPTY): {"text": ""}}}],
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True},
        },
        "overrides": [item.override() for item in columns if not item.is_plain],
    }
    options = {
        "cellHeight": "sm",
        "footer": {"countRows": False, "fields": "", "reducer": ["sum"], "show": False},
        "showHeader": True,
        "sortBy": [{"desc": True, "displayName": sort}],
    }
    panel = plain(text, queries, "table", options, config)
    panel.transformations = [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]
    return Placed(panel, width, height)


def first_rows(placed: Placed, count: int) -> Placed:
    """The table with its first rows only, in the order of the column that it is sorted by."""
    (sort,) = placed.panel.options["sortBy"]
    by_largest = {"fields": {}, "sort": [{"field": sort["displayName"], "desc": True}]}
    placed.panel.transformations += [
        {"id": "sortBy", "options": by_largest},
        {"id": "limit", "options": {"limitField": str(count)}},
    ]
    return placed


def _row_if_empty(expr: str, if_empty: EmptyText) -> str:
    """The table's rows, or one that holds the words, in a column of their own."""
    empty = f'label_replace({EMPTY} * group({if_empty.proof}), "{_EMPTY_COLUMN}", "{if_empty.words}", "", "")'
    rows = f"({expr}) or on () {empty}"
    return rows if if_empty.before is None else _row_if_empty(rows, if_empty.before)
