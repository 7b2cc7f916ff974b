"""The dashboards as Grafana's own types read them, and the exclusions for its linter."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel, RowPanel
from tests.unit.grafana.queries import boards

PAGES = boards()
LINT = Path(__file__).resolve().parents[3] / "grafana" / "dashboards" / ".lint"


def panels(page: dict[str, Any]) -> list[dict[str, Any]]:
    """Every panel, those of collapsed rows as well."""
    return [inner for panel in page["panels"] for inner in (panel, *panel.get("panels", ()))]


def decoded_panels(dashboard: Dashboard) -> list[Panel | RowPanel]:
    found: list[Panel | RowPanel] = []
    for panel in dashboard.panels or ():
        found += [panel, *(panel.panels if isinstance(panel, RowPanel) else ())]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_grafanas_own_types_read_every_page(name: str) -> None:
    page, dashboard = PAGES[name], Dashboard.from_json(PAGES[name])
    assert (dashboard.uid, dashboard.title, dashboard.schema_version) == (page["uid"], page["title"], 39)
    found = decoded_panels(dashboard)
    assert [(one.type_val, one.title) for one in found] == [(one["type"], one["title"]) for one in panels(page)]
    for panel, wanted in zip(found, panels(page), strict=True):
        if isinstance(panel, Panel):
            assert len(panel.targets or ()) == len(wanted.get("targets", ()))


@pytest.mark.parametrize("name", PAGES)
def test_what_they_write_again_asks_the_same_queries(name: str) -> None:
    again = json.loads(json.dumps(Dashboard.from_json(PAGES[name]), cls=JSONEncoder))
    asked = [target["expr"] for panel in panels(PAGES[name]) for target in panel.get("targets", ())]
    assert [target["expr"] for panel in panels(again) for target in panel.get("targets") or ()] == asked
    assert asked


def test_every_exclusion_of_the_linter_has_a_reason() -> None:
    exclusions = yaml.safe_load(LINT.read_text())["exclusions"]
    assert exclusions
    for rule, content in exclusions.items():
        assert rule.endswith("-rule")
        assert len(content["reason"].split()) > 5
