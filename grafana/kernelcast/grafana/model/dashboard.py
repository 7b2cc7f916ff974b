"""A dashboard: rows of placed panels, variables, annotations and links; `pages.page` makes it, `render` its JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import attr
from grafanalib import core

from kernelcast.grafana.model.grafana_schema import to_grafana_schema
from kernelcast.grafana.model.links import with_runbooks
from kernelcast.grafana.model.panels import Placed
from kernelcast.grafana.model.targets import DATASOURCE

GRID_COLUMNS: Final = 24
TAG: Final = "kernelcast"
_SHARED_CROSSHAIR: Final = 1
"""Grafana's number for `graphTooltip`: the pointer's time is marked in every panel."""


@dataclass(frozen=True, slots=True)
class Row:
    """A titled group of panels; a collapsed one asks Prometheus nothing until it is opened.

    Attributes:
        title: A few words; empty for no bar above the panels, which are then always drawn.
        panels: Its panels, placed from left to right.
        collapsed: Whether the row is closed when the page opens.
    """

    title: str
    panels: tuple[Placed, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """Events drawn over every graph, from a Prometheus query."""

    name: str
    expr: str
    title: str
    text: str
    color: str

    def to_json_data(self) -> dict[str, Any]:
        """Returns the annotation for grafanalib's JSON encoder."""
        return {
            "name": self.name,
            "datasource": dict(DATASOURCE),
            "enable": True,
            "hide": False,
            "iconColor": self.color,
            "expr": self.expr,
            "step": "60s",
            "titleFormat": self.title,
            "textFormat": self.text,
            "useValueForTime": False,
        }


_GRAFANAS_OWN: Final = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; its uid is in its file name, in links and in alerts, so it never changes."""

    uid: str
    title: str
    description: str
    tags: tuple[str, ...]
    variables: Sequence[Any]
    annotations: Sequence[Annotation]
    rows: Sequence[Row]
    since: str = "now-1h"

    def render(self, runbooks_url: str = "") -> str:
        """The dashboard as the JSON text that a person imports.

        Args:
            runbooks_url: The page of runbooks; without an address panels do not link to it.
        """
        board = to_grafana_schema(self._assemble())
        board["panels"] = [with_runbooks(panel, runbooks_url) for panel in board["panels"]]
        return json.dumps(board, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def _assemble(self) -> Any:
        others = core.DashboardLink(
            title="kernelcast", type="dashboards", tags=[TAG], asDropdown=True, includeVars=True, keepTime=True
        )
        return core.Dashboard(
            title=self.title,
            description=self.description,
            uid=self.uid,
            tags=[TAG, *self.tags],
            timezone="browser",
            refresh="30s",
            time=core.Time(self.since, "now"),
            graphTooltip=_SHARED_CROSSHAIR,
            editable=False,
            links=[others],
            templating=core.Templating(list(self.variables)),
            annotations=core.Annotations([_GRAFANAS_OWN, *self.annotations]),
            panels=list(_laid_out(self.rows)),
        ).auto_panel_ids()


def _laid_out(rows: Iterable[Row]) -> Iterable[Any]:
    top = 0
    for row in rows:
        bar = core.RowPanel(
            title=row.title, collapsed=row.collapsed, gridPos=core.GridPos(h=1, w=GRID_COLUMNS, x=0, y=top)
        )
        panels, top = _flow(row.panels, top + bool(row.title))
        if row.collapsed:
            bar.panels = panels
            yield bar
            top = bar.gridPos.y + 1
        else:
            yield from [bar] if row.title else []
            yield from panels


def _flow(placed: Iterable[Placed], top: int) -> tuple[list[Any], int]:
    """Put panels side by side, and on a new line where one no longer fits; also say where the next row may begin."""
    panels, left, line_height = [], 0, 0
    for item in placed:
        if left + item.width > GRID_COLUMNS:
            top, left, line_height = top + line_height, 0, 0
        position = core.GridPos(h=item.height, w=item.width, x=left, y=top)
        panels.append(attr.evolve(item.panel, gridPos=position))
        left, line_height = left + item.width, max(line_height, item.height)
    return panels, top + line_height
