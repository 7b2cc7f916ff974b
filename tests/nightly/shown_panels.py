"""Says what is wrong with a page as Grafana's components draw it, and as we serve it (`grafana_components.py`)."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.service.grafana.test_simulated_hour import of_nodes

from kernelcast.grafana.model.unanswered import UNANSWERED

MOST_ROWS: Final = 200
"""Rows of a table that the served page draws."""
NEVER_EMPTY: Final = "Data"


def problems(report: Mapping[str, Any], model: Mapping[str, Any], *, healthy: bool, dead: bool) -> Iterator[str]:
    """Faults of a page that Grafana's code reports.

    Args:
        report: The value that `scenes/src/report.js` returns.
        model: The dashboard.
        healthy: Whether every panel about nodes must show something.
        dead: Whether no figure of now may show anything.
    """
    for thrown in sorted({each[:300] for each in report["thrown"]}):
        yield f"thrown: {thrown}"
    empty = {name for name, variable in report["variables"].items() if variable["value"] in ("", None)}
    for variable in model["templating"]["list"]:
        name = variable["name"]
        if report["variables"][name]["error"]:
            yield f"variable {name}: {report['variables'][name]['error']}"
        if name in empty and of_nodes(str(variable["query"])) and not dead:
            yield f"variable {name}: has no value"
    targets = {each["id"]: each.get("targets", ()) for each in _all_panels(model)}
    for panel in report["panels"]:
        queries = [each["expr"] for each in targets[panel["id"]]]
        for problem in (*_of_panel(panel), *_of_data(panel, queries, empty, healthy=healthy, dead=dead)):
            yield f"{panel['type']} {panel['title']!r}: {problem}"


def _of_panel(panel: Mapping[str, Any]) -> Iterator[str]:
    if panel["error"] or panel["crashed"]:
        yield str(panel["error"] or "its component failed")
    if panel["beyond"] > 0:
        yield f"is {panel['beyond']} pixels wider than its panel"
    for unknown in panel["unknown"]:
        yield f"Grafana has no {unknown}"
    if re.search(r"\$\{?[A-Za-z_]", f"{panel['title']} {panel['text']}"):
        yield f"a variable was not replaced: {panel['text'][:100]}"


def _of_data(
    panel: Mapping[str, Any], queries: Sequence[str], empty: set[str], *, healthy: bool, dead: bool
) -> Iterator[str]:
    narrowed = any(f'"${name}"' in expr for name in empty for expr in queries)
    declared = panel["title"] in UNANSWERED or narrowed or not any(map(of_nodes, queries))
    if healthy and panel["no_data"] and not declared:
        yield "no data"
    if dead and panel["type"] == "stat" and not panel["no_data"] and panel["title"] != NEVER_EMPTY:
        yield f"shows {panel['text']!r} although nothing is measured"


def differences(report: Mapping[str, Any], served: Mapping[str, Any]) -> Iterator[str]:
    """Figures and tables that the two pages show differently, and tables that need scrolling on the served page."""
    ours: dict[tuple[str, str], list[list[str]]] = {}
    for panel in served["panels"]:
        if panel["beyond"] > 0:
            yield f"{panel['title']!r}: is {panel['beyond']} pixels wider than its panel on the served page"
        ours.setdefault((panel["type"], panel["title"]), []).append(panel["cells"])
    for panel in report["panels"]:
        name = f"{panel['type']} {panel['title']!r}"
        same = ours.get((panel["type"], panel["title"]))
        if not same:
            yield f"{name}: is not on the served page"
            continue
        cells = same.pop(0)
        both_empty = panel["no_data"] and cells == ["No data"]
        if panel["type"] not in ("stat", "table") or both_empty or panel["rows"] > MOST_ROWS:
            continue
        here, there = _texts(panel["text"].split("\n")), _texts(cells)
        if here != there:
            yield f"{name}: Grafana shows {sorted(here - there)[:8]}, the served page {sorted(there - here)[:8]}"


def _texts(cells: Sequence[str]) -> Counter[str]:
    """Texts without spaces, which Grafana sets as margins, and without the arrow of a sorted column.

    Grafana writes "1 mins" for 65 seconds, as it chooses the plural before it rounds; the served page "1 min".
    """
    texts = (re.sub(r"[\s↓↑]", "", cell) for cell in cells)
    return Counter(re.sub(r"^(-?1(?:week|day|hour|min))s$", r"\1", text) for text in texts if text)


def _all_panels(model: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for panel in model["panels"]:
        yield from (panel, *panel.get("panels", ()))
