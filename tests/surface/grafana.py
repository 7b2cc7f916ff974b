"""Describes the generated files for Prometheus and Grafana: alerts, recording rules, dashboards."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from tests.surface.places import REPOSITORY
from tests.surface.tree import load

from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME

GENERATED: Final = REPOSITORY / "grafana"
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_SUFFIXES: Final = ("_bucket", "_sum", "_count")


def alerts_and_rules() -> dict[str, Any]:
    """Alerts and recording rules by name, with the labels that they set and the annotations that they carry."""
    alerts: dict[str, Any] = {}
    recordings: dict[str, Any] = {}
    for rule in _rules():
        if "alert" in rule:
            described = alerts.setdefault(rule["alert"], {"labels": {}, "annotations": [], "metrics": []})
            described["labels"] |= {name: text for name, text in rule.get("labels", {}).items() if "{{" not in text}
            described["annotations"] = sorted({*described["annotations"], *rule.get("annotations", {})})
        else:
            described = recordings.setdefault(rule["record"], {"metrics": []})
        described["metrics"] = sorted({*described["metrics"], *_metrics(rule["expr"])})
    return {"alerts": alerts, "recording rules": recordings}


def dashboards() -> dict[str, Any]:
    """Dashboards by uid: file, title, variables, and the metrics of their panels."""
    found = {}
    for path in sorted((GENERATED / "dashboards").glob("*.json")):
        board = json.loads(path.read_text())
        found[board["uid"]] = {
            "file": path.name,
            "title": board["title"],
            "variables": sorted(one["name"] for one in board["templating"]["list"]),
            "metrics": sorted({name for text in _expressions(board) for name in _metrics(text)}),
        }
    return found


@cache
def _rules() -> list[dict[str, Any]]:
    return [
        rule
        for path in sorted((GENERATED / "rules").glob("*.yaml"))
        for group in load(path.read_text())["groups"]
        for rule in group["rules"]
    ]


@cache
def _known() -> frozenset[str]:
    recorded = {rule["record"] for rule in _rules() if "record" in rule}
    return frozenset({"up", "ALERTS", *BY_PROMETHEUS_NAME, *recorded})


def _metrics(expression: str) -> Iterator[str]:
    """Names of metrics in a query, those of a histogram's parts without their suffix."""
    for name in _NAME.findall(expression):
        base = next((name.removesuffix(end) for end in _SUFFIXES if name.removesuffix(end) in _known()), name)
        if base in _known():
            yield base


def _expressions(part: Any) -> Iterator[str]:
    """Every query below a part of a dashboard: of panels, variables and annotations."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name in {"expr", "query", "definition"} and isinstance(value, str):
                yield value
            else:
                yield from _expressions(value)
    elif isinstance(part, list):
        for value in part:
            yield from _expressions(value)
