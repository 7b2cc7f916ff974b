"""Panels with declared queries, and a page of them in the JSON model of Grafana's dashboards.

`screens` makes the values; `LocalPages` sends the model to the browser, and finds the query of a panel by its number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.bridge.browser.queries import DeclaredQuery

Json = dict[str, Any]
_FROM_ZERO: Final = ("percent", "percentunit", "watt", "s", "mbytes")
"""Units whose graphs begin at 0, so that a small change looks small."""


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel.

    Attributes:
        query: The declared query.
        legend: Name of each series, with labels in double braces.
    """

    query: DeclaredQuery
    legend: str = ""


@dataclass(frozen=True, slots=True)
class ScreenPanel:
    """One panel.

    Attributes:
        kind: Grafana's type of panel.
        title: A few words.
        description: The question it answers.
        targets: Its queries, A, B and so on.
        unit: Unit of its values.
        size: Width in columns and height in rows of the grid.
        columns: Of a table: field and heading of each column, its unit, in this order.
        thresholds: Steps of colour.
        sort: Of a table: the column to sort by, largest first unless `sort_ascending`.
        value_texts: Of a table: heading of a column, a value, and the word in its place.
    """

    kind: str
    title: str
    description: str
    targets: tuple[Target, ...]
    unit: str = "none"
    size: tuple[int, int] = (6, 3)
    columns: tuple[tuple[str, str, str], ...] = ()
    thresholds: tuple[tuple[float | None, str], ...] = ()
    sort: str = ""
    sort_ascending: bool = False
    value_texts: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Screen:
    """One page.

    Attributes:
        uid: Its name in addresses; that of the generated dashboard on the same subject.
        title: Its title.
        description: Its question, in a sentence.
        panels: Its panels.
        strip: The panels that every page begins with.
    """

    uid: str
    title: str
    description: str
    panels: tuple[ScreenPanel, ...]
    strip: tuple[ScreenPanel, ...]

    @property
    def all_panels(self) -> tuple[ScreenPanel, ...]:
        """Its panels, those of the strip first; their numbers in the model begin at 1."""
        return (*self.strip, *self.panels)

    def model(self) -> Json:
        """The page in the model of Grafana's dashboards."""
        strip, rest = _with_grid_positions(self.strip, 0), _with_grid_positions(self.panels, 20)
        rows = [
            {"type": "row", "id": 900, "title": "Data"},
            *strip,
            {"type": "row", "id": 901, "title": self.title},
            *rest,
        ]
        for number, panel in enumerate(strip + rest, 1):
            panel["id"] = number
        title = f"kernelcast / {self.title}"
        return {"uid": self.uid, "title": title, "description": self.description, "refresh": "5s", "panels": rows}

    def target(self, panel_id: int, ref: str) -> DeclaredQuery | None:
        """The declared query of a target; None where there is none."""
        panels = self.all_panels
        if not 1 <= panel_id <= len(panels):
            return None
        targets = panels[panel_id - 1].targets
        place = ord(ref) - ord("A") if len(ref) == 1 else -1
        return targets[place].query if 0 <= place < len(targets) else None


def _with_grid_positions(panels: Sequence[ScreenPanel], top: int) -> list[Json]:
    left, height, made = 0, 0, []
    for panel in panels:
        width, rows = panel.size
        if left + width > 24:
            top, left, height = top + height, 0, 0
        made.append({**_panel(panel), "gridPos": {"x": left, "y": top, "w": width, "h": rows}})
        left, height = left + width, max(height, rows)
    return made


def _panel(panel: ScreenPanel) -> Json:
    instant = panel.kind != "timeseries"
    defaults: Json = {"unit": panel.unit}
    if panel.unit in _FROM_ZERO:
        defaults["min"] = 0
    if panel.thresholds:
        defaults["thresholds"] = {"steps": [{"value": value, "color": color} for value, color in panel.thresholds]}
    made: Json = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "expr": target.query.promql,
                "legendFormat": target.legend or "__auto",
                "instant": instant,
            }
            for place, target in enumerate(panel.targets)
        ],
        "fieldConfig": {"defaults": defaults},
        "options": {"textMode": "value_and_name" if len(panel.targets) > 1 else "value"},
    }
    if panel.kind == "table":
        made |= _table(panel)
    return made


def _table(panel: ScreenPanel) -> Json:
    sources = [source for source, _, _ in panel.columns]
    organize: Mapping[str, Any] = {
        "includeByName": dict.fromkeys(sources, True),
        "indexByName": {source: place for place, source in enumerate(sources)},
        "renameByName": {source: heading for source, heading, _ in panel.columns},
    }
    overrides = [
        {"matcher": {"id": "byName", "options": heading}, "properties": [{"id": "unit", "value": unit}]}
        for _, heading, unit in panel.columns
        if unit
    ]
    overrides += [
        {"matcher": {"id": "byName", "options": heading}, "properties": [_mapping(value, word)]}
        for heading, value, word in panel.value_texts
    ]
    sort = {"displayName": panel.sort, "desc": not panel.sort_ascending}
    return {
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": overrides},
        "options": {"sortBy": [sort]},
        "transformations": [{"id": "merge"}, {"id": "organize", "options": organize}],
    }


def _mapping(value: str, word: str) -> Json:
    mapping = {"type": "value", "options": {value: {"index": 0, "text": word, "color": "red"}}}
    return {"id": "mappings", "value": [mapping]}
