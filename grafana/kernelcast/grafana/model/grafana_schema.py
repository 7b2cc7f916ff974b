"""Converts the output of grafanalib 0.7.1 to the format of Grafana 11 and later.

grafanalib stopped at schema 12: dead keys, nulls for everything unset, a default of 100 points a graph. Below schema 14
Grafana overwrites `graphTooltip`, and one line of releases refuses anything below 21. Schema 39 is native to Grafana 11
and migrated by 12 and 13 on their own.
"""

import json
from typing import Any, Final

from grafanalib._gen import DashboardEncoder

SCHEMA_VERSION: Final = 39
"""Version of Grafana's dashboard format that is written."""

_DEAD_DASHBOARD_KEYS: Final = ("__inputs", "gnetId", "hideControls", "rows", "sharedCrosshair", "style", "id")
_DEAD_PANEL_KEYS: Final = (
    "cacheTimeout",
    "editable",
    "error",
    "height",
    "hideTimeOverride",
    "minSpan",
    "span",
    "maxPerRow",
    "repeatDirection",
)
_MEANINGLESS_EMPTY: Final = (
    "links",
    "transformations",
    "mappings",
    "overrides",
    "stacking",
    "transparent",
    "axisLabel",
)
_TEXT_KEYS: Final = ("gridPos", "id", "options", "title", "transparent", "type")
_ROW_KEYS: Final = ("collapsed", "gridPos", "id", "panels", "title", "type")


def to_grafana_schema(dashboard: Any) -> dict[str, Any]:
    """A grafanalib dashboard as the JSON object that Grafana 11 would itself save.

    Args:
        dashboard: A `grafanalib.core.Dashboard`.
    """
    plain: dict[str, Any] = json.loads(json.dumps(dashboard.to_json_data(), cls=DashboardEncoder))
    for key in _DEAD_DASHBOARD_KEYS:
        plain.pop(key, None)
    plain["schemaVersion"] = SCHEMA_VERSION
    plain["timepicker"] = {}
    plain["panels"] = [_panel_to_grafana_schema(panel) for panel in plain["panels"]]
    whole: dict[str, Any] = _without_nulls(plain)
    return whole


def _panel_to_grafana_schema(panel: dict[str, Any]) -> dict[str, Any]:
    if panel["type"] == "row":
        row = {key: panel[key] for key in _ROW_KEYS}
        row["panels"] = [_panel_to_grafana_schema(inner) for inner in panel["panels"]]
        return row
    if panel["type"] == "text":
        return {key: panel[key] for key in _TEXT_KEYS}
    return {
        key: _without_empty(value)
        for key, value in panel.items()
        if key not in _DEAD_PANEL_KEYS and _is_meaningful(key, value)
    }


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if _is_meaningful(key, item)}
    return value


def _is_meaningful(key: str, value: Any) -> bool:
    return bool(value) or key not in _MEANINGLESS_EMPTY


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_nulls(item) for key, item in value.items() if item is not None or _is_base_step(value, key)
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _is_base_step(holder: dict[str, Any], key: str) -> bool:
    """The lowest threshold has no lower end; Grafana writes that as null."""
    return key == "value" and set(holder) == {"color", "value"}
